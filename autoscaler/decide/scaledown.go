package decide

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// scaleDown puts instances beyond the desired number that were not needed for SleepAfter to sleep, the newest first,
// and stops sleepers not needed for UnloadAfter.
func (p *plan) scaleDown() {
	for _, f := range p.fs {
		if f.Undeclared || f.frozen() {
			continue
		}
		if f.Background == 0 {
			p.rehearse(f)
		}
		if f.Spec.SleepAfter > 0 && f.Background == 0 || f.scaled {
			p.sleepIdle(f)
		}
		p.suspendSleepers(f)
		for _, i := range f.instances {
			if f.Spec.UnloadAfter > 0 && i.phase == phaseAsleep && !p.aboutToWake(f, i) && p.due(i.Since.Add(f.Spec.UnloadAfter)) && !p.wantedSoon(f) && p.available(i) {
				p.stop(i, 0, fmt.Sprintf("asleep for %s (unload-after %s)", short(p.now.Sub(i.Since)), short(f.Spec.UnloadAfter)))
			}
		}
	}
}

func (p *plan) aboutToWake(f *function, i *instance) bool {
	return i.taken || f.live() == 0 && f.desired > 0
}

// sleepIdle puts idle instances of f to sleep; those whose pods no node has taken go first.
func (p *plan) sleepIdle(f *function) {
	n := f.live()
	for k := len(f.instances) - 1; k >= 0 && n > f.desired; k-- {
		i := f.instances[k]
		if i.phase != phaseRising || !i.unplaced() {
			continue
		}
		used := p.usedUntil(i, n)
		n--
		if (f.scaled || p.due(used.Add(f.Spec.SleepAfter))) && p.available(i) {
			p.stop(i, 0, fmt.Sprintf("no node takes its pod, and for %s %d were enough", short(p.now.Sub(used)), n))
		}
	}
	for k := len(f.instances) - 1; k >= 0 && n > f.desired; k-- {
		i := f.instances[k]
		if i.phase != phaseAwake {
			continue
		}
		used := p.usedUntil(i, n)
		n--
		early := ""
		if i.taken {
			continue
		}
		unused := !f.scaled && f.unused(i)
		switch {
		case !f.scaled && n == 0 && p.staysForForecast(f):
			continue
		case f.scaled || unused || p.due(used.Add(f.Spec.SleepAfter)):
		default:
			if early = p.whyEarly(f, used); early == "" {
				continue
			}
		}
		if !p.available(i) {
			continue
		}
		level, measured := p.levelFor(i)
		reason := fmt.Sprintf("idle for %s (sleep-after %s)%s", short(p.now.Sub(used)), short(f.Spec.SleepAfter), early)
		if unused {
			reason = "it came up for a predicted request that has not arrived"
		}
		if f.desired > 0 {
			reason = fmt.Sprintf("%d awake, for %s %d were enough (sleep-after %s)",
				n+1, short(p.now.Sub(used)), n, short(f.Spec.SleepAfter))
		}
		if f.scaled {
			reason = fmt.Sprintf("%d awake, %s", n+1, f.Scale)
		}
		if i.Failures >= 2 {
			p.stop(i, p.pol.Drain, fmt.Sprintf("%s, and it failed to sleep %d times", reason, i.Failures))
			continue
		}
		p.sleep(i, level, reason+measured)
	}
}

// seldom is the chance of a request below which an idle instance need not stay.
const seldom = 0.05

// whyEarly says why the only instance of f, idle since used, need not stay until SleepAfter: the next request hardly
// comes before. It is checked after an eighth, a quarter and a half of the time, with a predicted request after a
// sixteenth too. Empty: it stays.
func (p *plan) whyEarly(f *function, used time.Time) string {
	if f.live() > 1 || f.desired > 0 || f.busy() {
		return ""
	}
	parts := []time.Duration{16, 8, 4, 2}
	if _, known := f.window(p.now); !known {
		parts = parts[1:]
	}
	for _, part := range parts {
		t := max(f.Spec.SleepAfter/part, p.pol.MinStay)
		if t >= f.Spec.SleepAfter {
			break
		}
		if chance, known := f.Past.Arrivals.Chance(t, f.Spec.SleepAfter); known && chance < seldom {
			if !p.due(used.Add(t)) {
				break
			}
			return fmt.Sprintf("; where %s pass without a request, the next one hardly comes within %s", short(t), short(f.Spec.SleepAfter))
		}
	}
	return ""
}

func (p *plan) stopOverdue() {
	for _, f := range p.fs {
		for _, i := range f.instances {
			if !f.Undeclared && i.Doing == Nothing { // a call under way has its own time limit
				p.stopIfLate(i)
			}
		}
	}
	for _, f := range p.fs {
		p.refuse(f)
	}
}

