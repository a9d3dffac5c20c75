package tokenizer

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// spaceMark is U+2581, lower one eighth block.
const spaceMark = "▁"

// spm merges the neighbours that make the token with the highest score, leftmost first.
type spm struct {
	ids     map[string]int32 // with plain spaces
	ranks   []int32          // of the merge to each token
	joined  bytePairs        // adjacent bytes within tokens
	bytes   [256]int32       // <0x00> to <0xFF>
	unknown int32
	longest int  // bytes of the longest token
	prefix  bool // a space begins the text, also after a special token
	chains  chains
}

func (t *Tokenizer) initSPM(v *Vocab) error {
	if len(v.Scores) != len(v.Tokens) {
		return fmt.Errorf("tokenizer: an SPM vocabulary needs a score for each token: %d scores for %d tokens (tokenizer.ggml.scores)", len(v.Scores), len(v.Tokens))
	}
	m := &spm{ids: make(map[string]int32, len(v.Tokens)), ranks: rankScores(v.Scores), unknown: v.Unknown, prefix: true}
	if v.AddSpacePrefix != nil {
		m.prefix = *v.AddSpacePrefix
	}
	for b := range m.bytes {
		m.bytes[b] = None
	}
	t.pieces = make([]string, len(v.Tokens))
	for i, text := range v.Tokens {
		switch t.types[i] {
		case Control, Unknown, Unused:
			continue
		case Byte:
			b, err := parseByteToken(text)
			if err != nil {
				return fmt.Errorf("tokenizer: byte token %d: %w", i, err)
			}
			m.bytes[b] = int32(i)
			t.pieces[i] = string([]byte{b})
			continue
		case UserDefined:
			t.pieces[i] = text
		default:
			t.pieces[i] = strings.ReplaceAll(text, spaceMark, " ")
		}
		m.add(text, int32(i))
	}
	if err := m.checkBytes(t.types); err != nil {
		return err
	}
	t.merger, t.addBOS, t.spaced = m, true, m.prefix
	return nil
}

// add skips tokens with a plain space: a text's become marks, which are stored as spaces.
func (m *spm) add(text string, id int32) {
	plain := strings.ReplaceAll(text, spaceMark, " ")
	if _, dup := m.ids[plain]; dup || text == "" || strings.Contains(text, " ") {
		return
	}
	m.ids[plain] = id
	m.longest = max(m.longest, len(plain))
	m.joined.addAll(plain)
}

// checkBytes makes sure that any text can be encoded.
func (m *spm) checkBytes(types []Type) error {
	for b, id := range m.bytes {
		if id != None {
			continue
		}
		if id, ok := m.ids[fmt.Sprintf("<0x%02X>", b)]; ok && types[id] == Normal {
			m.bytes[b] = id
			continue
		}
		if m.unknown == None {
			return fmt.Errorf("tokenizer: the SPM vocabulary has neither byte token <0x%02X> nor an unknown token (tokenizer.ggml.unknown_token_id)", b)
		}
		m.bytes[b] = m.unknown
	}
	return nil
}

func parseByteToken(text string) (byte, error) {
	if len(text) == 6 && strings.HasPrefix(text, "<0x") && text[5] == '>' {
		if b, err := strconv.ParseUint(text[3:5], 16, 8); err == nil {
			return byte(b), nil
		}
	}
	return 0, fmt.Errorf("%q is not of the form <0xHH>", text)
}

// encode merges stretches that no token crosses.
func (m *spm) encode(j *job, text string, first bool) {
	text = strings.ReplaceAll(text, spaceMark, " ")
	if first && m.prefix {
		text = " " + text
	}
	from := 0
	for at := 0; at < len(text); {
		_, n := decodeRune(text[at:])
		if at += n; at == len(text) || !m.joined.has(text[at-1], text[at]) {
			m.word(j, text[from:at])
			from = at
		}
	}
}

func (m *spm) longestToken() int { return m.longest * len(spaceMark) }

func (m *spm) word(j *job, text string) {
	j.piece(len(text), max(m.longest, 1))
	c := m.chains.take(len(text))
	c.reset(len(text))
	c.text = text
	for at := 0; at < len(text); {
		_, n := decodeRune(text[at:])
		if c.parts[at] = 0; n > 1 {
			c.parts[at+1], c.parts[at+n-1] = int32(-n), int32(-n)
		}
		at += n
	}
	c.rankAll(j, m)
	c.merge(j, m)
	j.grow(c)
	for at, end := int32(0), int32(len(text)); at < end; {
		next := c.next(at)
		j.ids = m.emit(j.ids, text[at:next])
		at = next
	}
	m.chains.put(c)
}

func (m *spm) rank(c *chain, left, _, end int32) int32 {
	if int(end-left) > m.longest {
		return never
	}
	if id, ok := m.ids[c.text[left:end]]; ok {
		return m.ranks[id]
	}
	return never
}

func (*spm) made(int32) int32 { return 0 }

func (m *spm) emit(ids []int32, s string) []int32 {
	if id, ok := m.ids[s]; ok {
		return append(ids, id)
	}
	if s == " " {
		s = spaceMark
	}
	for i := range len(s) {
		ids = append(ids, m.bytes[s[i]])
	}
	return ids
}

func rankScores(scores []float32) []int32 {
	order := slices.Clone(scores)
	slices.SortFunc(order, func(a, b float32) int { return cmp.Compare(b, a) })
	order = slices.Compact(order)
	ranks := make([]int32, len(scores))
	for id, score := range scores {
		at, _ := slices.BinarySearchFunc(order, score, func(a, b float32) int { return cmp.Compare(b, a) })
		ranks[id] = int32(at)
	}
	return ranks
}

type bytePairs [256][4]uint64

func (p *bytePairs) has(a, b byte) bool { return p[a][b>>6]>>(b&63)&1 != 0 }

func (p *bytePairs) addAll(text string) {
	for i := 1; i < len(text); i++ {
		p[text[i-1]][text[i]>>6] |= 1 << (text[i] & 63)
	}
}
