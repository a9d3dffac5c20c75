// Package tokenizer turns text into the token ids of one model and back. There are three kinds of vocabulary:
//
//   - byte-level BPE (tokenizer.ggml.model = "gpt2"): a pre-tokenizer (tokenizer.ggml.pre) cuts words. In each, bytes
//     are merged in the order of the file's merge list.
//   - SPM ("llama"): spaces become "▁", and characters are merged to the token with the highest score first. A
//     character without a token becomes byte tokens.
//   - WordPiece ("bert"): words, usually lower-cased, are split into the longest pieces from the left. Decode returns
//     the words, not the original text.
//
// The life of one Encode:
//
//  1. The text is cut at special tokens, the longest at each position. User-defined tokens always count; control
//     tokens only with parseSpecial.
//  2. Byte-level BPE: each invalid byte becomes U+FFFD.
//  3. If the file or its pre-tokenizer wants it, the text between is normalized to Unicode's form C.
//  4. That text is merged, or split into pieces.
//
// Unknown kinds and pre-tokenizers are errors: a guess would give wrong tokens. No merge makes a control token: without
// parseSpecial there is none in Encode's result.
//
// A Tokenizer is immutable after New and safe for many goroutines.
package tokenizer

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// None is the id of no token.
const None int32 = -1

// Type is numbered as in tokenizer.ggml.token_type.
type Type int32

const (
	Normal      Type = 1
	Unknown     Type = 2
	Control     Type = 3
	UserDefined Type = 4
	Unused      Type = 5
	Byte        Type = 6
)

// Vocab describes a file's tokens. Special ids may be None.
type Vocab struct {
	Model  string    // "gpt2", "llama" or "bert"
	Pre    string    // pre-tokenizer of BPE; "": "default"
	Tokens []string  // byte-level BPE writes bytes as GPT-2's characters
	Types  []Type    // nil: Normal, but for the special ids below
	Scores []float32 // SPM: one per token
	Merges []string  // BPE: "left right", most important first

	BOS, EOS, EOT, EOM, Unknown int32

	AddBOS         *bool // nil: the kind's
	Sep            int32 // WordPiece: at the end of a text
	AddEOS         *bool // other kinds: a text ends with EOS; nil: false
	Lowercase      *bool // WordPiece: lower-case and without accents; nil: if no piece has a capital letter
	AddSpacePrefix *bool // SPM; nil: true

	// NFC normalizes the text between special tokens to form C; nil: as the pre-tokenizer's models.
	NFC *bool

	// StripAfter makes special tokens, but <unk>, <s> and <|endoftext|>, swallow the white space after them (Phi 3).
	StripAfter bool
}

type merger interface {
	// encode appends to j.ids. first: text begins the input, or follows a special token.
	encode(j *job, text string, first bool)
	// longestToken returns the most bytes of text for one token; 0: no bound.
	longestToken() int
}

// Tokenizer encodes and decodes with one vocabulary.
type Tokenizer struct {
	tokens  []string
	types   []Type
	pieces  []string
	ends    map[int32]bool
	bos     int32
	addBOS  bool
	end     int32
	addEnd  bool
	spaced  bool // Decode drops a prepended space
	strip   bool // as StripAfter
	repair  bool // invalid UTF-8 is replaced
	nfc     bool // text is normalized
	always  trie // user-defined tokens
	control trie // and unknown tokens
	special trie // all of them
	merger  merger
	longest int // bytes of text for one token; 0: no bound
	limit   *limiter
}

// New fails with the name of the invalid part of the vocabulary.
func New(v Vocab) (*Tokenizer, error) {
	if len(v.Tokens) == 0 {
		return nil, fmt.Errorf("tokenizer: the vocabulary is empty (tokenizer.ggml.tokens)")
	}
	if v.Types != nil && len(v.Types) != len(v.Tokens) {
		return nil, fmt.Errorf("tokenizer: %d token types for %d tokens", len(v.Types), len(v.Tokens))
	}
	t := &Tokenizer{tokens: v.Tokens, bos: v.BOS, end: None, strip: v.StripAfter, limit: newLimiter()}
	if err := t.setTypes(&v); err != nil {
		return nil, err
	}
	var err error
	switch v.Model {
	case "gpt2":
		err = t.initBPE(&v, false)
	case "gemma4":
		err = t.initBPE(&v, true)
	case "llama":
		err = t.initSPM(&v)
	case "bert":
		err = t.initWPM(&v)
	default:
		err = fmt.Errorf("tokenizer: unknown vocabulary kind tokenizer.ggml.model = %q; supported are gpt2 (byte-level BPE), gemma4 (BPE), llama (SPM) and bert (WordPiece)", v.Model)
	}
	if err != nil {
		return nil, err
	}
	if v.AddBOS != nil {
		t.addBOS = *v.AddBOS
	}
	if v.Model == "bert" {
		t.end, t.addEnd = v.Sep, v.Sep != None
	} else {
		t.end, t.addEnd = v.EOS, v.EOS != None && v.AddEOS != nil && *v.AddEOS
	}
	if v.NFC != nil {
		t.nfc = *v.NFC
	}
	if t.addBOS && t.bos == None {
		return nil, fmt.Errorf("tokenizer: the file wants a beginning-of-text token (tokenizer.ggml.add_bos_token) but names none (tokenizer.ggml.bos_token_id)")
	}
	t.initSpecial()
	return t, nil
}

