package decide

import (
	"cmp"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// Kinds of victim, in the order in which they are taken.
const (
	granted = iota // a sleeper's reservation: costs nothing
	idle           // no request uses it
	surplus        // its function is busy, but has more awake than it needs
	busy           // it has work, or work waits for it
)

// victim is one thing that could make room.
type victim struct {
	i     *Instance
	kind  int
	to    api.Level // its next level: LevelAwake for a revocation, inventory.Stopped for a stop
	frees bytes     // in the order of the option's devices
	// regret is the duration of its return divided by the time until it is expected to be needed, plus a part of the time that the demand waits for it.
	regret regret
	ready  time.Time
}

// victims returns the smallest set that must give way for o: grants, then idle instances, and busy ones only for a first instance. Within a kind the lower
// priority goes first, then those that are ready now, then the least regret. It returns false if everything together is not enough.
func (p *plan) victims(dm *demand, o *option) ([]victim, bool) {
	short := p.alloc(len(o.at))
	for k, d := range o.at {
		if o.touches[k] > 0 {
			short[k] = max(0, o.needs[k]-p.free[d]-p.coming[d])
		}
	}
	cands := p.candidates(dm, o, short)
	for k := range cands {
		p.holdsUntil(cands[k].ready)
	}
	order := make([]int32, len(cands))
	for k := range order {
		order[k] = int32(k)
	}
	compare := func(a, b int32) int { return cmp.Or(p.compareVictims(&cands[a], &cands[b]), cmp.Compare(a, b)) }
	var chosen []victim
	for n := 0; n < len(order) && !met(short); n++ {
		bring(order, n, compare)
		if v := cands[order[n]]; helps(v.frees, short) {
			chosen = choose(chosen, v, short)
		}
	}
	if !met(short) {
		return nil, false
	}
	return prune(chosen, short), true
}

// compareVictims orders victims, the one to go first before others.
func (p *plan) compareVictims(v, w *victim) int {
	if way := cmp.Or(
		cmp.Compare(v.kind, w.kind),
		cmp.Compare(priority(v.i), priority(w.i)),
		cmp.Compare(btoi(v.ready.After(p.now)), btoi(w.ready.After(p.now)))); way != 0 {
		return way
	}
	if v.i == w.i { // their regrets change together
		return cmp.Compare(v.regret.v, w.regret.v)
	}
	return p.compareRegrets(v.regret, w.regret)
}

// bring puts the nth in order at index n. Mostly a few victims are enough, so it selects the first ones and sorts only after those.
func bring(order []int32, n int, compare func(a, b int32) int) {
	const few = 8
	switch {
	case n < few:
		least := n
		for k := n + 1; k < len(order); k++ {
			if compare(order[k], order[least]) < 0 {
				least = k
			}
		}
		order[n], order[least] = order[least], order[n]
	case n == few:
		slices.SortFunc(order[n:], compare)
	}
}

// met reports whether nothing is short any more.
func met(short bytes) bool {
	return !slices.ContainsFunc(short, func(s api.Bytes) bool { return s > 0 })
}

func priority(i *Instance) int { return i.f.Spec.Priority }

// helps reports whether frees covers some of what is short.
func helps(frees, short bytes) bool {
	for d, s := range short {
		if s > 0 && frees[d] > 0 {
			return true
		}
	}
	return false
}

// choose adds v, or replaces a smaller step of the same instance, and subtracts what it frees from short, which may become negative.
func choose(chosen []victim, v victim, short bytes) []victim {
	for k, w := range chosen {
		if w.i != v.i {
			continue
		}
		more := false
		for d := range short {
			more = more || short[d] > 0 && v.frees[d] > w.frees[d]
		}
		if !more {
			return chosen
		}
		for d := range short {
			short[d] += w.frees[d] - v.frees[d]
		}
		chosen[k] = v
		return chosen
	}
	for d := range short {
		short[d] -= v.frees[d]
	}
	return append(chosen, v)
}

// prune drops victims that turned out not to be needed, the most costly first.
func prune(chosen []victim, short bytes) []victim {
	for k := len(chosen) - 1; k >= 0; k-- {
		unneeded := true
		for d := range short {
			// Devices on which nothing was short don't count.
			if short[d]+chosen[k].frees[d] > 0 && chosen[k].frees[d] > 0 {
				unneeded = false
			}
		}
		if unneeded {
			for d := range short {
				short[d] += chosen[k].frees[d]
			}
			chosen = slices.Delete(chosen, k, k+1)
		}
	}
	return chosen
}

// candidates lists everything that could give some of what is short. Busy instances give way to first instances only.
func (p *plan) candidates(dm *demand, o *option, short bytes) []victim {
	for k, d := range o.at {
		p.slotOf[d] = int32(k)
	}
	vs := make([]victim, 0, 16)
	for _, f := range p.holders(o, short) {
		vs = p.offers(dm, o, f, short, vs)
	}
	for _, d := range o.at {
		p.slotOf[d] = -1
	}
	return vs
}

// holders lists the functions that hold something of what is short, by name.
func (p *plan) holders(o *option, short bytes) []*Function {
	var fs []*Function
	for k, d := range o.at {
		if short[k] <= 0 {
			continue
		}
		for _, i := range p.w.on[d] {
			if !i.f.Undeclared && !i.f.listed {
				i.f.listed = true
				fs = append(fs, i.f)
			}
		}
	}
	for _, f := range fs {
		f.listed = false
	}
	slices.SortFunc(fs, func(a, b *Function) int { return cmp.Compare(a.Spec.Name, b.Spec.Name) })
	return fs
}

// offers appends what f's instances could give of what is short.
func (p *plan) offers(dm *demand, o *option, f *Function, short bytes, vs []victim) []victim {
	interrupt := dm.class == first
	add := func(v victim, frees bytes) {
		if v.frees = p.project(v.i, frees, len(o.at)); helps(v.frees, short) {
			vs = append(vs, v)
		}
	}
	excess := f.live() - f.desired // the number of instances that it does not need
	awake := 0
	for k := len(f.Instances) - 1; k >= 0; k-- { // the newest goes first
		i := f.Instances[k]
		if i == o.self || i.taken || i.Doing != Nothing {
			continue
		}
		switch i.phase {
		case phaseAsleep:
			if i.reserved() {
				add(victim{i: i, kind: granted, ready: i.RetryAt}, p.minus(i.held, p.residue(i, i.Status.Level)))
				if f != dm.f { // its residue is freed by a stop, once the grant is revoked
					add(victim{i: i, kind: idle, to: inventory.Stopped, regret: regret{v: f.Past.Return(inventory.Stopped).Seconds()}, ready: i.RetryAt}, i.held)
				}
			} else if f.Waiting == 0 || f.live() > 0 {
				p.fall(i, idle, i.RetryAt, i.Status.Level, add)
			} else if interrupt && f != dm.f { // requests wait for it: its return is not made longer lightly
				p.fall(i, busy, i.RetryAt, i.Status.Level, add)
			}
		case phaseAwake, phaseIll:
			awake++
			if f == dm.f {
				continue // a function's own instances are no victims
			}
			kind := busy
			switch {
			case awake <= excess && !f.busy():
				kind = idle
			case awake <= excess:
				kind = surplus
			case f.awake+f.ill-awake < f.Spec.MinScale || !interrupt:
				continue
			}
			p.fall(i, kind, later(i.RetryAt, p.readyAt(dm, o, i, kind, awake)), api.LevelAwake, add)
		}
	}
	return vs
}

// project reorders amounts of i's devices to an option's devices; see slotOf.
func (p *plan) project(i *Instance, b bytes, n int) bytes {
	to := p.alloc(n)
	for k, d := range i.at {
		if s := p.slotOf[d]; s >= 0 {
			to[s] = b[k]
		}
	}
	return to
}

// residue returns what i is expected to hold at level; what it holds now if it is there already.
func (p *plan) residue(i *Instance, level api.Level) bytes {
	b := p.alloc(len(i.at))
	m := i.past().Residue(level)
	if i.Status.State == api.Asleep && i.Status.Level == level {
		m = i.Status.Memory
	}
	p.w.fill(b, i.at, m)
	return b
}

// restHorizon weighs the time that a victim takes to fall asleep, which the demand waits for once, against the cost of its return over the time until it is
// needed. Of two whose return takes 1 s, one that takes 17 s to sleep goes before one that takes 2 s only if the latter is needed within about a minute. All steps
// of one instance get the same addition, so it is not stopped because of it. Three, ten and thirty times the weight were no better (`rouse simulate
// --slow-sleep`).
const restHorizon = 1000 * time.Second

// fall offers i's steps down from level: each deeper sleep, and the end.
func (p *plan) fall(i *Instance, kind int, ready time.Time, level api.Level, add func(victim, bytes)) {
	past := i.past()
	held := i.held
	if i.settling(p.now) { // the rest is coming already
		held, ready = p.expected(i), later(ready, i.Settles)
	}
	wanted := p.untilWanted(i)
	var waits float64
	if level == api.LevelAwake {
		waits = i.rest().Seconds() / restHorizon.Seconds()
	}
	weigh := func(to api.Level) regret {
		r := wanted.over(past.Return(to))
		r.v += waits
		return r
	}
	from := max(api.Level1, level+1)
	if level == api.LevelAwake {
		from = i.f.level()
	}
	if i.phase != phaseIll && i.Failures < 2 { // one that refuses to sleep is stopped
		for to := from; to < inventory.Stopped; to++ {
			add(victim{i: i, kind: kind, to: to, regret: weigh(to), ready: ready}, p.frees(i, p.minus(held, p.residue(i, to))))
		}
	}
	add(victim{i: i, kind: kind, to: inventory.Stopped, regret: weigh(inventory.Stopped), ready: ready}, p.frees(i, held))
}

// frees returns b, which i releases, less what others share with it.
func (p *plan) frees(i *Instance, b bytes) bytes {
	if i.common() == 0 || len(b) == 0 {
		return b
	}
	c := p.alloc(len(b))
	copy(c, b)
	c[0] -= min(i.common(), c[0])
	return c
}

// minus returns a less b, at least 0.
func (p *plan) minus(a, b bytes) bytes {
	c := p.alloc(len(a))
	for d := range a {
		c[d] = max(0, a[d]-b[d])
	}
	return c
}
