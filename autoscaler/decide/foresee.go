package decide

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/autoscaler/rhythm"
)

// Starting instances before a request comes. Package rhythm predicts a time or an hour.
//
//  1. At a time: the instance rises early enough to be awake when the window begins; if it needs a victim, still
//     earlier, and only if its own client would lose more than the victim's. It sleeps at the window's end if nothing
//     came.
//  2. In an hour: if there is no instance, one is started some minutes before, in free memory only, and put to sleep at
//     once. A sleeper is not unloaded in such an hour.
//
// This comes after all demands, interrupts no work, and reserves no memory. An instance that rose ahead is idle, and
// may be a victim at once.

const (
	// leadMargin and a leadShare-th of the expected duration of a rise are added to it.
	leadMargin = 250 * time.Millisecond
	leadShare  = 4
	roomLead   = 10 * time.Second // how much earlier victims make room
	// hourLead is how much earlier than needed a start for an hour begins.
	hourLead = 10 * time.Minute
	// even is the chance of a request within unload-after above which a sleeper stays.
	even = 0.5
)

const (
	windowShare = 3               // the longest window is sleep-after divided by this
	leastWindow = 2 * time.Second // but at least this
	pauseShare  = 8               // a pause of sleep-after divided by this ends a visit
	leastPause  = 2 * time.Second
)

func (f *Function) noteVisit(t time.Time, idle time.Duration) {
	if f.Spec.NoPrewake {
		f.Rhythm = nil
		return
	}
	if f.Rhythm == nil {
		f.Rhythm = &rhythm.Rhythm{}
	}
	f.Rhythm.Visit(t, idle, max(leastPause, f.Spec.SleepAfter/pauseShare), max(leastWindow, f.Spec.SleepAfter/windowShare))
}

// hasForecast reports whether f's predictions may be acted upon.
func (f *Function) hasForecast() bool {
	return f.Rhythm != nil && !f.Undeclared && !f.Spec.NoPrewake && f.Spec.VariantOf == ""
}

func (f *Function) window(now time.Time) (w rhythm.Window, known bool) {
	if !f.hasForecast() || !f.Rhythm.Trusted() {
		return w, false
	}
	return f.Rhythm.Next(now)
}

func (f *Function) lead(level api.Level) time.Duration {
	rise := f.Past.Return(level)
	return rise + rise/leadShare + leadMargin
}

func (q *queue) predictedDemand(f *function, ds []*demand) []*demand {
	if f.Undeclared || f.scaled || f.frozen() || f.refused || f.desired > 0 || f.live()+f.falling+f.passing+f.leaving > 0 || f.Failures > 0 {
		return ds
	}
	if dm, ready := q.demandAfterRehearsal(f); ready {
		return append(ds, dm)
	}
	if !f.hasForecast() {
		return ds
	}
	if w, known := f.window(q.now); known && q.due(w.From.Add(-f.lead(f.deepest())-roomLead)) {
		return append(ds, &demand{f: f, class: ahead, from: w.From, why: fmt.Sprintf("%s; %s", w, f.Rhythm.Scored())})
	}
	if len(f.instances) > 0 || f.Past.Starts == 0 {
		return ds
	}
	lead := f.lead(inventory.Stopped) + hourLead
	if f.Rhythm.Likely(q.now.Add(lead)) {
		return append(ds, &demand{f: f, class: ahead, from: q.now.Add(lead - hourLead), why: "it is usually wanted soon: " + f.Rhythm.Hour(q.now.Add(lead))})
	}
	if begin, known := f.Rhythm.NextLikely(q.now.Add(lead)); known {
		q.planAt(begin.Add(-lead))
	}
	return ds
}

func (f *function) deepest() (level api.Level) {
	if len(f.instances) == 0 {
		return inventory.Stopped
	}
	for _, i := range f.instances {
		level = max(level, i.Status.Level)
	}
	return level
}

