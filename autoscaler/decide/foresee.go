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

// What follows brings up instances before they are asked for. Package rhythm says when a function will be wanted: at a time,
// or in an hour.
//
//  1. At a time: the instance is told to rise so early that it is awake when the window begins. Where it takes a victim, so
//     much earlier, and only if what its own client would lose is more than what the victim's would. It stays
//     awake while the window lasts, and goes to sleep at its end if nothing came.
//  2. In an hour: where there is no instance, one is started some minutes before, in free memory only, and put to sleep at once: then the
//     request pays for a wake, not for a start. A sleeper is not unloaded in such an hour.
//
// Nobody waits for any of this: it comes after all demands, interrupts no work, and is no claim to memory. Who rose ahead is idle,
// and may be a victim at once.

const (
	// leadMargin is added to what a rise is expected to take.
	leadMargin = 250 * time.Millisecond
	// leadShare is the part of that which is added besides.
	leadShare = 4
	// roomLead is how much earlier victims make room.
	roomLead = 10 * time.Second
	// hourLead is how much earlier than needed a start for an hour begins.
	hourLead = 10 * time.Minute
	// even is the chance of a request within unload-after from which on a sleeper is not unloaded.
	even = 0.5
)

// Windows are worth what staying awake is worth to the one who declared sleep-after.
const (
	windowShare = 3               // the widest is this part of it
	leastWindow = 2 * time.Second // but this is always worth it
	pauseShare  = 8               // and a pause of this part of it ends a visit
	leastPause  = 2 * time.Second
)

// visited tells the rhythm that a request came at t, after idle.
func (f *Function) visited(t time.Time, idle time.Duration) {
	if f.Spec.NoPrewake {
		f.Rhythm = nil
		return
	}
	if f.Rhythm == nil {
		f.Rhythm = &rhythm.Rhythm{}
	}
	f.Rhythm.Visit(t, idle, max(leastPause, f.Spec.SleepAfter/pauseShare), max(leastWindow, f.Spec.SleepAfter/windowShare))
}

// foresees says whether what f's rhythm says is acted upon.
func (f *Function) foresees() bool {
	return f.Rhythm != nil && !f.Undeclared && !f.Spec.NoPrewake && f.Spec.VariantOf == ""
}

// window is that in which a request for f is foreseen, if it may be acted upon.
func (f *Function) window(now time.Time) (w rhythm.Window, known bool) {
	if !f.foresees() || !f.Rhythm.Trusted() {
		return w, false
	}
	return f.Rhythm.Next(now)
}

// lead is how long before it is wanted an instance of f has to be told to rise from level.
func (f *Function) lead(level api.Level) time.Duration {
	rise := f.Past.Return(level)
	return rise + rise/leadShare + leadMargin
}

// foreseen adds the demand that is foreseen for f, which has and wants none awake.
func (p *plan) foreseen(f *Function, ds []demand) []demand {
	if f.Undeclared || f.scaled || f.frozen() || f.refused || f.desired > 0 || f.live()+f.falling+f.passing+f.leaving > 0 || f.Failures > 0 {
		return ds
	}
	if dm, ready := p.rehearsed(f); ready {
		return append(ds, dm)
	}
	if !f.foresees() {
		return ds
	}
	if w, known := f.window(p.now); known && p.due(f, w.From.Add(-f.lead(f.deepest())-roomLead)) {
		f.hot = true // until it has risen, or the window is over
		return append(ds, demand{f: f, of: f, class: ahead, from: w.From, why: fmt.Sprintf("%s; %s", w, f.Rhythm.Scored())})
	}
	if len(f.Instances) > 0 || f.Past.Starts == 0 {
		return ds
	}
	lead := f.lead(inventory.Stopped) + hourLead
	if f.Rhythm.Likely(p.now.Add(lead)) {
		f.hot = true
		return append(ds, demand{f: f, of: f, class: ahead, from: p.now.Add(lead - hourLead), why: "it is usually wanted soon: " + f.Rhythm.Hour(p.now.Add(lead))})
	}
	if begin, known := f.Rhythm.NextLikely(p.now.Add(lead)); known {
		p.at(f, begin.Add(-lead))
	}
	return ds
}

// deepest is the level from which an instance of f would rise that takes longest of those that there are.
func (f *Function) deepest() (level api.Level) {
	if len(f.Instances) == 0 {
		return inventory.Stopped
	}
	for _, i := range f.Instances {
		level = max(level, i.Status.Level)
	}
	return level
}

