package decide

import (
	"fmt"
	"time"
)

// Arrived records that a request came at t while none was waiting or running. Call it before LastRequest and the counts
// are updated.
func (f *Function) Arrived(t time.Time) {
	idle := f.idleSince()
	if !idle.IsZero() {
		f.Past = f.Past.Arrived(t.Sub(idle), t)
	}
	f.noteVisit(t, t.Sub(idle))
}

// idleSince returns when f last had anything to do, zero if it never had.
func (f *Function) idleSince() time.Time {
	if len(f.NeededAt) > 0 {
		return later(f.LastRequest, f.NeededAt[0])
	}
	return f.LastRequest
}

// untilWanted returns the expected time until i is needed again, in seconds. If its function is idle, that is the
// forecast from its arrivals. Otherwise it is the time that i has been idle, the best guess without any knowledge. A
// sleeper that others of its function come before is needed as seldom as all of them were.
func (p *plan) untilWanted(i *instance) float64 {
	f := i.f
	before := f.live()
	for _, j := range f.instances {
		if j.phase == phaseAsleep && compareNeed(j, i) < 0 {
			before++
		}
	}
	if i.phase == phaseAsleep && before > 0 {
		var needed time.Time
		if before < len(f.NeededAt) {
			needed = f.NeededAt[before]
		}
		return max(0.1, p.now.Sub(needed).Seconds())
	}
	if until, known := p.untilRequest(f); known && f.live() <= 1 {
		return max(0.1, until.Seconds())
	}
	if i.phase == phaseAwake && f.desired >= 1 { // needed now, and further on
		return 0.1
	}
	return max(0.1, p.now.Sub(p.usedUntil(i, 1)).Seconds()+0.1)
}

// untilRequest returns the expected time until the next request for f. If that is not known, it returns how long f has been
// idle.
func (p *plan) untilRequest(f *function) (until time.Duration, known bool) {
	if f.busy() {
		return 0, false
	}
	if w, known := f.window(p.now); known {
		return w.From.Sub(p.now), true
	}
	idle := p.now.Sub(f.idleSince())
	if until, known = f.Past.Arrivals.Forecast(idle); known {
		return until, true
	}
	return idle, false
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

// needKey returns the key that orders sleepers by how soon they are needed, the later time first: when the function was
// last used, less the mean gap between its uses if known. It deliberately does not change with time: otherwise grants
// would have to be checked all the time.
func (p *plan) needKey(i *instance) time.Time {
	t := p.usedUntil(i, 1)
	if gap, known := i.f.Past.Arrivals.Gap(); known {
		t = t.Add(-gap)
	}
	return t
}

// usedUntil returns when i, the nth awake instance of its function, was last needed; for a sleeper, when the function
// was.
func (p *plan) usedUntil(i *instance, n int) time.Time {
	t := i.Since
	if i.Rehearsed && len(i.f.NeededAt) > 0 {
		t = time.Time{} // a rehearsal does not count as use
	}
	if i.phase == phaseAwake && n <= i.f.desired {
		return p.now
	}
	if i.phase == phaseAsleep {
		if len(i.f.NeededAt) > 0 {
			return i.f.idleSince()
		}
		return later(i.f.LastRequest, t)
	}
	if n >= 1 && n <= len(i.f.NeededAt) {
		t = later(t, i.f.NeededAt[n-1])
	}
	return t
}
