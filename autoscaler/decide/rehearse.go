package decide

import (
	"fmt"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// A rehearsal is a process's first sleep, taken while no request waits for it. Some model servers need many seconds for the first
// sleep, because they pin host memory for all weights, and a fraction of a second for later ones. Without a rehearsal those seconds
// delay the request that needs the victim's memory.
//
//  1. It pays if the first sleep was measured to take at least a second longer than others; a function may ask for always or never.
//  2. The only instance of a function is put to sleep when it has been idle for a moment and another request is not likely before the
//     end. It is an ordinary sleep, with the canary before it.
//     A suspension is tried once in the same way, or from a sleep (scarce.go).
//  3. Once measured, it is woken if its memory is still free, and the canary is compared. Its idle time counts on from before.
//
// A request in between is an ordinary demand: it ends the drain, or waits for the sleep and wakes the instance. If the memory was taken
// by another, the instance stays asleep, as it would have had to anyway.

const (
	// worthRehearsing is how much longer a first sleep has to take.
	worthRehearsing = time.Second
	// rehearsalChance is the chance of a request during a rehearsal above which there is none.
	rehearsalChance = 0.2
	// rehearsalLasts is the latest time after its sleep at which an instance is woken again.
	rehearsalLasts = 10 * time.Second
)

// rest returns how long i is expected to take from awake to asleep.
func (i *instance) rest() time.Duration {
	if !i.Slept {
		return i.f.Past.FirstRest()
	}
	return i.f.Past.Rest()
}

// rehearses reports whether instances of f are rehearsed, and why.
func (f *function) rehearses() (why string, yes bool) {
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

// rehearse starts a rehearsal of f's only instance, if it is time.
func (p *plan) rehearse(f *function) {
	if f.Undeclared || f.busy() || f.scaled || f.desired > 0 || f.live() != 1 {
		return
	}
	for _, i := range f.instances {
		if i.phase != phaseAwake || i.taken || i.Failures > 0 {
			continue
		}
		level := api.Suspended
		why, yes := p.untried(i)
		if !yes {
			level = api.Level1
			if why, yes = f.rehearses(); !yes || i.Slept || i.From != inventory.Stopped {
				continue
			}
		}
		used, after := p.usedUntil(i, 1), max(p.pol.MinStay, f.Spec.SleepAfter/pauseShare)
		takes := f.Past.FirstRest() + f.Past.Return(api.Level1)
		if chance, known := f.Past.Arrivals.Chance(after, after+takes); known && chance > rehearsalChance || p.whyEarly(f, used) != "" {
			continue
		}
		if w, foreseen := f.window(p.now); foreseen && w.From.Sub(p.now) < takes+f.lead(api.Level1) || !p.due(used.Add(after)) || !p.available(i) {
			continue
		}
		if level == api.Suspended {
			p.spend(i.at[0], -p.growth(i), 0)
		}
		p.addAction(f, i, Action{Kind: Sleep, Level: level, Drain: p.pol.Drain, Rehearsal: true,
			Reason: fmt.Sprintf("a rehearsal, idle for %s: %s", short(p.now.Sub(used)), why)})
	}
}

// demandAfterRehearsal returns the demand to wake a sleeper of f after its rehearsal.
func (q *queue) demandAfterRehearsal(f *function) (dm *demand, ready bool) {
	for _, i := range f.instances {
		if !i.Rehearsing || i.phase != phaseAsleep || q.due(i.Since.Add(rehearsalLasts)) {
			continue
		}
		if i.settling(q.now) {
			q.planAt(i.Settles)
			continue
		}
		return &demand{f: f, class: ahead, from: q.now, rehearsal: true,
			why: fmt.Sprintf("its rehearsal is over, the first sleep took %s", short(i.Status.SleepTime))}, true
	}
	return dm, false
}
