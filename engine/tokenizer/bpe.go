package tokenizer

import (
	"fmt"
	"maps"
	"strings"
)

// bpe merges neighbours in the order of the file's merge list. Symbols 0 to size-1 are the tokens; those above are
// strings that are no tokens, which are split into their halves at the end.
type bpe struct {
	pre    preTokenizer
	plain  bool // text with marks for spaces, not bytes (Gemma 4)
	size   int32
	bytes  [256]int32       // symbol of each byte, or None
	ids    map[string]int32 // raw bytes to token, for ignoreMerges
	ranks  map[pair]int32
	first  [256][256]int32 // ranks of the merges of single bytes
	makes  []int32         // symbol of each merge, by rank
	halves []pair          // of symbol size+i

	longest int // bytes of the longest token; 0: some bytes have no token
	chains  chains
}

type pair struct{ left, right int32 }

func (t *Tokenizer) initBPE(v *Vocab, plain bool) error {
	pre, err := findPreTokenizer(v.Pre)
	if plain {
		pre, err = preGemma4, nil
	}
	if err != nil {
		return err
	}
	if v.Merges == nil {
		return fmt.Errorf("tokenizer: a vocabulary of kind %s needs tokenizer.ggml.merges", v.Model)
	}
	m := &bpe{pre: pre, plain: plain, size: int32(len(v.Tokens)), ids: make(map[string]int32, len(v.Tokens)), ranks: make(map[pair]int32, len(v.Merges))}
	t.pieces = make([]string, len(v.Tokens))
	for i, text := range v.Tokens {
		switch t.types[i] {
		case UserDefined:
			t.pieces[i] = text
		case Control, Unknown, Unused, Byte:
		default:
			raw, ok := m.raw(text)
			if !ok { // merging can't produce it; it is decoded as is
				t.pieces[i] = text
				continue
			}
			t.pieces[i] = raw
			if _, dup := m.ids[raw]; !dup {
				m.ids[raw] = int32(i)
				m.longest = max(m.longest, len(raw))
			}
		}
	}
	var unknown []int // bytes without a token
	for b := range m.bytes {
		id, ok := m.ids[string([]byte{byte(b)})]
		if plain {
			if id = named(v.Tokens, fmt.Sprintf("<0x%02X>", b)); id != None {
				t.pieces[id] = string([]byte{byte(b)})
			}
			ok = id != None
		}
		if !ok {
			id, unknown = v.Unknown, append(unknown, b)
		}
		if id == None {
			m.longest = 0
		}
		m.bytes[b] = id
	}
	if err := m.addMerges(v.Merges); err != nil {
		return err
	}
	if plain {
		unknown = nil
	}
	for _, b := range unknown {
		for other, id := range m.bytes {
			m.first[b][other], m.first[other][b] = m.merge(m.bytes[b], id), m.merge(id, m.bytes[b])
		}
	}
	t.merger, t.addBOS, t.repair, t.nfc = m, pre.addBOS, true, pre.nfc
	return nil
}

func (m *bpe) raw(text string) (string, bool) {
	if m.plain {
		return strings.ReplaceAll(text, spaceMark, " "), true
	}
	return rawBytes(text)
}

// addMerges keeps the first rank of duplicates, and skips merges with an impossible half.
func (m *bpe) addMerges(lines []string) error {
	symbols := make(map[string]int32, len(m.ids))
	maps.Copy(symbols, m.ids)
	m.makes = make([]int32, len(lines))
	for b := range m.first {
		for other := range m.first[b] {
			m.first[b][other] = never
		}
	}
	for rank, line := range lines {
		at := -1
		if len(line) > 1 {
			at = strings.IndexByte(line[1:], ' ') + 1
		}
		if at <= 0 || at == len(line)-1 {
			return fmt.Errorf("tokenizer: merge %d %q is not of the form \"left right\" (tokenizer.ggml.merges)", rank, line)
		}
		left, okLeft := m.raw(line[:at])
		right, okRight := m.raw(line[at+1:])
		if !okLeft || !okRight {
			return fmt.Errorf("tokenizer: merge %d %q holds a character that stands for no byte (tokenizer.ggml.merges)", rank, line)
		}
		l, okLeft := symbols[left]
		r, okRight := symbols[right]
		if !okLeft || !okRight {
			continue
		}
		p := pair{l, r}
		if _, dup := m.ranks[p]; dup {
			continue
		}
		made, ok := symbols[left+right]
		if !ok {
			made = m.size + int32(len(m.halves))
			m.halves = append(m.halves, p)
			symbols[left+right] = made
		}
		m.ranks[p], m.makes[rank] = int32(rank), made
		if len(left) == 1 && len(right) == 1 {
			m.first[left[0]][right[0]] = int32(rank)
		}
	}
	return nil
}

func (m *bpe) encode(j *job, text string, _ bool) {
	if m.plain {
		text = strings.ReplaceAll(text, spaceMark, " ")
	}
	usual := m.chains.take(0)
	m.pre.split(text, func(word string) {
		j.piece(len(word), m.longest)
		if len(word) < manyPlaces {
			m.word(j, word, usual)
			return
		}
		c := m.chains.take(len(word))
		m.word(j, word, c)
		m.chains.put(c)
	})
	m.chains.put(usual)
}

func (m *bpe) longestToken() int {
	if m.plain { // a text may contain marks
		return m.longest * len(spaceMark)
	}
	return m.longest
}

func (m *bpe) word(j *job, word string, c *chain) {
	if m.pre.ignoreMerges || m.plain && word[0] == '\n' {
		if id, ok := m.ids[word]; ok {
			j.ids = append(j.ids, id)
			return
		}
	}
	c.reset(len(word))
	n, last := 0, byte(0)
	for i := 0; i < len(word); i++ {
		b := word[i]
		if m.plain {
			_, size := decodeRune(word[i:])
			if id, ok := m.ids[word[i:i+size]]; ok {
				if c.parts[n] = id; n > 0 {
					c.ranks[n-1] = m.merge(c.parts[n-1], id)
				}
				n, i = n+1, i+size-1
				continue
			}
		}
		id := m.bytes[b]
		if id == None {
			continue
		}
		if c.parts[n] = id; n > 0 {
			c.ranks[n-1] = m.first[last][b]
		}
		n, last = n+1, b
	}
	c.parts = c.parts[:n]
	c.merge(j, m)
	j.grow(c)
	for at := int32(0); at < int32(n); at = c.next(at) {
		j.ids = m.emit(j.ids, c.parts[at])
	}
}

func (m *bpe) rank(c *chain, left, right, _ int32) int32 {
	return m.merge(c.parts[left], c.parts[right])
}

func (m *bpe) merge(left, right int32) int32 {
	if rank, ok := m.ranks[pair{left, right}]; ok {
		return rank
	}
	return never
}

func (m *bpe) made(rank int32) int32 { return m.makes[rank] }

func (m *bpe) emit(ids []int32, symbol int32) []int32 {
	if symbol < m.size {
		return append(ids, symbol)
	}
	p := m.halves[symbol-m.size]
	return m.emit(m.emit(ids, p.left), p.right)
}
