package decide

import (
	"fmt"

	"github.com/rouse-dev/rouse/api"
)

// rest lets go what nobody needs: instances beyond the desired number that were
// not needed for SleepAfter fall asleep, the newest first; sleepers that nobody
// asked for during GoneAfter end.
func (p *plan) rest() {
	for _, f := range p.fs {
		if !f.declared || f.frozen() {
			continue
		}
		if f.Spec.SleepAfter > 0 || f.scaled {
			p.tire(f)
		}
		for _, i := range f.is {
			if f.Spec.GoneAfter > 0 && i.phase == phaseAsleep && !p.promised(f, i) && p.due(f, i.Since.Add(f.Spec.GoneAfter)) && p.quiet(i) {
				p.stop(i, 0, fmt.Sprintf("asleep for %s (gone-after %s)", short(p.now.Sub(i.Since)), short(f.Spec.GoneAfter)))
			}
		}
	}
}

// promised says whether i is about to be woken.
func (p *plan) promised(f *fn, i *inst) bool {
	return i.taken || f.live() == 0 && f.desired > 0
}

// tire puts idle instances of f to sleep.
func (p *plan) tire(f *fn) {
	n := f.live()
	for k := len(f.is) - 1; k >= 0 && n > f.desired; k-- {
		i := f.is[k]
		if i.phase != phaseAwake {
			continue
		}
		used := p.usedUntil(i, n)
		n--
		if i.taken || !f.scaled && !p.due(f, used.Add(f.Spec.SleepAfter)) || !p.quiet(i) {
			continue
		}
		level := max(api.Level1, f.Spec.SleepLevel)
		reason := fmt.Sprintf("idle for %s (sleep-after %s)", short(p.now.Sub(used)), short(f.Spec.SleepAfter))
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
		p.sleep(i, level, reason)
	}
}
