package supervise

import (
	"cmp"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// unknownWait is the Retry-After for a start that was never measured.
const unknownWait = 10 * time.Second

// expected returns when the gate will be open, estimated from past starts and wakes:
//
//  1. starting: the time of the last start, or wake, counted from the beginning of this one;
//  2. unhealthy: the time of a start, from the next attempt; without a planned one, from
//     the moment that a caller asks for it;
//  3. asleep: the time of a wake;
//  4. draining towards a sleep: the time of the sleep and a wake; towards the end: never.
func (m *machine) expected(state api.State) reopening {
	load, wake := m.took.load, m.took.toWake()
	switch state {
	case api.Starting: // 1.
		took := load
		if m.phase == waking || m.proc.stopped {
			took = wake
		}
		if took == 0 {
			return reopening{after: unknownWait}
		}
		return reopening{at: m.coming.since, after: took}
	case api.Unhealthy: // 2.
		back := reopening{after: cmp.Or(load, unknownWait)}
		if !m.restarts.gaveUp {
			back.at = m.restarts.retryAt
		}
		return back
	case api.Asleep: // 3.
		return reopening{after: cmp.Or(wake, unknownWait)}
	case api.Draining: // 4.
		if m.leaving {
			return reopening{after: time.Second} // another worker takes over
		}
		if m.want.state == api.Asleep {
			return reopening{after: m.took.sleep + cmp.Or(wake, unknownWait)}
		}
	}
	return reopening{}
}

// expectedFetching returns when the gate will be open if the model continues to arrive at its present rate.
func (m *machine) expectedFetching(share float64, now time.Time) reopening {
	rest := unknownWait
	if share > 0 {
		rest = time.Duration(float64(now.Sub(m.coming.since)) * (1 - share) / share)
	}
	return reopening{at: now, after: rest + m.took.load}
}
