package sched

import "cmp"

// InFlight returns the number of batches whose results are not known.
func (s *Scheduler) InFlight() int { return s.flying }

// Busy reports whether any sequence is unfinished.
func (s *Scheduler) Busy() bool { return len(s.byID) > 0 }

// Tune sets what is constant elsewhere; 0: as it is.
func (s *Scheduler) Tune(patience, aging, draftSeats int) {
	s.patience, s.aging, s.draftSeats = cmp.Or(patience, s.patience), cmp.Or(aging, s.aging), cmp.Or(draftSeats, s.draftSeats)
}
