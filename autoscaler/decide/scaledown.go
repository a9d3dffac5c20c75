package decide

import (
	"fmt"
	"time"
)

// scaleDown puts instances beyond the desired number to sleep, the newest first, if they were not needed for SleepAfter
// and nothing runs in the background. It stops sleepers that were not needed for UnloadAfter.
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

// aboutToWake reports whether i is about to be woken.
func (p *plan) aboutToWake(f *function, i *instance) bool {
	return i.taken || f.live() == 0 && f.desired > 0
}

// sleepIdle puts idle instances of f to sleep. Those whose pods no node has taken go first.
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

// seldom is the chance of a request below which an idle instance does not stay until SleepAfter.
const seldom = 0.05

// whyEarly says why the only instance of f, idle since used, need not stay until SleepAfter; empty: it stays. If the gaps
// between requests say that the next one hardly comes before that, waiting awake is useless. This is checked after an
// eighth, a quarter and a half of the time; if a rhythm predicts the next request, after a sixteenth, too.
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
