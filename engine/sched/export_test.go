package sched

// InFlight returns the number of batches whose results are not known.
func (s *Scheduler) InFlight() int { return s.flying }

// Busy reports whether any sequence is unfinished.
func (s *Scheduler) Busy() bool { return len(s.byID) > 0 }
