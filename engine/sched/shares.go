package sched

// shareAfter is in steps: most answers end before.
const shareAfter = 16

// shareSeats preempts if no seat is free and the next sequence has waited for shareAfter. It takes the last one of a
// tenant with more than its share of seats, for one of a tenant with less. A share is the seats divided by the tenants
// with sequences, rounded up. None is preempted for a worse priority.
func (s *Scheduler) shareSeats() {
	q, live := s.queue.peek(s.room), s.queue.live
	if q == nil || q.flying > 0 || q.rank == promoted || s.step-q.since < shareAfter || len(s.running) < s.cfg.Seats {
		return
	}
	share := (s.cfg.Seats + live - 1) / live
	for i := len(s.running) - 1; i >= 0 && q.flow.seats < share && s.running[i].rank >= q.rank; i-- {
		if s.running[i].flow.seats > share {
			s.preempt(i)
			return
		}
	}
}

// room returns how many tokens of this step q's prompt may have: all, or its tenant's rest of a half while another
// tenant of its priority has sequences. A prompt that ends may have more.
func (s *Scheduler) room(q *sequence) int {
	f := q.flow
	if f.class.live < 2 {
		return s.cfg.Budget
	}
	if f.step != s.step {
		f.step, f.got = s.step, 0
	}
	return (s.cfg.Budget+1)/2 - f.got
}
