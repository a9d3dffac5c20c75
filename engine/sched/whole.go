package sched

// Span is the positions From ≤ p < To, which see one another: one batch computes what is left of them, maybe beyond the
// budget, and no other span.
type Span struct{ From, To int }

// whole extends q's next n tokens to the end of the first span that they reach.
func (q *sequence) whole(n int) (tokens int, spanned bool) {
	for _, w := range q.req.Whole {
		if q.computed < w.To && w.From < q.computed+n {
			return w.To - q.computed, true
		}
	}
	return n, false
}
