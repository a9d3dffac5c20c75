package autoscaler

import (
	"time"

	"github.com/rouse-dev/rouse/autoscaler/decide"
)

// clock is what the loop reads the time from, once a round. It goes at an even pace, whatever is done to the machine's
// clock: where that was set, or the machine was suspended, the loop moves all times that it has along ([Autoscaler.shift]), so that
// nothing is overdue for it. Its times have no monotonic part: what the loop does depends on what can be written down alone.
type clock struct {
	began time.Time // with its monotonic part
	base  time.Time // what began is called
}

// mostOff is how far the loop's clock and the machine's may be apart: one is trimmed all the time, by its network.
const mostOff = 250 * time.Millisecond

func newClock() clock {
	now := time.Now()
	return clock{began: now, base: now.Round(0)}
}

// read is the time in whole microseconds, never before the true one, and by how much the machine's clock was set
// since it was read last; 0: it was not.
func (c *clock) read() (now time.Time, step time.Duration) {
	t := time.Now()
	now = c.base.Add(t.Sub(c.began))
	if off := t.Round(0).Sub(now); off > mostOff || off < -mostOff {
		step = off.Truncate(time.Microsecond)
		c.base = c.base.Add(step)
		now = now.Add(step)
	}
	return now.Add(time.Microsecond - 1).Truncate(time.Microsecond), step
}

// until is how long it is until t.
func (c *clock) until(t time.Time) time.Duration { return t.Sub(c.base.Add(time.Since(c.began))) }

// shift moves all times that the loop has by d.
func (a *Autoscaler) shift(d time.Duration) {
	for _, f := range a.order {
		shiftFunction(&f.Function, d)
		for who, r := range f.demands {
			r.heard = r.heard.Add(d)
			f.demands[who] = r
		}
		for _, known := range f.Instances {
			i := a.instances[known.Status.Instance]
			move(d, &i.Since, &i.RoseAt, &i.GrantedAt, &i.Settles, &i.RetryAt, &i.heard, &i.Grant.Expires)
		}
	}
	for _, c := range a.calls {
		move(d, &c.Began)
	}
	a.allDirty()
}

func shiftFunction(f *decide.Function, d time.Duration) {
	move(d, &f.WaitingSince, &f.LastRequest, &f.PressedSince, &f.ServedUntil, &f.RetryAt, &f.FailedAt, &f.RefusedAt, &f.OrderedAt, &f.Scale.Until, &f.Past.Arrivals.At)
	for k := range f.NeededAt {
		move(d, &f.NeededAt[k])
	}
}

// move moves times; zero stays zero.
func move(d time.Duration, times ...*time.Time) {
	for _, t := range times {
		if !t.IsZero() {
			*t = t.Add(d)
		}
	}
}