func (p *plan) stopIfLate(i *instance) {
	if i.Lost != "" && p.due(i.RetryAt) {
		p.stop(i, 0, "it is lost: "+i.Lost)
		return
	}
	spec := &i.f.Spec
	switch i.phase {
	case phaseRising:
		if i.Status.OnItsWay() {
			return // adding nodes and fetching models have their own limits
		}
		limit, name := spec.StartTimeout, "start"
		if i.From < inventory.Stopped && !i.Unloaded {
			limit, name = spec.WakeTimeout, "wake"
		}
		if p.due(i.Since.Add(limit+Slack)) && p.due(i.RetryAt) {
			p.giveUp(i, fmt.Sprintf("the %s takes longer than %s (%s-timeout)", name, short(limit), name))
		}
	case phaseUnhealthy:
		if p.failing(i.f) && p.due(i.RetryAt) {
			reason := fmt.Sprintf("unhealthy after %s in a row", many(i.f.Failures, "failure"))
			if !p.refuses(i.f) { // whose reason has the error
				reason += ": " + i.f.LastError
			}
			p.stop(i, 0, reason)
		} else if p.stuck(i) && p.due(i.RetryAt) {
			p.stop(i, 0, fmt.Sprintf("%s in a row on %s, and another GPU is free: %s", many(i.f.Failures, "failure"), i.f.FailedOn[0], i.f.LastError))
		} else if p.due(i.Since.Add(spec.StartTimeout+Slack)) && p.due(i.RetryAt) {
			p.giveUp(i, fmt.Sprintf("unhealthy for longer than %s: %s", short(spec.StartTimeout), i.Status.Message))
		}
	case phaseAsleep:
		if i.Doubt != "" && !i.reserved() && p.due(i.RetryAt) {
			p.stop(i, 0, i.Doubt)
		} else if i.Failures >= 2 && p.due(i.RetryAt) {
			p.stop(i, 0, fmt.Sprintf("failed %d times in a row: %s", i.Failures, i.f.LastError))
		}
	case phaseFalling:
		limit := p.pol.Drain + spec.WakeTimeout
		if p.due(i.Since.Add(limit+Slack)) && p.due(i.RetryAt) {
			p.stop(i, 0, fmt.Sprintf("draining for longer than %s", short(limit)))
		}
	}
}

// stuck reports whether i uses up its function's last try where earlier ones failed, while another GPU is free.
func (p *plan) stuck(i *instance) bool {
	f := i.f
	if f.Failures < MaxFailures-1 || len(f.FailedOn) == 0 || !slices.Equal(f.FailedOn, i.Status.Devices) {
		return false
	}
	spots := p.searchFor(nil, f).spots()
	return len(spots) > 0 && spots[0].class == 0
}

func (p *plan) giveUp(i *instance, fault string) { p.stop(i, 0, fault).Fault = fault }

// failing reports whether f's starts failed too often, or for good.
func (p *plan) failing(f *function) bool { return f.Failures >= MaxFailures || f.Hopeless }

func (p *plan) refuses(f *function) bool {
	return p.failing(f) && f.awake == 0 && f.asking() && f.FailedAt.After(f.RefusedAt)
}

func (p *plan) refuse(f *function) {
	if !p.refuses(f) {
		return
	}
	// A runtime's output may have paths: it goes to the operator, in the action's reason.
	const ask = "who operates it finds out why with rouse why, in a cluster kn rouse why"
	err := api.Errorf(http.StatusServiceUnavailable, api.CodeStartFailed,
		"%s could not be brought up, %s in a row: %s", f.Spec.Name, many(f.Failures, "failure"), ask)
	if f.Hopeless {
		err.Message = fmt.Sprintf("%s can't be brought up: %s", f.Spec.Name, ask)
		err.NoRetry = true
	}
	p.fail(f, err.WithRetryAfter(f.RetryAt.Sub(p.now)), fmt.Sprintf("%s in a row, the last: %s", many(f.Failures, "failure"), f.LastError))
}

func (f *function) asking() bool { return f.Order == OrderWake || f.unanswered() }

// unanswered reports whether requests wait that came after the last refusal.
func (f *function) unanswered() bool {
	return f.Waiting > 0 && (f.RefusedAt.IsZero() || later(f.LastRequest, f.WaitingSince).After(f.RefusedAt))
}

// A rehearsal is a process's first sleep, taken while no request waits. Some model servers need many seconds for it,
// because they pin host memory for all weights, and a fraction of a second for later ones.
//
//  1. It pays if the first sleep took a second longer than others; a function may ask for always or never.
//  2. It comes when the only instance is idle and another request is unlikely before the end. A suspension is tried
//     once in the same way, or from a sleep (limit.go).
//  3. Once measured, it is woken if its memory is still free. Its idle time counts on from before.

const (
	worthRehearsing = time.Second
	// rehearsalChance is the chance of a request above which there is none.
	rehearsalChance = 0.2
	rehearsalLasts  = 10 * time.Second // after that it is not woken again
)

// rest returns how long i is expected to take to fall asleep.
func (i *instance) rest() time.Duration {
	if !i.Slept {
		return i.f.Past.FirstRest()
	}
	return i.f.Past.Rest()
}

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
