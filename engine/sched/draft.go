package sched

import "math/bits"

const ngram = 3

// draft guesses the tokens that followed the last time that the last [ngram] tokens occurred (prompt lookup). A draft
// that is mostly wrong rests, each time twice as long.
type draft struct {
	table  []int32 // by an n-gram's hash: the position after its last occurrence
	match  int     // where it may have ended before; 0: nowhere
	most   int     // tokens of a guess
	reach  int     // tokens of the next guess
	credit int     // wrong guesses until it rests
	rest   int     // tokens until it tries again
	nap    int     // the next rest
}

const (
	credit  = 3
	nap     = 16
	longest = 512
)

func newDraft(most, tokens int) *draft {
	return &draft{table: make([]int32, 1<<bits.Len(uint(max(tokens, 64)-1))), most: most, reach: most, credit: credit, nap: nap}
}

func (d *draft) index(tokens []int32, from int) {
	for end := max(from+1, ngram); end <= len(tokens); end++ {
		h := uint32(0)
		for _, t := range tokens[end-ngram : end] {
			h = (h + uint32(t)) * 0x9e3779b1
			h ^= h >> 15
		}
		slot := &d.table[int(h)&(len(d.table)-1)]
		d.match, *slot = int(*slot), int32(end)
	}
	if d.rest > 0 {
		if d.rest -= len(tokens) - from; d.rest <= 0 {
			d.rest, d.credit = 0, 1
		}
	}
}

func (d *draft) ready(tokens []int32) bool {
	if d.match == 0 || d.credit == 0 {
		return false
	}
	for i := 1; i <= ngram; i++ {
		if tokens[d.match-i] != tokens[len(tokens)-i] {
			return false
		}
	}
	return true
}

func (d *draft) learn(guessed, right int) {
	if right == guessed {
		d.reach = min(d.most, 2*d.reach)
	} else {
		d.reach = right + 1
	}
	if right > 0 {
		d.credit, d.nap = min(credit, d.credit+1), nap
		return
	}
	if d.credit--; d.credit == 0 {
		d.rest, d.nap = d.nap, min(longest, 2*d.nap)
	}
}

// guess returns q's last token and at most n guesses, as many as fit without a preemption.
func (s *Scheduler) guess(q *sequence, n int) (tokens []int32, guesses int) {
	d := q.draft
	n = min(n, d.reach)
	if q.computed+1+n > q.room {
		s.grow(q, min(1+n, (len(q.blocks)+s.pool.Available())*s.pool.Size()-q.computed))
		n = min(n, q.room-q.computed-1)
	}
	at := len(s.drafts)
	s.drafts = append(s.drafts, q.tokens[len(q.tokens)-1])
	for i := range n {
		t := int32(0)
		if from := d.match + i; from < len(q.tokens) {
			t = q.tokens[from]
		} else { // a repetition with a short period continues itself
			t = s.drafts[at+1+from-len(q.tokens)]
		}
		s.drafts = append(s.drafts, t)
	}
	return s.drafts[at:], n
}