func (t *Tokenizer) setTypes(v *Vocab) error {
	ids := []struct {
		name string
		id   int32
	}{{"bos", v.BOS}, {"eos", v.EOS}, {"eot", v.EOT}, {"eom", v.EOM}, {"unknown", v.Unknown}}
	if v.Model == "bert" {
		ids = append(ids, struct {
			name string
			id   int32
		}{"seperator", v.Sep}) //nolint:misspell // GGUF's spelling
	}
	for _, s := range ids {
		if s.id != None && (s.id < 0 || int(s.id) >= len(v.Tokens)) {
			return fmt.Errorf("tokenizer: tokenizer.ggml.%s_token_id = %d is outside the vocabulary of %d tokens", s.name, s.id, len(v.Tokens))
		}
	}
	t.types = make([]Type, len(v.Tokens))
	copy(t.types, v.Types)
	if v.Types == nil {
		for i := range t.types {
			t.types[i] = Normal
		}
		for _, s := range ids {
			if s.id != None {
				t.types[s.id] = Control
			}
		}
	}
	t.ends = endTokens(v, t.types)
	return nil
}

func (t *Tokenizer) initSpecial() {
	if !t.strip { // else tokens take any white space
		t.longest = t.merger.longestToken()
	}
	for i, text := range t.tokens {
		if text == "" {
			continue
		}
		switch t.types[i] {
		case UserDefined:
			t.always.add(text, int32(i))
		case Control, Unknown:
			t.control.add(text, int32(i))
		default:
			continue
		}
		t.special.add(text, int32(i))
		if t.longest > 0 {
			t.longest = max(t.longest, len(text))
		}
	}
}

// Encode returns the ids of text, without a beginning-of-text token: see BOS. With parseSpecial a control token's text
// becomes that token, unless Guard marked it: for templates and trusted prompts. Time and memory are not bounded; see
// EncodeWithin.
func (t *Tokenizer) Encode(text string, parseSpecial bool) []int32 {
	j := &job{ctx: context.Background(), most: math.MaxInt}
	t.encode(j, text, parseSpecial)
	return j.ids
}

func (t *Tokenizer) encode(j *job, text string, parseSpecial bool) {
	if text == "" {
		return
	}
	if t.repair {
		text = toValid(text)
	}
	specials := &t.always
	if parseSpecial {
		specials = &t.special
	}
	guarded := parseSpecial && strings.Contains(text, guardMark)
	j.ids = make([]int32, 0, min(len(text)/3+4, j.most))
	first := true
	for text != "" {
		at, n, id := specials.find(text)
		plain := text
		if n > 0 {
			plain = text[:at]
		}
		if guarded {
			plain = unguard(plain)
		}
		if t.nfc {
			plain = norm.NFC.String(plain)
		}
		if plain != "" {
			t.merger.encode(j, plain, first)
		}
		if n == 0 {
			break
		}
		j.ids = append(j.ids, id)
		j.step(n)
		text, first = text[at+n:], true
		if t.strip && t.strips(id) {
			text = strings.TrimLeft(text, " \t\n\v\f\r")
		}
	}
	j.piece(0, 0)
}

func (t *Tokenizer) strips(id int32) bool {
	switch t.tokens[id] {
	case "<unk>", "<s>", "<|endoftext|>":
		return false
	}
	return true
}

// BOS returns the beginning-of-text token, or None. add: the file wants it before every prompt.
func (t *Tokenizer) BOS() (id int32, add bool) { return t.bos, t.addBOS }

// End returns the token that closes a text, or None. add: the file wants it after every complete text, such as the
// input of an embedding.
func (t *Tokenizer) End() (id int32, add bool) { return t.end, t.addEnd }

// IsEnd reports whether id ends a text, turn or message.
func (t *Tokenizer) IsEnd(id int32) bool { return t.ends[id] }

// Ends returns the names of those tokens, sorted by id.
func (t *Tokenizer) Ends() (names []string) {
	for _, id := range slices.Sorted(maps.Keys(t.ends)) {
		if t.ends[id] {
			names = append(names, t.Token(id))
		}
	}
	return names
}

// Size returns the number of tokens.
func (t *Tokenizer) Size() int { return len(t.tokens) }

// Token returns id's text in the vocabulary, or "".
func (t *Tokenizer) Token(id int32) string {
	if id < 0 || int(id) >= len(t.tokens) {
		return ""
	}
	return t.tokens[id]
}

// Piece returns the bytes that id adds to the output, maybe incomplete UTF-8; none for control, unknown and unused
// tokens.
func (t *Tokenizer) Piece(id int32) []byte {
	return []byte(t.piece(id))
}

func (t *Tokenizer) piece(id int32) string {
	if id < 0 || int(id) >= len(t.pieces) {
		return ""
	}
	return t.pieces[id]
}

// Decode returns the text of ids, without a prepended space. To continue a text use a StreamDecoder. It is invalid
// UTF-8 if ids cut a character.
func (t *Tokenizer) Decode(ids []int32) string {
	var b strings.Builder
	for p := range t.Texts(ids) {
		b.WriteString(p)
	}
	return b.String()
}

// Texts returns Decode's result, a part for each id.
func (t *Tokenizer) Texts(ids []int32) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i, id := range ids {
			p := t.piece(id)
			if t.spaced && p != "" && (i == 0 || (i == 1 && t.types[ids[0]] == Control)) {
				p = strings.TrimPrefix(p, " ")
			}
			if !yield(p) {
				return
			}
		}
	}
}

func toValid(text string) string {
	for i := 0; i < len(text); {
		if text[i] < 0x80 {
			i++
			continue
		}
		r, n := decodeRune(text[i:])
		if r == replacement && n == 1 {
			return string([]rune(text))
		}
		i += n
	}
	return text
}
