package sched

type flight struct {
	step    uint64
	entries []entry // of the items with Sample, in order
}

type entry struct {
	q     *sequence
	pos   int
	draft int
	life  uint32 // a preemption changes it
}

// Update applies the results of the oldest batch in flight, in order. Sequences that are done, have Max tokens, or have
// no result are dropped. It reports whether step was the oldest; else it changes nothing.
func (s *Scheduler) Update(step uint64, results []Result) bool {
	if s.flying == 0 || s.flights[s.first].step != step {
		return false
	}
	f := &s.flights[s.first]
	s.first = (s.first + 1) % s.cfg.Depth
	s.flying--
	next := 0
	for i := range f.entries {
		e := &f.entries[i]
		q := e.q
		e.q = nil
		var r *Result
		if next < len(results) && results[next].ID == q.id {
			r = &results[next]
			next++
		}
		if q.state == gone {
			continue
		}
		if r == nil {
			for j := range results {
				if results[j].ID == q.id {
					r, next = &results[j], j+1
				}
			}
		}
		s.settle(q, e, r)
	}
	return true
}

// settle applies a result; nil: missing.
func (s *Scheduler) settle(q *sequence, e *entry, r *Result) {
	if r == nil || q.pool || len(r.Tokens) == 0 {
		s.drop(q)
		return
	}
	q.flying--
	at := len(q.tokens)
	if e.draft == 0 {
		q.tokens = append(q.tokens, r.Tokens[0])
	} else {
		tokens := r.Tokens[:min(len(r.Tokens), e.draft+1)]
		q.tokens = append(q.tokens, tokens...)
		right := len(tokens) - 1
		s.counts.Drafted += e.draft
		s.counts.Accepted += right
		q.draft.learn(e.draft, right)
		if e.life == q.life {
			q.computed = e.pos + 1 + right // rejected drafts are computed again
			q.guessing = false
		}
	}
	s.tokens += len(q.tokens) - at
	if r.Done || len(q.tokens) > q.limit {
		s.drop(q)
		return
	}
	if q.draft != nil {
		q.draft.index(q.tokens, at)
	}
}

func (s *Scheduler) drop(q *sequence) {
	switch q.state {
	case running:
		s.release(q)
		s.gone++
	case queued:
		s.queue.remove(q)
	}
	if q.group != nil {
		s.leave(q)
	}
	s.end(q)
	q.state = gone
	delete(s.byID, q.id)
	s.tokens -= len(q.tokens)
	s.queue.part(q)
}

// end makes the worker forget a sequence.
func (s *Scheduler) end(q *sequence) {
	if q.seen {
		s.ends = append(s.ends, q.id)
	}
	q.seen = false
}
