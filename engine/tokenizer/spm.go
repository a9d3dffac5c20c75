package tokenizer

import (
	"container/heap"
	"fmt"
	"strconv"
	"strings"
)

// spaceMark is how SPM vocabularies write a space: U+2581, lower one eighth block.
const spaceMark = "▁"

// spm merges the pair of neighbours whose union is the token with the highest score, the leftmost of equals.
type spm struct {
	ids     map[string]int32 // tokens that text can become
	scores  []float32
	bytes   [256]int32 // byte tokens <0x00> to <0xFF>
	unknown int32
	longest int  // bytes of the longest token
	prefix  bool // a space goes in front of the text and of what follows a special token
}

// initSPM reads scores and byte tokens of an SPM vocabulary.
func (t *Tokenizer) initSPM(v *Vocab) error {
	if len(v.Scores) != len(v.Tokens) {
		return fmt.Errorf("tokenizer: an SPM vocabulary needs a score for each token: %d scores for %d tokens (tokenizer.ggml.scores)", len(v.Scores), len(v.Tokens))
	}
	m := &spm{ids: make(map[string]int32, len(v.Tokens)), scores: v.Scores, unknown: v.Unknown, prefix: true}
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
		if _, dup := m.ids[text]; !dup && text != "" {
			m.ids[text] = int32(i)
			m.longest = max(m.longest, len(text))
		}
	}
	if err := m.checkBytes(t.types); err != nil {
		return err
	}
	t.merger, t.addBOS, t.spaced = m, true, m.prefix
	return nil
}

// checkBytes finds byte tokens that are not marked as such, and sees to it that any text can be encoded.
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

// parseByteToken reads <0xHH>.
func parseByteToken(text string) (byte, error) {
	if len(text) == 6 && strings.HasPrefix(text, "<0x") && text[5] == '>' {
		if b, err := strconv.ParseUint(text[3:5], 16, 8); err == nil {
			return byte(b), nil
		}
	}
	return 0, fmt.Errorf("%q is not of the form <0xHH>", text)
}

// spmNode is a stretch of the text in a doubly linked list; a node of length 0 was merged into its left neighbour.
type spmNode struct{ start, n, prev, next int }

// spmCandidate is a merge of the node left with its neighbour that made size bytes when it was queued.
type spmCandidate struct {
	score      float32
	left, size int
}

type spmQueue []spmCandidate

func (q spmQueue) Len() int { return len(q) }
func (q spmQueue) Less(i, j int) bool {
	return q[i].score > q[j].score || q[i].score == q[j].score && q[i].left < q[j].left
}
func (q spmQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *spmQueue) Push(x any)   { *q = append(*q, x.(spmCandidate)) }
func (q *spmQueue) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}

func (m *spm) encode(j *job, text string, first bool) {
	if first && m.prefix {
		text = " " + text
	}
	j.piece(len(text)+strings.Count(text, " ")*(len(spaceMark)-1), max(m.longest, 1))
	defer j.release()
	text = strings.ReplaceAll(text, " ", spaceMark)
	nodes := make([]spmNode, 0, len(text))
	for at := 0; at < len(text); {
		_, n := decodeRune(text[at:])
		i := len(nodes)
		nodes = append(nodes, spmNode{at, n, i - 1, i + 1})
		at += n
	}
	nodes[len(nodes)-1].next = -1
	var queue spmQueue
	for i := range len(nodes) - 1 {
		j.step(1)
		if c, ok := m.candidate(text, nodes, i); ok {
			queue = append(queue, c)
		}
	}
	heap.Init(&queue)
	for len(queue) > 0 {
		c := heap.Pop(&queue).(spmCandidate)
		j.step(1)
		left := &nodes[c.left]
		if left.n == 0 || left.next < 0 || left.n+nodes[left.next].n != c.size {
			continue // one of the two has changed since
		}
		gone := &nodes[left.next]
		left.n, left.next = c.size, gone.next
		gone.n = 0
		if left.next >= 0 {
			nodes[left.next].prev = c.left
		}
		if left.prev >= 0 {
			if c, ok := m.candidate(text, nodes, left.prev); ok {
				heap.Push(&queue, c)
			}
		}
		if c, ok := m.candidate(text, nodes, c.left); ok {
			heap.Push(&queue, c)
		}
	}
	for i := 0; i >= 0; i = nodes[i].next {
		j.ids = m.emit(j.ids, text[nodes[i].start:nodes[i].start+nodes[i].n])
	}
}

// candidate is the merge of the node left with its right neighbour, if that makes a token.
func (m *spm) candidate(text string, nodes []spmNode, left int) (spmCandidate, bool) {
	l := nodes[left]
	if l.next < 0 {
		return spmCandidate{}, false
	}
	size := l.n + nodes[l.next].n
	if size > m.longest {
		return spmCandidate{}, false
	}
	id, ok := m.ids[text[l.start:l.start+size]]
	if !ok {
		return spmCandidate{}, false
	}
	return spmCandidate{m.scores[id], left, size}, true
}

// emit appends the token of s, or its bytes where it is none.
func (m *spm) emit(ids []int32, s string) []int32 {
	if id, ok := m.ids[s]; ok {
		return append(ids, id)
	}
	for i := range len(s) {
		ids = append(ids, m.bytes[s[i]])
	}
	return ids
}
