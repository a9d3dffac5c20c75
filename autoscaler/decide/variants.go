package decide

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rouse-dev/rouse/api"
)

// group identifies a model with variants in one namespace: functions that are different ways to run it.
type group struct {
	namespace string
	model     api.ModelName
}

func (f *Function) group() group {
	if f.Undeclared || f.Spec.VariantOf == "" {
		return group{}
	}
	return group{f.Spec.Name.Namespace(), f.Spec.VariantOf}
}

// enrol adds f to the variants of its model, the cheapest first, and removes it from its previous group.
func (w *World) enrol(f *Function) {
	w.unenrol(f)
	g := f.group()
	if f.enrolled = g; g == (group{}) {
		return
	}
	if w.groups == nil {
		w.groups = make(map[group][]*Function)
	}
	w.groups[g] = append(w.groups[g], f)
	slices.SortFunc(w.groups[g], func(a, b *Function) int {
		return cmp.Or(cmp.Compare(a.Spec.Price(), b.Spec.Price()), cmp.Compare(a.Spec.Name, b.Spec.Name))
	})
}

func (w *World) unenrol(f *Function) {
	if g := f.enrolled; g != (group{}) {
		if w.groups[g] = slices.DeleteFunc(w.groups[g], func(v *Function) bool { return v == f }); len(w.groups[g]) == 0 {
			delete(w.groups, g)
		}
	}
}

// elect chooses the variant that serves dm. It is dm's own function if that is no variant or wants an instance for
// itself (min-scale, an operator's order, or requests that named it and not the model):
//
//  1. Other variants are awake or on their way and have places for the waiting requests: none, and why says so.
//  2. The cheapest that can have one more without interrupting work. One that misses its target even with a single
//     request comes after the others.
//  3. The cheapest that can have one more at all.
//  4. Its own function, which reports what is wrong.
func (p *plan) elect(dm *demand) (why string) {
	f := dm.f
	all := p.w.groups[f.enrolled]
	if len(all) < 2 || dm.class == kept || f.Waiting > f.Shared || f.Waiting == 0 && !f.pressed {
		return ""
	}
	if places := p.placesBeside(f, all); dm.class == first && f.Waiting <= places || dm.class == extra && !f.pressed && f.Waiting+f.Running <= f.capacity(p)+places { // 1
		return fmt.Sprintf("other variants of %s are awake or on their way, with room for %d more", f.Spec.VariantOf, places)
	}
	var best *Function
	var rank int
	for _, v := range all {
		if !v.active {
			p.weigh(v) // the plan has not looked at it
		}
		r, possible := p.prospect(dm, v)
		if possible && (best == nil || r < rank) { // 2, 3
			best, rank = v, r
		}
	}
	if best == nil && f.live() >= max(1, f.Spec.MaxScale) {
		return fmt.Sprintf("%s, its max-scale, are awake or on their way, and no other variant of %s can have one more now", many(f.live(), "instance"), f.Spec.VariantOf)
	}
	if best != nil && best != f {
		dm.why = fmt.Sprintf("%s at %s, a variant of %s", dm.why, f.Spec.Name, f.Spec.VariantOf)
		best.starved = f.starved
		dm.f = best
		p.note(best)
	}
	p.elected = append(p.elected, dm.f)
	return ""
}

// overflow adds a demand for requests that wait at f and may go to other variants, if f is at its max-scale.
func (p *plan) overflow(f *Function, ds []demand) []demand {
	if f.enrolled == (group{}) || len(p.w.groups[f.enrolled]) < 2 || f.scaled || f.frozen() || f.refused ||
		f.Shared == 0 || f.Waiting > f.Shared || f.awake < max(1, f.Spec.MaxScale) || f.places() <= f.live() {
		return ds
	}
	f.hot = true
	if !p.due(f, f.WaitingSince.Add(p.pol.ScaleUpAfter)) {
		return ds
	}
	return append(ds, demand{f: f, of: f, class: extra, why: fmt.Sprintf("%d waiting and %d running with %d awake, its max-scale", f.Waiting, f.Running, f.live())})
}

// prospect ranks v as the variant to get one more instance for dm, lower is better.
func (p *plan) prospect(dm *demand, v *Function) (rank int, possible bool) {
	if v.frozen() || v.scaled || v.refused || v.gives || p.failing(v) || v.live()+p.electedOf(v) >= max(1, v.Spec.MaxScale) || !p.due(v, v.RetryAt) {
		return 0, false
	}
	if _, err := p.impossible(v); err != nil {
		return 0, false
	}
	attempt, starved := *dm, v.starved
	attempt.f, v.starved = v, dm.f.starved // as if v had waited as long
	o := p.best(&attempt)
	v.starved = starved
	switch {
	case o == nil && v != dm.f:
		return 0, false
	case o == nil:
		return 3, true
	case o.rank > startIdle:
		return 2, true
	case v.slow():
		return 1, true
	}
	return 0, true
}

// slow reports whether v misses its target even with one request at a time.
func (f *Function) slow() bool {
	target := f.Spec.Target.TTFT
	return target > 0 && f.Load.TTFT > target && f.Waiting+f.Running <= f.awake
}

// placesBeside returns how many requests other variants than f could take in addition to their own.
func (p *plan) placesBeside(f *Function, all []*Function) (n int) {
	for _, v := range all {
		if v != f && !v.frozen() && !v.refused {
			n += max(0, v.capacity(p)-v.Waiting-v.Running)
		}
	}
	return n
}

// capacity returns how many requests f's instances can take that are awake, on their way, or elected in this plan.
func (f *Function) capacity(p *plan) int {
	return (f.awake + f.rising + p.electedOf(f)) * max(1, f.Spec.Concurrency)
}

// electedOf returns how many further instances of f this plan has begun for requests to its model.
func (p *plan) electedOf(f *Function) (n int) {
	for _, v := range p.elected {
		if v == f {
			n++
		}
	}
	return n
}
