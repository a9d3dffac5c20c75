package sched

import (
	"math"
	"slices"
	"sort"

	"github.com/rouse-dev/rouse/engine/block"
)

// Schedule decides the next step, or returns nil. Batches must be computed in the order of the calls.
func (s *Scheduler) Schedule() *Batch {
	if s.flying == s.cfg.Depth {
		return nil
	}
	s.tidy()
	s.step++
	s.batch.Items, s.batch.Copies, s.batch.Tokens = s.batch.Items[:0], s.batch.Copies[:0], 0
	s.chunks, s.full, s.done, s.drafts = s.chunks[:0], s.full[:0], s.done[:0], s.drafts[:0]
	f := &s.flights[(s.first+s.flying)%s.cfg.Depth]
	f.entries = f.entries[:0]

	s.age()
	s.makeRoom() // 1
	s.shareSeats()
	preempted := s.decode(f) // 2
	s.fill(f, !preempted)    // 3
	if len(s.batch.Items) == 0 {
		s.step--
		return nil
	}
	s.settleBatch()
	f.step = s.step
	s.flying++
	s.batch.Step = s.step
	s.batch.Ends, s.ends = s.ends, s.batch.Ends[:0]
	return &s.batch
}

// settleBatch does what other sequences of the batch must not see.
func (s *Scheduler) settleBatch() {
	if s.cfg.Prefix {
		for _, q := range s.full {
			s.register(q)
		}
	}
	for _, g := range s.done {
		if g.leader != nil {
			s.unpark(g)
		}
	}
}

func (s *Scheduler) age() {
	if s.queue.len == 0 {
		s.waited = 0
		return
	}
	if s.waited++; s.waited < s.aging {
		return
	}
	s.waited = 0
	if q := s.queue.oldest(); q.rank != promoted && q != s.queue.peek(s.room) {
		s.counts.Promoted++
		s.queue.remove(q)
		q.rank = promoted
		s.queue.push(q)
	}
}

// makeRoom preempts for a better priority that lacks room, if it gets enough.
func (s *Scheduler) makeRoom() {
	for len(s.running) > 0 {
		q := s.queue.peek(s.room)
		last := s.running[len(s.running)-1]
		if q == nil || q.flying > 0 || q.rank == promoted || last.rank <= q.rank {
			return
		}
		need := s.need(q) - s.pool.Available()
		if need <= 0 && len(s.running) < s.cfg.Seats {
			return
		}
		for i := len(s.running) - 1; i >= 0 && s.running[i].rank > q.rank; i-- {
			for _, b := range s.running[i].blocks {
				if s.pool.Holders(b) == 1 {
					need--
				}
			}
		}
		if need > 0 {
			return
		}
		s.preempt(len(s.running) - 1)
	}
}

// decode is for sequences with one token left.
func (s *Scheduler) decode(f *flight) (preempted bool) {
	guess := s.cfg.Draft > 0 && len(s.running) <= s.draftSeats
	for i := 0; i < len(s.running); i++ { // the list may shrink from its end
		q := s.running[i]
		if left := q.left(); left != 1 {
			if left > 1 {
				s.chunks = append(s.chunks, q)
			}
			continue
		}
		if q.flying > 0 && (q.guessing || q.lockstep) {
			continue
		}
		guesses := 0
		if guess && q.draft != nil && q.draft.ready(q.tokens) {
			if q.flying > 0 {
				continue // a draft is worth the wait for the token in flight
			}
			// All later sequences keep a token of the budget.
			guesses = min(q.limit-q.computed-1, s.cfg.Budget-s.batch.Tokens-(len(s.running)-i))
		}
		for q.computed >= q.room && !s.grow(q, 1) {
			preempted = true
			if s.preempt(len(s.running)-1) == q {
				return
			}
		}
		s.put(f, q, 1, guesses)
	}
	return preempted
}

// grow changes nothing if too few blocks are free.
func (s *Scheduler) grow(q *sequence, n int) (ok bool) {
	q.blocks, ok = s.pool.AllocN(q.blocks, s.pool.Need(q.computed+n)-len(q.blocks))
	q.room = len(q.blocks) * s.pool.Size()
	return ok
}

// fill is for prompts. Once a tenant has its part, no worse priority gets any.
func (s *Scheduler) fill(f *flight, admit bool) {
	worst := math.MaxInt
	for s.batch.Tokens < s.cfg.Budget {
		chunk := -1
		for i, q := range s.chunks {
			if (chunk < 0 || sooner(q, s.chunks[chunk])) && s.room(q) > 0 {
				chunk = i
			}
		}
		var q *sequence
		if admit && len(s.running) < s.cfg.Seats {
			q = s.queue.peek(s.room)
		}
		next := q
		if chunk >= 0 && (q == nil || sooner(s.chunks[chunk], q)) {
			next = s.chunks[chunk]
		}
		if next == nil || next.rank > worst {
			return
		}
		if s.turns >= s.patience && (q != nil || s.queue.len == 0) {
			s.turns = 0
			if s.promote(q, next) {
				continue
			}
		}
		if next != q {
			q = next
			s.chunks = slices.Delete(s.chunks, chunk, chunk+1)
		} else if !s.admit(q) {
			admit = q.state == parked // then it is the next one's turn
			continue
		}
		s.turns++
		if q.rank != promoted {
			q.flow.class.clock = max(q.flow.class.clock, q.flow.time)
		}
		room, n := s.room(q), min(q.left(), s.cfg.Budget-s.batch.Tokens)
		if n >= room {
			worst = q.req.Priority
			if n < q.left() {
				n = room
			}
		}
		n, spanned := q.whole(n)
		q.flow.got += n
		s.put(f, q, n, 0)
		if spanned {
			return
		}
	}
}

