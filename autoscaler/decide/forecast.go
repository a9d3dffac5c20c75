package decide

import (
	"fmt"
	"time"
)

// Arrived learns that a request came at t, where none waits or runs: the owner of a
// function calls it before it notes the request.
func (f *Function) Arrived(t time.Time) {
	idle := f.idleSince()
	if !idle.IsZero() {
		f.Past = f.Past.Arrived(t.Sub(idle), t)
	}
	f.visited(t, t.Sub(idle))
}

// idleSince is when f last had anything to do, zero if it never had.
func (f *Function) idleSince() time.Time {
	if len(f.NeededAt) > 0 {
		return later(f.LastRequest, f.NeededAt[0])
	}
	return f.LastRequest
}

// wanted is the expected time in seconds until an instance is wanted again.
type wanted struct {
	seconds float64
	// rate bounds by what part of itself the regret over it changes in a second.
	rate float64
}

// untilWanted is when i is expected to be wanted again: what the
// function's arrivals say of it, where it is idle and they say anything, else as
// long as i has been idle, which is the best guess without any knowledge.
func (p *plan) untilWanted(i *Instance) wanted {
	if f := i.f; !f.busy() && f.live() <= 1 {
		if w, known := f.window(p.now); known {
			until := max(0.1, w.From.Sub(p.now).Seconds())
			if !p.now.Before(w.From) {
				p.holdsUntil(w.Until.Add(1))
				return wanted{seconds: until}
			}
			p.holdsUntil(p.now.Add(max(1, time.Duration(until/2*float64(time.Second)))))
			return wanted{until, 4 / until}
		}
		if idle := f.idleSince(); !idle.IsZero() {
			since := p.now.Sub(idle)
			if until, known := f.Past.Arrivals.Forecast(since); known {
				// For as long as no more than half of it can have gone, a regret's slope is at most four times as steep.
				slope, lasts := f.Past.Arrivals.Slope(since)
				p.holdsUntil(p.now.Add(max(1, min(lasts, time.Duration(float64(until)/(2*slope))))))
				return wanted{max(0.1, until.Seconds()), 4 * slope / max(0.1, until.Seconds())}
			}
		}
	}
	used := p.usedUntil(i, 1)
	if i.phase == phaseAwake && i.f.desired >= 1 { // it is wanted now, and goes on being so
		return wanted{seconds: 0.1}
	}
	seconds := max(0.1, p.now.Sub(used).Seconds()+0.1)
	return wanted{seconds, 1 / seconds} // the longer it takes, the less steep it gets
}

// over is the regret for a return that takes so long.
func (w wanted) over(back time.Duration) regret {
	v := back.Seconds() / w.seconds
	return regret{v, v * w.rate}
}

// likelier says why f gets a grant that g had.
func (f *Function) likelier(g *Function) string {
	for _, h := range []*Function{f, g} {
		if gap, known := h.Past.Arrivals.Gap(); known {
			return fmt.Sprintf("%s is likelier to be wanted: %s is asked for every %s or so", f.Spec.Name, h.Spec.Name, short(gap))
		}
	}
	return fmt.Sprintf("%s was used later and is likelier to be wanted", f.Spec.Name)
}

// likely orders sleepers by how soon they are wanted, the later time first. It is
// when the function was last used, less the mean time between its uses where that is
// known: what is expected as it falls idle. That it does not move with time is on
// purpose, for grants that change hands as time passes would have to be looked at all the time.
func (p *plan) likely(i *Instance) time.Time {
	t := p.usedUntil(i, 1)
	if gap, known := i.f.Past.Arrivals.Gap(); known {
		t = t.Add(-gap)
	}
	return t
}
