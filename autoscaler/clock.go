package autoscaler

import (
	"time"
)

// clock is the loop's clock, read once a round. It runs at an even pace although the machine's clock may be set or the machine
// suspended: the loop then shifts all its times ([loop.shift]), so that nothing becomes overdue. Its times have no monotonic
// part, so that a record of them is complete.
type clock struct {
	began time.Time // with its monotonic part
	base  time.Time // the wall-clock time that began stands for
}

// mostOff is the largest tolerated difference between the loop's clock and the machine's, which NTP adjusts all the time.
const mostOff = 250 * time.Millisecond

func newClock() clock {
	now := time.Now()
	return clock{began: now, base: now.Round(0)}
}

// read returns the time, rounded up to whole microseconds, and the amount by which the machine's clock was set since the last read;
// 0: it was not set.
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

// until returns the duration until t.
func (c *clock) until(t time.Time) time.Duration { return t.Sub(c.base.Add(time.Since(c.began))) }

// shift moves all times in the loop's state by d.
func (a *loop) shift(d time.Duration) {
	for _, f := range a.order {
		move(d, &f.WaitingSince, &f.LastRequest, &f.PressedSince, &f.ServedUntil, &f.RetryAt, &f.FailedAt, &f.RefusedAt, &f.OrderedAt, &f.Scale.Until, &f.Past.Arrivals.At)
		for k := range f.NeededAt {
			move(d, &f.NeededAt[k])
		}
		for who, r := range f.demands {
			r.heard = r.heard.Add(d)
			f.demands[who] = r
		}
		for _, known := range f.Instances {
			i := a.instances[known.Status.Instance]
			move(d, &i.Since, &i.RoseAt, &i.GrantedAt, &i.Settles, &i.RetryAt, &i.Heard, &i.Grant.Expires)
		}
	}
	for _, c := range a.calls.under {
		move(d, &c.Began)
	}
}

// move adds d to times, except to zero times.
func move(d time.Duration, times ...*time.Time) {
	for _, t := range times {
		if !t.IsZero() {
			*t = t.Add(d)
		}
	}
}