// serveAhead gives what is foreseen an instance:
//
//  1. What failed or never fits is left to requests that really come.
//  2. The best way is to wake a sleeper without interrupting work, or, where there is none, to start where memory is free.
//  3. Its victims' clients would lose less by it than its own gains, and none of them would have to start again. None of this changes
//     by itself as time passes.
//  4. It begins in time, and no earlier.
func (p *plan) serveAhead(dm *demand) {
	f := dm.f
	if _, err := p.impossible(f); err != nil || !p.due(f, f.RetryAt) { // 1
		return
	}
	o := p.best(dm)
	_, timed := f.window(p.now)
	if o == nil || o.self != nil && o.rank > wakeIdle || o.self == nil && (o.rank != startNow || len(f.Instances) > 0) { // 2
		return
	}
	level := inventory.Stopped
	if o.self != nil {
		level = o.self.Status.Level
	}
	begin := dm.from.Add(-f.lead(level))
	if dm.rehearsal {
		if o.rank == wakeNow && o.self.Rehearsing {
			p.follow(dm, o)
		}
		return
	}
	if o.rank != wakeNow && o.rank != startNow && !onlyGrants(o.victims) {
		begin = begin.Add(-roomLead)
		if p.lost(o.victims) >= float64(f.Past.Return(level))/float64(f.lead(level)) { // 3
			return
		}
	}
	switch { // 4
	case p.due(f, begin):
		p.follow(dm, o)
	case timed && o.self != nil && p.due(f, begin.Add(-roomLead)): // what was made free for it is not granted to others
		if p.book(amounts{o.at, o.needs}); o.self.reserved() {
			p.take(o.self) // it needs nothing booked, for it has its grant, which nobody else is to have now
		}
	}
}

// onlyGrants says whether all victims are grants, which are taken back in no time.
func onlyGrants(victims []victim) bool {
	return len(victims) > 0 && !slices.ContainsFunc(victims, func(v victim) bool { return v.kind != granted })
}

// lost is what victims lose: what their return takes, over the mean time until they are wanted. What is foreseen to be wanted, and
// that of which nothing is known, is worth more than anything, and so is a process.
func (p *plan) lost(victims []victim) (sum float64) {
	for _, v := range victims {
		if v.kind == granted {
			continue
		}
		gap, known := v.i.f.Past.Arrivals.Gap()
		if _, foreseen := v.i.f.window(p.now); foreseen || !known || v.to >= inventory.Stopped {
			return math.Inf(1)
		}
		sum += float64(v.i.past().Return(v.to)) / float64(max(gap, time.Second))
	}
	return sum
}

// awaits says whether the last instance of f stays awake for a request that is foreseen.
func (p *plan) awaits(f *Function) bool {
	w, known := f.window(p.now)
	if !known || f.desired > 0 {
		return false
	}
	if !p.due(f, w.From.Add(-f.lead(f.level())-f.Past.Rest())) {
		return false
	}
	p.at(f, w.Until.Add(1))
	return true
}

// unused says whether i rose for a request that was foreseen and has not come.
func (f *Function) unused(i *Instance) bool { return i.Ahead && !f.idleSince().After(i.Since) }

// wantedSoon says whether f will be wanted before it is worth unloading.
func (p *plan) wantedSoon(f *Function) bool {
	if !f.foresees() {
		return false
	}
	if w, known := f.window(p.now); known && w.From.Sub(p.now) <= f.Spec.UnloadAfter {
		p.at(f, w.Until.Add(1))
		return true
	}
	lead := f.lead(inventory.Stopped) + hourLead
	if f.Rhythm.Likely(p.now) || f.Rhythm.Likely(p.now.Add(lead)) {
		p.at(f, rhythm.HourAfter(p.now))
		p.at(f, rhythm.HourAfter(p.now.Add(lead)).Add(-lead))
		return true
	}
	since, step := f.idleSince(), max(time.Second, f.Spec.UnloadAfter/pauseShare)
	steps := p.now.Sub(since) / step // it is looked at after each of them
	if chance, known := f.Past.Arrivals.Chance(steps*step, steps*step+f.Spec.UnloadAfter); known && chance >= even {
		p.at(f, since.Add((steps+1)*step))
		return true
	}
	return false
}
