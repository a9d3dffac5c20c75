package sched

// Span is the positions From ≤ p < To, which see one another: one batch computes what is left of them. It may exceed
// the budget, and has no other span.
type Span struct{ From, To int }

// whole returns how many tokens a batch computes of q's next n: up to the end of the first span that they reach.
func (q *sequence) whole(n int) (tokens int, spanned bool) {
	for _, w := range q.req.Whole {
		if q.computed < w.To && w.From < q.computed+n {
			return w.To - q.computed, true
		}
	}
	return n, false
}
