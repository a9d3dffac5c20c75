package sched

// Span is the positions From ≤ p < To. One batch computes what is not computed of them, since they see one another. It may
// exceed the budget for it, and has no other span: their work is far larger than their number.
type Span struct{ From, To int }

// whole returns how many of q's next n tokens, or more, a batch computes: up to the end of the first span, if they reach one.
func (q *sequence) whole(n int) (tokens int, spanned bool) {
	for _, w := range q.req.Whole {
		if q.computed < w.To && w.From < q.computed+n {
			return w.To - q.computed, true
		}
	}
	return n, false
}
