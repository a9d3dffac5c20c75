package tokenizer

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// wpm is BERT's WordPiece (google-research/bert, tokenization.py). A word that can't be split is
// the unknown token. In GGUF a piece that begins a word starts with "▁".
type wpm struct {
	begin, goOn map[string]int32
	longest     int // bytes of the longest piece
	unknown     int32
	lower       bool // lower-case and strip accents
}

// In characters.
const longestWord = 100

func (t *Tokenizer) initWPM(v *Vocab) error {
	if v.Unknown == None {
		return fmt.Errorf("tokenizer: a WordPiece vocabulary needs an unknown token (tokenizer.ggml.unknown_token_id)")
	}
	m := &wpm{begin: map[string]int32{}, goOn: map[string]int32{}, unknown: v.Unknown, lower: true}
	t.pieces = make([]string, len(v.Tokens))
	for i, text := range v.Tokens {
		switch t.types[i] {
		case Control, Unknown, Unused:
			continue
		case UserDefined:
			t.pieces[i] = text
			continue
		}
		piece, begins := strings.CutPrefix(text, spaceMark)
		of := m.goOn
		if t.pieces[i] = text; begins {
			of, t.pieces[i] = m.begin, " "+piece
		}
		if _, dup := of[piece]; !dup && piece != "" {
			of[piece] = int32(i)
			m.longest = max(m.longest, len(piece))
		}
		m.lower = m.lower && strings.ToLower(piece) == piece
	}
	if v.Lowercase != nil {
		m.lower = *v.Lowercase
	}
	t.merger, t.addBOS, t.spaced = m, v.BOS != None, true
	return nil
}

func (m *wpm) encode(j *job, text string, _ bool) {
	for text != "" {
		n := portion(text)
		m.words(m.normal(j, text[:n]), func(word string) {
			j.piece(len(word), 0)
			j.ids = m.word(j.ids, word)
		})
		text = text[n:]
	}
}

// An unknown word is one token.
func (*wpm) longestToken() int { return 0 }

// portion returns up to a word's end after the first few thousand bytes.
func portion(text string) int {
	for at := 1 << 14; at < len(text); at++ {
		if c := text[at]; c < 0x80 && (c == ' ' || c == '\n' || c == '.' || c == ',') {
			return at
		}
		if r, n := decodeRune(text[at:]); n > 1 && r >= 0x4e00 && r <= 0x9fff {
			return at
		}
	}
	return len(text)
}

func (m *wpm) normal(j *job, text string) string {
	text = strings.Map(func(r rune) rune {
		j.step(1)
		switch {
		case r == '\t' || r == '\n' || r == '\r' || unicode.IsSpace(r):
			return ' '
		case r == 0 || r == utf8.RuneError || unicode.Is(unicode.C, r) || !unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Z):
			return -1
		}
		return r
	}, text)
	if !m.lower {
		return text
	}
	return strings.ToLower(strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, norm.NFD.String(text)))
}

// words cuts at white space, and around punctuation and Chinese characters.
func (m *wpm) words(text string, emit func(string)) {
	from := 0
	cut := func(to int) {
		if to > from {
			emit(text[from:to])
		}
	}
	for at := 0; at < len(text); {
		r, n := decodeRune(text[at:])
		switch {
		case unicode.IsSpace(r):
			cut(at)
			from = at + n
		case unicode.IsPunct(r) || r < 0x80 && unicode.IsSymbol(r) || chinese(r):
			cut(at)
			emit(text[at : at+n])
			from = at + n
		}
		at += n
	}
	cut(len(text))
}

func (m *wpm) word(ids []int32, word string) []int32 {
	known := len(ids)
	if utf8.RuneCountInString(word) > longestWord {
		return append(ids, m.unknown)
	}
	of := m.begin
	for word != "" {
		n := min(len(word), m.longest)
		for ; n > 0; n-- {
			if id, ok := of[word[:n]]; ok {
				ids = append(ids, id)
				break
			}
		}
		if n == 0 {
			return append(ids[:known], m.unknown)
		}
		word, of = word[n:], m.goOn
	}
	return ids
}

// chinese has BERT's blocks, as Hugging Face's normalizer does.
func chinese(r rune) bool {
	return r >= 0x4e00 && r <= 0x9fff || r >= 0x3400 && r <= 0x4dbf || r >= 0x20000 && r <= 0x2a6df || r >= 0x2a700 && r <= 0x2b73f ||
		r >= 0x2b740 && r <= 0x2b81f || r >= 0x2b920 && r <= 0x2ceaf || r >= 0xf900 && r <= 0xfaff || r >= 0x2f800 && r <= 0x2fa1f
}
