package decide

import (
	"fmt"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// A rehearsal is the first sleep of a process, at a time when nobody waits for it: some model servers take many seconds for it, because
// they pin host memory for all their weights, and a fraction of a second for each one after it. Without a rehearsal those
// seconds fall on whoever waits for the victim's memory.
//
//  1. It is worth it where the first sleep was measured to take at least a second longer than others; always or never where the
//     function says so.
//  2. When the only instance of a function has been idle for a moment, and its requests don't say that another is likely before it were
//     over, it is put to sleep: an ordinary sleep, with the canary before it.
//  3. Asleep and measured, it is woken again where its memory is free still, and the canary is compared. Its idle time goes on counting
//     from before.
//
// A request that comes in between is an ordinary demand: it ends the drain, or waits until the sleep is done and is woken for. Where
// somebody else has taken the memory, it stays asleep, which it would have had to anyway.

const (
	// worthRehearsing is how much longer a first sleep has to take.
	worthRehearsing = time.Second
	// rehearsalChance is the chance of a request during a rehearsal above which there is none.
	rehearsalChance = 0.2
	// rehearsalLasts is how long after its sleep an instance is woken again at the latest.
	rehearsalLasts = 10 * time.Second
)

// rest is how long i is expected to take from awake to asleep.
func (i *Instance) rest() time.Duration {
	if !i.Slept {
		return i.f.Past.FirstRest()
	}
	return i.f.Past.Rest()
}

// rehearses says whether instances of f are rehearsed, and why.
func (f *Function) rehearses() (why string, yes bool) {
	longer, known := f.Past.SlowFirst()
	switch {
	case f.Undeclared || f.Spec.Rehearse == api.RehearseNever || f.level() != api.Level1:
		return "", false
	case known && longer >= worthRehearsing:
		return fmt.Sprintf("the first sleep of a process takes %s, others %s", short(f.Past.FirstSleep), short(f.Past.Sleep)), true
	case f.Spec.Rehearse == api.RehearseAlways && !known:
		return "how long its first sleep takes is not known", true
	}
	return "", false
}

// rehearse puts the only instance of f to sleep for a rehearsal, where it is time for that.
func (p *plan) rehearse(f *Function) {
	why, yes := f.rehearses()
	if !yes || f.busy() || f.scaled || f.desired > 0 || f.live() != 1 {
		return
	}
	for _, i := range f.Instances {
		if i.phase != phaseAwake || i.Slept || i.taken || i.From != inventory.Stopped || i.Failures > 0 {
			continue
		}
		used, after := p.usedUntil(i, 1), max(p.pol.MinStay, f.Spec.SleepAfter/pauseShare)
		takes := f.Past.FirstRest() + f.Past.Return(api.Level1)
		if chance, known := f.Past.Arrivals.Chance(after, after+takes); known && chance > rehearsalChance || p.early(f, used) != "" {
			continue
		}
		if w, foreseen := f.window(p.now); foreseen && w.From.Sub(p.now) < takes+f.lead(api.Level1) || !p.due(f, used.Add(after)) || !p.available(i) {
			continue
		}
		p.do(f, i, Action{Kind: Sleep, Level: api.Level1, Drain: p.pol.Drain, Rehearsal: true,
			Reason: fmt.Sprintf("a rehearsal, idle for %s: %s", short(p.now.Sub(used)), why)})
	}
}

// rehearsed is the demand of a sleeper of f that is to be woken after its rehearsal.
func (p *plan) rehearsed(f *Function) (dm demand, ready bool) {
	for _, i := range f.Instances {
		if !i.Rehearsing || i.phase != phaseAsleep || p.due(f, i.Since.Add(rehearsalLasts)) {
			continue
		}
		if i.settling(p.now) {
			p.at(f, i.Settles)
			continue
		}
		f.hot = true
		return demand{f: f, of: f, class: ahead, from: p.now, rehearsal: true,
			why: fmt.Sprintf("its rehearsal is over, the first sleep took %s", short(i.Status.SleepTime))}, true
	}
	return dm, false
}
