package constrain

import (
	"bytes"
	"cmp"
	"slices"
	"unicode/utf8"
)

// Tokens is the part of a tokenizer that a vocabulary needs.
type Tokens interface {
	Size() int
	// Piece returns the bytes that a token adds to the text; none for control tokens.
	Piece(id int32) []byte
	// IsEnd reports whether a text ends at a token.
	IsEnd(id int32) bool
}

// controlMark begins the bytes of a control token in the trie. No text has this byte, and tokens with it are never
// allowed.
const controlMark = 0xFF

// Vocabulary is the tokens of one model as a trie of bytes. It is immutable.
type Vocabulary struct {
	size   int
	ends   []int32
	isEnd  map[int32]bool
	text   []byte
	offset []int32 // by token; one more at the end
	trie   []branch
	// plain[n] is the set of tokens of at most n plain characters, up to maxPlain; rest is the trie of the others.
	// Both are empty if a byte of plain characters has no token.
	plain  [][]uint64
	rest   []branch
	more   map[int32][]int32 // with the same bytes as the first
	single [256]bool
	deep   int
}

// branch is a node of the trie. Nodes are in depth-first order; the root is not stored.
type branch struct {
	token int32 // -1: none
	end   int32 // the first node that is not a descendant
	depth uint16
	b     byte
	many  bool
}

// NewVocabulary makes the trie: about 100 ms for 150,000 tokens.
func NewVocabulary(t Tokens) *Vocabulary {
	n := t.Size()
	v := &Vocabulary{size: n, isEnd: map[int32]bool{}, more: map[int32][]int32{}, offset: make([]int32, n+1)}
	var order []int32
	for id := range int32(n) {
		v.offset[id] = int32(len(v.text))
		switch piece := t.Piece(id); {
		case t.IsEnd(id):
			v.ends = append(v.ends, id)
			v.isEnd[id] = true
		case len(piece) == 0:
			v.text = append(v.text, controlBytes(id)...)
			order = append(order, id)
		case bytes.IndexByte(piece, controlMark) < 0:
			v.text = append(v.text, piece...)
			order = append(order, id)
			if len(piece) == 1 {
				v.single[piece[0]] = true
			}
		}
	}
	v.offset[n] = int32(len(v.text))
	slices.SortFunc(order, func(a, b int32) int {
		if c := bytes.Compare(v.piece(a), v.piece(b)); c != 0 {
			return c
		}
		return cmp.Compare(a, b)
	})
	v.trie = v.build(order)
	v.split(order)
	return v
}

const maxPlain = 32

func (v *Vocabulary) split(order []int32) {
	counts := make([]int, v.size)
	var rest []int32
	for _, id := range order {
		p := v.piece(id)
		if n := utf8.RuneCount(p); n <= maxPlain && utf8.Valid(p) && !bytes.ContainsFunc(p, special.has) {
			counts[id] = n
		} else {
			rest = append(rest, id)
		}
	}
	for b := range 256 {
		if beginsPlain(byte(b)) && b != 0xC0 && b != 0xC1 && b < 0xF5 && !v.single[b] {
			return
		}
	}
	v.rest = v.build(rest)
	v.plain = make([][]uint64, maxPlain+1)
	for most := range v.plain {
		v.plain[most] = make([]uint64, Words(v.size))
		for id, n := range counts {
			if 0 < n && n <= most {
				v.plain[most][id>>6] |= 1 << (id & 63)
			}
		}
	}
}

func controlBytes(id int32) []byte {
	return []byte{controlMark, byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)}
}

// piece is empty for an end token.
func (v *Vocabulary) piece(id int32) []byte { return v.text[v.offset[id]:v.offset[id+1]] }

func (v *Vocabulary) build(order []int32) (trie []branch) {
	var open []int32
	var last []byte
	for _, id := range order {
		p := v.piece(id)
		same := 0
		for same < len(p) && same < len(last) && p[same] == last[same] {
			same++
		}
		if same == len(p) && same == len(last) && same > 0 {
			n := &trie[open[same-1]]
			n.many = true
			if !slices.Contains(v.more[n.token], id) {
				v.more[n.token] = append(v.more[n.token], id)
			}
			continue
		}
		for len(open) > same {
			trie[open[len(open)-1]].end = int32(len(trie))
			open = open[:len(open)-1]
		}
		for d := same; d < len(p); d++ {
			open = append(open, int32(len(trie)))
			trie = append(trie, branch{token: -1, depth: uint16(d), b: p[d]})
		}
		trie[len(trie)-1].token = id
		v.deep = max(v.deep, len(p))
		last = p
	}
	for _, i := range open {
		trie[i].end = int32(len(trie))
	}
	return trie
}
