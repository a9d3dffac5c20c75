package sched

import "github.com/rouse-dev/rouse/engine/block"

// admit gives a sequence a seat and blocks for all of its tokens. Otherwise it stays in the queue, or is parked until a
// sibling has computed its prompt.
func (s *Scheduler) admit(q *sequence) bool {
	if q.flying > 0 {
		return false // its token in flight is known after the next Update
	}
	donor := s.donor(q)
	if g := q.group; g != nil && donor == nil && g.leader != nil && g.leader != q {
		s.park(q)
		return false
	}
	if s.need(q) > s.pool.Available() {
		return false
	}
	first := q.high == 0
	q.prepare(s.cfg, s.pool.Size())
	switch {
	case donor != nil:
		s.inherit(q, donor)
	default:
		if q.group != nil {
			q.group.leader = q
		}
		if s.asksCache(q) {
			s.recall(q, first)
		}
	}
	if !s.grow(q, len(q.tokens)-q.computed) {
		panic("sched: blocks that were counted are not there")
	}
	s.queue.remove(q)
	s.seat(q)
	return true
}

func (s *Scheduler) donor(q *sequence) *sequence {
	if q.group == nil {
		return nil
	}
	return q.group.donor(s.step)
}

func (s *Scheduler) asksCache(q *sequence) bool {
	return s.cfg.Prefix && !q.score && !q.pool
}

// usable returns the names of full blocks that the cache may have. The last token is always computed, for the next one.
func (s *Scheduler) usable(q *sequence) []block.Hash {
	q.hashes = block.Chain(q.hashes, q.req.Root, q.tokens, s.pool.Size())
	return q.hashes[:(len(q.tokens)-1)/s.pool.Size()]
}

func (s *Scheduler) need(q *sequence) int {
	need := s.pool.Need(len(q.tokens))
	if s.donor(q) != nil {
		return need - (len(q.req.Prompt)-1)/s.pool.Size()
	}
	if need > s.pool.Available() && s.asksCache(q) {
		found, free := s.pool.Match(s.usable(q))
		need -= found - free
	}
	return need
}

// inherit starts q at the prompt's last token, with a sibling's blocks. That token's block is copied: q writes into it.
func (s *Scheduler) inherit(q, donor *sequence) {
	have := len(q.req.Prompt) - 1
	for _, b := range donor.blocks[:s.pool.Need(have)] {
		s.pool.Share(b)
		q.blocks = append(q.blocks, b)
	}
	q.computed, q.registered = have, have/s.pool.Size()
	q.high = max(q.high, have)
	if have%s.pool.Size() == 0 {
		return
	}
	from, to, copied, ok := s.pool.Writable(q.blocks)
	if !ok || !copied {
		panic("sched: a sibling's block is not copied")
	}
	s.batch.Copies = append(s.batch.Copies, Copy{From: from, To: to})
}

func (s *Scheduler) recall(q *sequence, first bool) {
	for _, h := range s.usable(q) {
		b, ok := s.pool.Take(h)
		if !ok {
			break
		}
		q.blocks = append(q.blocks, b)
	}
	q.registered = len(q.blocks)
	q.computed = len(q.blocks) * s.pool.Size()
	if first {
		s.counts.PrefixAsked += len(q.tokens)
		s.counts.PrefixFound += q.computed
	}
	q.high = max(q.high, q.computed)
}
