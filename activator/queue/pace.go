package queue

import "time"

// Served records that a request finished, to measure the pace.
func (q *waitQueue) Served(now time.Time) { q.pace.note(now, q.Len() > 0) }

// RetryAfter estimates when a request that is refused now would find a place: the expected wake plus the time for the
// waiting entries, at the measured pace. It is between 1 s and 5 min.
func (q *waitQueue) RetryAfter(expected time.Duration) time.Duration {
	d := expected + time.Duration(q.Len())*q.pace.interval
	return min(max(d, time.Second), 5*time.Minute)
}

// pace is the measured time between finished requests while others wait.
type pace struct {
	last     time.Time // zero: none waited when the last request was finished
	interval time.Duration
}

func (p *pace) note(now time.Time, waiting bool) {
	gap, known := now.Sub(p.last), !p.last.IsZero()
	p.last = now
	if !waiting {
		p.last = time.Time{}
	}
	switch {
	case !known:
	case p.interval == 0:
		p.interval = gap
	default: // exponential mean of about the last eight
		p.interval += (gap - p.interval) / 8
	}
}
