package tokenizer

import (
	"fmt"
	"strings"
	"sync"
)

// bpe merges neighbours in the order of the file's merge list.
//
// Symbols are numbered: 0 to size-1 are the tokens, and above them are the strings that only exist on the way (a merge
// may make a string that is no token; at the end it is taken apart again into the two halves that made it).
type bpe struct {
	pre    preTokenizer
	size   int32
	bytes  [256]int32       // symbol of each byte, None where the vocabulary has none
	ids    map[string]int32 // raw bytes to token, for ignoreMerges
	merges map[pair]merge
	halves []pair // of symbol size+i

	longest int // bytes of the longest token; 0 where there are bytes that no token stands for
	pool    sync.Pool
}

type pair struct{ left, right int32 }

type merge struct{ rank, made int32 }

// initBPE reads the merges of a byte-level vocabulary.
func (t *Tokenizer) initBPE(v *Vocab) error {
	pre, err := findPreTokenizer(v.Pre)
	if err != nil {
		return err
	}
	if v.Merges == nil {
		return fmt.Errorf("tokenizer: a byte-level vocabulary needs tokenizer.ggml.merges")
	}
	m := &bpe{pre: pre, size: int32(len(v.Tokens)), ids: make(map[string]int32, len(v.Tokens)), merges: make(map[pair]merge, len(v.Merges))}
	t.pieces = make([]string, len(v.Tokens))
	for i, text := range v.Tokens {
		switch t.types[i] {
		case UserDefined:
			t.pieces[i] = text
		case Control, Unknown, Unused:
		default:
			raw, ok := rawBytes(text)
			if !ok { // no byte-level text: it cannot come out of merging, and is shown as it is
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
	unknown := v.Unknown
	for b := range m.bytes {
		id, ok := m.ids[string([]byte{byte(b)})]
		if !ok {
			id = unknown
		}
		if id == None {
			m.longest = 0
		}
		m.bytes[b] = id
	}
	if err := m.addMerges(v.Merges); err != nil {
		return err
	}
	t.merger, t.addBOS, t.repair, t.nfc = m, pre.addBOS, true, pre.nfc
	return nil
}

// addMerges numbers the symbols and fills the merge table. A merge that is named twice keeps its first rank; one whose
// halves cannot come into being is skipped, for it never happens.
func (m *bpe) addMerges(lines []string) error {
	symbols := make(map[string]int32, len(m.ids))
	for raw, id := range m.ids {
		symbols[raw] = id
	}
	for rank, line := range lines {
		at := -1
		if len(line) > 1 {
			at = strings.IndexByte(line[1:], ' ') + 1
		}
		if at <= 0 || at == len(line)-1 {
			return fmt.Errorf("tokenizer: merge %d %q is not of the form \"left right\" (tokenizer.ggml.merges)", rank, line)
		}
		left, okLeft := rawBytes(line[:at])
		right, okRight := rawBytes(line[at+1:])
		if !okLeft || !okRight {
			return fmt.Errorf("tokenizer: merge %d %q holds a character that stands for no byte (tokenizer.ggml.merges)", rank, line)
		}
		l, okLeft := symbols[left]
		r, okRight := symbols[right]
		if !okLeft || !okRight {
			continue
		}
		p := pair{l, r}
		if _, dup := m.merges[p]; dup {
			continue
		}
		made, ok := symbols[left+right]
		if !ok {
			made = m.size + int32(len(m.halves))
			m.halves = append(m.halves, p)
			symbols[left+right] = made
		}
		m.merges[p] = merge{int32(rank), made}
	}
	return nil
}

func (m *bpe) encode(j *job, text string, _ bool) {
	s, _ := m.pool.Get().(*bpeScratch)
	if s == nil {
		s = &bpeScratch{}
	}
	m.pre.split(text, func(word string) {
		j.piece(len(word), m.longest)
		m.word(j, word, s)
		j.release()
	})
	if cap(s.nodes) <= 1<<16 { // a scratch blown up by one huge word is not kept
		m.pool.Put(s)
	}
}

// bpeScratch is the memory of one encode.
type bpeScratch struct {
	nodes []bpeNode
	queue []bpeCandidate
}

// bpeNode is a symbol in the doubly linked list of a word. A node that was merged into its left neighbour has the
// symbol None.
type bpeNode struct{ symbol, prev, next int32 }

// bpeCandidate is a merge that is possible at the node left, or was when it was queued.
type bpeCandidate struct {
	merge
	left int32
	pair pair
}

// before orders the queue: the best rank first, and of the same rank the leftmost.
func (c bpeCandidate) before(d bpeCandidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.left < d.left
}

// word appends the ids of one word, in O(n log n) for n bytes.
func (m *bpe) word(j *job, word string, s *bpeScratch) {
	if m.pre.ignoreMerges {
		if id, ok := m.ids[word]; ok {
			j.ids = append(j.ids, id)
			return
		}
	}
	s.nodes, s.queue = s.nodes[:0], s.queue[:0]
	for i := range len(word) {
		if id := m.bytes[word[i]]; id != None {
			n := int32(len(s.nodes))
			s.nodes = append(s.nodes, bpeNode{id, n - 1, n + 1})
		}
	}
	if len(s.nodes) == 0 {
		return
	}
	s.nodes[len(s.nodes)-1].next = -1
	for i := range len(s.nodes) - 1 {
		j.step(1)
		m.offer(s, int32(i))
	}
	for len(s.queue) > 0 {
		c := s.pop()
		j.step(1)
		left := &s.nodes[c.left]
		if left.symbol != c.pair.left || left.next < 0 || s.nodes[left.next].symbol != c.pair.right {
			continue // one of the two has changed since
		}
		gone := &s.nodes[left.next]
		left.symbol, left.next = c.made, gone.next
		gone.symbol = None
		if left.next >= 0 {
			s.nodes[left.next].prev = c.left
		}
		if left.prev >= 0 {
			m.offer(s, left.prev)
		}
		m.offer(s, c.left)
	}
	for i := int32(0); i >= 0; i = s.nodes[i].next {
		j.ids = m.emit(j.ids, s.nodes[i].symbol)
	}
}

// offer queues the merge of the node left with its right neighbour, if there is one.
func (m *bpe) offer(s *bpeScratch, left int32) {
	next := s.nodes[left].next
	if next < 0 {
		return
	}
	p := pair{s.nodes[left].symbol, s.nodes[next].symbol}
	if found, ok := m.merges[p]; ok {
		s.push(bpeCandidate{found, left, p})
	}
}

// emit appends symbol, taken apart into tokens where it is none itself.
func (m *bpe) emit(ids []int32, symbol int32) []int32 {
	if symbol < m.size {
		return append(ids, symbol)
	}
	p := m.halves[symbol-m.size]
	return m.emit(m.emit(ids, p.left), p.right)
}

func (s *bpeScratch) push(c bpeCandidate) {
	q := append(s.queue, c)
	i := len(q) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !q[i].before(q[up]) {
			break
		}
		q[i], q[up] = q[up], q[i]
		i = up
	}
	s.queue = q
}

func (s *bpeScratch) pop() bpeCandidate {
	q := s.queue
	top, end := q[0], len(q)-1
	q[0] = q[end]
	q = q[:end]
	for i := 0; ; {
		kid := 2*i + 1
		if kid >= end {
			break
		}
		if kid+1 < end && q[kid+1].before(q[kid]) {
			kid++
		}
		if !q[kid].before(q[i]) {
			break
		}
		q[i], q[kid] = q[kid], q[i]
		i = kid
	}
	s.queue = q
	return top
}
