package sched

import "fmt"

// Check verifies the books, the pool's included. It is slow, for tests.
func (s *Scheduler) Check() error {
	if err := s.pool.Check(); err != nil {
		return err
	}
	holders := make(map[int32]int)
	waiting, onSeats, missing, tokens := 0, 0, 0, 0
	for id, q := range s.byID {
		if err := s.checkSequence(id, q); err != nil {
			return fmt.Errorf("sequence %d: %w", id, err)
		}
		for _, b := range q.blocks {
			holders[b]++
		}
		if q.state != running {
			tokens += len(q.tokens)
		}
		switch q.state {
		case running:
			onSeats++
		case parked:
			missing++
		default:
			waiting++
		}
	}
	if onSeats != len(s.running)-s.gone || waiting != s.queue.len || missing != s.parked {
		return fmt.Errorf("%d sequences run, %d wait, %d are parked; the books say %d, %d, %d",
			onSeats, waiting, missing, len(s.running)-s.gone, s.queue.len, s.parked)
	}
	if t := s.Stats(); t.TokensWaiting != tokens || t.TokensUsed < 0 || t.TokensUsed > s.pool.Count()*s.pool.Size() {
		return fmt.Errorf("%d tokens wait, and %d are in use of %d; those of waiting sequences are %d", t.TokensWaiting, t.TokensUsed, s.pool.Count()*s.pool.Size(), tokens)
	}
	for b := range int32(s.pool.Count()) {
		if got, want := s.pool.Holders(b), holders[b]; got != want {
			return fmt.Errorf("block %d has %d holders, sequences that have it: %d", b, got, want)
		}
	}
	for i, q := range s.running {
		if i > 0 && q.before(s.running[i-1]) {
			return fmt.Errorf("running sequence %d is out of order", q.id)
		}
	}
	return s.checkQueue()
}

func (s *Scheduler) checkSequence(id ID, q *sequence) error {
	size := s.pool.Size()
	switch {
	case q.id != id || q.state == gone:
		return fmt.Errorf("it is %d, state %d", q.id, q.state)
	case q.state != running && (len(q.blocks) > 0 || q.computed > 0):
		return fmt.Errorf("it waits with %d blocks and %d computed tokens", len(q.blocks), q.computed)
	case q.computed > len(q.blocks)*size || q.computed > q.limit:
		return fmt.Errorf("%d tokens are computed, in %d blocks, of at most %d", q.computed, len(q.blocks), q.limit)
	case q.registered > min(q.computed, len(q.tokens))/size:
		return fmt.Errorf("%d blocks are registered, %d tokens computed and %d known", q.registered, q.computed, len(q.tokens))
	case q.flying < 0 || q.flying > s.flying:
		return fmt.Errorf("%d of its tokens are in flight in %d batches", q.flying, s.flying)
	case len(q.tokens) > q.limit && !q.pool:
		return fmt.Errorf("it has %d tokens and should be over", len(q.tokens))
	}
	if g := q.group; q.state == parked && (g == nil || g.leader == nil || g.leader.state == gone) {
		return fmt.Errorf("it is parked without a leader")
	}
	return nil
}

func (s *Scheduler) checkQueue() error {
	n := 0
	for i, c := range s.queue.classes {
		if i > 0 && c.rank <= s.queue.classes[i-1].rank {
			return fmt.Errorf("class %d is out of order", c.rank)
		}
		for _, f := range c.waiting {
			var last *sequence
			for q := f.head; q != nil; q = q.next {
				if q.state != queued || q.prev != last || last != nil && last.order >= q.order || s.queue.line(q) != f {
					return fmt.Errorf("sequence %d is badly queued", q.id)
				}
				last = q
				n++
			}
			if last == nil || last != f.tail {
				return fmt.Errorf("the line of tenant %q is empty, or ends badly", f.key.tenant)
			}
		}
	}
	if n != s.queue.len {
		return fmt.Errorf("%d sequences are queued, the books say %d", n, s.queue.len)
	}
	live := 0
	for _, f := range s.queue.flows {
		if f.live > 0 {
			live++
		}
	}
	if live != s.queue.live {
		return fmt.Errorf("%d tenants have sequences, the books say %d", live, s.queue.live)
	}
	return nil
}
