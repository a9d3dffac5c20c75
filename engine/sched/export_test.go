package sched

// InFlight returns the number of batches whose results are not known.
func (s *Scheduler) InFlight() int { return s.flying }