// serveAhead serves a predicted demand:
//
//  1. A function that failed or never fits is left to real requests.
//  2. It wakes a sleeper without interrupting work or, if there is none, starts in free memory.
//  3. The victims' clients must lose less than its own gain, and no victim may have to start again.
//  4. It begins in time, and no earlier.
func (q *queue) serveAhead(dm *demand) {
	f := dm.f
	if _, err := q.impossible(f.Function, q.pol.Advice); err != nil || !q.due(f.RetryAt) { // 1
		return
	}
	o := q.best(dm)
	_, timed := f.window(q.now)
	if o == nil || o.self != nil && o.rank > wakeIdle || o.self == nil && (o.rank != startNow || len(f.instances) > 0) { // 2
		return
	}
	level := inventory.Stopped
	if o.self != nil {
		level = o.self.Status.Level
	}
	begin := dm.from.Add(-f.lead(level))
	if dm.rehearsal {
		if o.rank == wakeNow && o.self.Rehearsing {
			q.carryOut(dm, o)
		}
		return
	}
	if o.rank != wakeNow && o.rank != startNow && !onlyGrants(o.victims) {
		begin = begin.Add(-roomLead)
		if q.lossOf(o.victims) >= float64(f.Past.Return(level))/float64(f.lead(level)) { // 3
			return
		}
	}
	switch { // 4
	case q.due(begin):
		q.carryOut(dm, o)
	case timed && o.self != nil && q.due(begin.Add(-roomLead)): // the memory that was freed for it is not granted to others
		if q.book(amounts{o.at, o.needs}); o.self.reserved() {
			o.self.taken = true // its grant has the memory
		}
	}
}

func onlyGrants(victims []victim) bool {
	return len(victims) > 0 && !slices.ContainsFunc(victims, func(v victim) bool { return v.kind != granted })
}

// lossOf returns the duration of the victims' return divided by the mean time until they are needed; infinite: they
// must not go.
func (p *plan) lossOf(victims []victim) (sum float64) {
	for _, v := range victims {
		if v.kind == granted {
			continue
		}
		gap, known := v.i.f.Past.Arrivals.Gap()
		if _, foreseen := v.i.f.window(p.now); foreseen || !known || v.to >= inventory.Stopped {
			return math.Inf(1)
		}
		sum += float64(v.i.f.Past.Return(v.to)) / float64(max(gap, time.Second))
	}
	return sum
}

func (p *plan) staysForForecast(f *function) bool {
	w, known := f.window(p.now)
	if !known || f.desired > 0 {
		return false
	}
	if !p.due(w.From.Add(-f.lead(f.level()) - f.Past.Rest())) {
		return false
	}
	p.planAt(w.Until.Add(1))
	return true
}

// unused reports whether i rose for a predicted request that has not come.
func (f *Function) unused(i *instance) bool { return i.Ahead && !f.idleSince().After(i.Since) }

func (p *plan) wantedSoon(f *function) bool {
	if !f.hasForecast() {
		return false
	}
	if w, known := f.window(p.now); known && w.From.Sub(p.now) <= f.Spec.UnloadAfter {
		p.planAt(w.Until.Add(1))
		return true
	}
	lead := f.lead(inventory.Stopped) + hourLead
	if f.Rhythm.Likely(p.now) || f.Rhythm.Likely(p.now.Add(lead)) {
		p.planAt(rhythm.HourAfter(p.now))
		p.planAt(rhythm.HourAfter(p.now.Add(lead)).Add(-lead))
		return true
	}
	since, step := f.idleSince(), max(time.Second, f.Spec.UnloadAfter/pauseShare)
	steps := p.now.Sub(since) / step
	if chance, known := f.Past.Arrivals.Chance(steps*step, steps*step+f.Spec.UnloadAfter); known && chance >= even {
		p.planAt(since.Add((steps + 1) * step))
		return true
	}
	return false
}

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

// untilWanted returns the expected time in seconds until i is needed again: the forecast, or else how long i has been
// idle. A sleeper that others of its function come before is needed as seldom as all of them were.
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
	if i.phase == phaseAwake && f.desired >= 1 {
		return 0.1
	}
	return max(0.1, p.now.Sub(p.usedUntil(i, 1)).Seconds()+0.1)
}

// untilRequest returns the expected time until the next request for f; if unknown, how long f has been idle.
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

func (f *Function) likelier(g *Function) string {
	for _, h := range []*Function{f, g} {
		if gap, known := h.Past.Arrivals.Gap(); known {
			return fmt.Sprintf("%s is likelier to be wanted: %s is asked for every %s or so", f.Spec.Name, h.Spec.Name, short(gap))
		}
	}
	return fmt.Sprintf("%s was used later and is likelier to be wanted", f.Spec.Name)
}

// needKey orders sleepers by how soon they are needed, the later time first. It does not change with time: otherwise
// grants would have to be checked all the time.
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