// promote reports false if the sequence that has waited longest is next anyway. next has the turn; q is the first
// of those that wait, nil if none may be admitted.
func (s *Scheduler) promote(q, next *sequence) bool {
	oldest := q
	if q != nil {
		oldest = s.queue.oldest()
	}
	for _, o := range s.chunks {
		if oldest == nil || o.order < oldest.order {
			oldest = o
		}
	}
	if q = oldest; q == next || q.rank == promoted {
		return false
	}
	s.counts.Promoted++
	if q.state == running {
		i := slices.Index(s.running, q)
		s.running = slices.Delete(s.running, i, i+1)
		q.rank = promoted
		q.flow.seats--
		s.seat(q)
		return true
	}
	s.queue.remove(q)
	q.rank = promoted
	s.queue.push(q)
	return true
}

func (s *Scheduler) seat(q *sequence) {
	q.state = running
	q.flow.seats++
	i := sort.Search(len(s.running), func(i int) bool { return q.before(s.running[i]) })
	s.running = slices.Insert(s.running, i, q)
}

func (s *Scheduler) put(f *flight, q *sequence, n, guesses int) {
	pos, total := q.computed, q.total()
	it := s.slot()
	it.ID, it.Pos = q.id, pos
	switch {
	case guesses > 0:
		it.Tokens, it.Draft = s.guess(q, guesses)
	case pos+n <= len(q.tokens):
		it.Tokens = q.tokens[pos : pos+n]
	default:
		it.Tokens = unknown[:] // n is 1: with one token in flight no other is left
	}
	it.Blocks, it.New = q.blocks, len(q.blocks)-q.sent
	if q.begin {
		it.Begin, it.Known = true, q.tokens
		q.begin, q.seen = false, true
	}
	it.Pool = q.pool
	it.Score = q.score && pos < len(q.req.Prompt)-1
	q.sent = len(q.blocks)
	q.computed += n + it.Draft
	q.step, q.from = s.step, pos
	if q.computed >= q.fills {
		s.full = append(s.full, q)
	}
	if q.computed > q.high {
		q.flow.time += int64(q.computed - q.high)
		q.high = q.computed
	}
	s.batch.Tokens += n + it.Draft
	if pos+n == total {
		it.Sample = true
		f.entries = append(f.entries, entry{q: q, pos: pos, draft: it.Draft, life: q.life})
		if !q.pool {
			q.flying++
		}
		q.guessing = it.Draft > 0
	}
	if q.group != nil && q.group.leader == q && q.computed >= len(q.req.Prompt)-1 {
		s.done = append(s.done, q.group)
	}
}

// slot clears an item in place: a copy is half the cost of a step.
func (s *Scheduler) slot() *Item {
	n := len(s.batch.Items)
	if n == cap(s.batch.Items) {
		s.batch.Items = append(s.batch.Items, Item{})
	}
	s.batch.Items = s.batch.Items[:n+1]
	it := &s.batch.Items[n]
	it.Draft, it.Known = 0, nil
	it.Begin, it.Sample, it.Score, it.Pool = false, false, false, false
	return it
}

var unknown = [1]int32{Unknown}

// preempt makes the worker forget the sequence: it never knows more than run. The current batch has no item of it.
func (s *Scheduler) preempt(i int) *sequence {
	q := s.running[i]
	s.running = slices.Delete(s.running, i, i+1)
	s.release(q)
	s.end(q)
	q.state, q.since = queued, s.step
	s.queue.push(q)
	s.counts.Preemptions++
	return q
}

func (s *Scheduler) release(q *sequence) {
	if s.cfg.Prefix {
		s.register(q)
	}
	s.pool.Free(q.blocks...)
	q.flow.seats--
	q.blocks = q.blocks[:0]
	q.reset()
}

// register names q's blocks whose tokens are known, and computed or in a batch.
func (s *Scheduler) register(q *sequence) {
	n := min(q.computed, len(q.tokens)) / s.pool.Size()
	if q.registered >= n {
		return
	}
	q.hashes = block.Chain(q.hashes, q.req.Root, q.tokens[:n*s.pool.Size()], s.pool.Size())
	for ; q.registered < n; q.registered++ {
		s.pool.Register(q.blocks[q.registered], q.hashes[q.registered])
	}
	q.fills = (n + 1) * s.pool.Size()
}

func (s *Scheduler) tidy() {
	if s.gone == 0 {
		return
	}
	s.running = slices.DeleteFunc(s.running, func(q *sequence) bool { return q.state == gone })
	s.gone = 0
}
