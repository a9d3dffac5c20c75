package supervise

import (
	"time"

	"github.com/rouse-dev/rouse/api"
)

// unknownWait is what a client is told to wait for a start that was never measured.
const unknownWait = 10 * time.Second

// expected is when the gate will be open, as far as past starts and wakes say:
//
//  1. starting: what the last start, or wake, took, from the beginning of this one;
//  2. unhealthy: a start from the next try on; where no try is set, a start from
//     the moment that somebody asks for it;
//  3. asleep: a wake;
//  4. draining towards a sleep: the sleep and a wake; towards the end: never.
func (s *Supervisor) expected(state api.State) reopening {
	load, wake := s.took.load, s.took.toWake()
	switch state {
	case api.Starting: // 1.
		took := load
		if s.phase == waking || s.proc.stopped {
			took = wake
		}
		if took == 0 {
			return reopening{after: unknownWait}
		}
		return reopening{at: s.coming.since, after: took}
	case api.Unhealthy: // 2.
		back := reopening{after: orUnknown(load)}
		if !s.restarts.gaveUp {
			back.at = s.restarts.retryAt
		}
		return back
	case api.Asleep: // 3.
		return reopening{after: orUnknown(wake)}
	case api.Draining: // 4.
		if s.leaving {
			return reopening{after: time.Second} // somebody else goes on
		}
		if s.want.state == api.Asleep {
			return reopening{after: s.took.sleep + orUnknown(wake)}
		}
	}
	return reopening{}
}

func orUnknown(d time.Duration) time.Duration {
	if d == 0 {
		return unknownWait
	}
	return d
}

// expectedFetching is when the gate will be open if the model goes on to come as
// fast as its first share did.
func (s *Supervisor) expectedFetching(share float64, now time.Time) reopening {
	rest := unknownWait
	if share > 0 {
		rest = time.Duration(float64(now.Sub(s.coming.since)) * (1 - share) / share)
	}
	return reopening{at: now, after: rest + s.took.load}
}
