package decide

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rouse-dev/rouse/api"
)

// giveGrants gives standing grants: activators may wake a sleeper without asking if its awake memory fits into the free
// memory and no demand needs that. If several fit alone but not together, the likeliest to be needed gets it: the last
// used one, unless the arrivals tell more. It looks only at sleepers of functions that the plan looks at and of dirty
// nodes: nothing changed for others.
func (p *plan) giveGrants() {
	p.grants = make(map[int32][]*Instance)
	cs := p.grantable()
	// Over-committed memory comes back from the grants that were used longest ago.
	for k := len(cs) - 1; k >= 0; k-- {
		if i := cs[k]; i.reserved() && p.available(i) && p.overCommitted(i) {
			p.withdraw(i, "the memory is wanted")
		}
	}
	// While a function has a scale from outside, activators must not wake its instances.
	cs = slices.DeleteFunc(cs, func(i *Instance) bool {
		if i.f.scaled && i.reserved() && p.available(i) {
			p.withdraw(i, i.f.Scale.String())
		}
		return i.f.scaled
	})
	blocked := map[int32]bool{}
	for _, i := range cs {
		if i.settling(p.now) { // its residue is measured first: it comes before the rest
			for _, d := range i.at {
				blocked[d] = true
			}
			continue
		}
		if i.taken || i.Doing != Nothing || slices.ContainsFunc(i.at, func(d int32) bool { return blocked[d] }) {
			continue
		}
		if i.reserved() {
			if !i.f.Spec.DualPods && p.due(i.f, i.Grant.Expires.Add(-p.pol.GrantLife/10)) && p.available(i) && p.backed(i) {
				p.permit(i, "nobody else wants the memory: renewed")
			}
			continue
		}
		if !p.sibling(i) && p.available(i) {
			p.permitIfRoom(i)
		}
	}
}

// grantable lists the sleepers to look at for grants, the likeliest to be needed first.
func (p *plan) grantable() []*Instance {
	var cs []*Instance
	add := func(i *Instance) {
		if !i.seen && p.mayStand(i) {
			i.seen = true
			cs = append(cs, i)
		}
	}
	for _, k := range p.w.dirty(&p.w.grantsWatch) {
		for _, i := range p.w.on[p.w.nodes[k].host] {
			add(i)
		}
	}
	for _, f := range p.noted {
		for _, i := range f.Instances {
			add(i)
		}
	}
	for k := 0; k < len(cs); k++ { // sleepers that settle, or wait for coming memory, come before some of these
		for _, d := range cs[k].at {
			for _, j := range p.w.on[d] {
				if p.coming[d] > 0 || j.settling(p.now) {
					add(j)
				}
			}
		}
	}
	for _, i := range cs {
		i.seen = false
	}
	p.byWanted(cs)
	return cs
}

// mayStand reports whether i may have a standing grant: it sleeps, no demand needs it, the plan has not acted on it,
// and its wake needs nothing from Kubernetes (no claim of GPUs, no requests that its pod gave up).
func (p *plan) mayStand(i *Instance) bool {
	f := i.f
	return !f.Undeclared && (!f.Spec.DualPods || i.reserved()) && !i.taken && !i.lost && !i.Status.Shrunk && i.phase == phaseAsleep && !f.frozen() && f.live() == 0 && f.desired == 0
}

// wanted orders sleepers, the likeliest to be needed first.
func (p *plan) wanted(a, b *Instance) int {
	a.key, b.key = p.likely(a), p.likely(b)
	return compareKeys(a, b)
}

// compareKeys orders sleepers by their keys, the later first.
func compareKeys(a, b *Instance) int {
	return cmp.Or(
		b.key.Compare(a.key),
		cmp.Compare(a.Status.Level, b.Status.Level),
		cmp.Compare(a.f.Spec.Name, b.f.Spec.Name),
		cmp.Compare(a.Status.Instance, b.Status.Instance))
}

// byWanted sorts sleepers, the likeliest to be needed first.
func (p *plan) byWanted(is []*Instance) {
	for _, i := range is {
		i.key = p.likely(i)
	}
	slices.SortFunc(is, compareKeys)
}

// sibling reports whether another sleeper of i's function comes before i: it has the grant, or is the next to get it.
func (p *plan) sibling(i *Instance) bool {
	return slices.ContainsFunc(i.f.Instances, func(b *Instance) bool {
		return b != i && b.phase == phaseAsleep && !b.lost && (!b.taken || b.permitted) && p.wanted(b, i) < 0
	})
}

// overCommitted reports whether i's reservation exceeds the memory that is there.
func (p *plan) overCommitted(i *Instance) bool {
	res := p.residue(i, i.Status.Level)
	for k, d := range i.at {
		if i.held[k] > res[k] && p.free[d]+p.coming[d] < 0 {
			return true
		}
	}
	return false
}

// backed reports whether the memory of i's reservation is there now: memory granted by an earlier leader may be in use
// by another instance, or not yet released.
func (p *plan) backed(i *Instance) bool {
	res := p.residue(i, i.Status.Level)
	for k, d := range i.at {
		if i.held[k] > res[k] && p.free[d] < 0 {
			return false
		}
	}
	return true
}

// withdraw revokes i's grant.
func (p *plan) withdraw(i *Instance, reason string) {
	p.do(i.f, i, Action{Kind: Revoke, Reason: reason})
	i.permitted = true
	p.leave(i, p.residue(i, i.Status.Level))
}

// permit gives i a grant; its memory must be booked.
func (p *plan) permit(i *Instance, reason string) {
	p.do(i.f, i, Action{Kind: Grant, Devices: i.Status.Devices, Memory: i.f.Need, Expires: p.now.Add(p.pol.GrantLife), Reason: reason})
	i.permitted = true
}

// permitIfRoom gives i a grant if its memory is free, or becomes free by revoking grants of sleepers that are less
// likely to be needed. It waits for coming memory: what was revoked for i must not go to a less likely one in between.
func (p *plan) permitIfRoom(i *Instance) {
	needs := p.minus(i.up, i.held)
	if within(needs, i.at, p.free) {
		free := p.room(i.at)
		for k, d := range i.at {
			p.spend(d, -needs[k], 0)
		}
		p.permit(i, fmt.Sprintf("asleep at level %d; needs %s more, free %s and nobody else wants it", i.Status.Level, p.left(i.at, needs), free))
		return
	}
	short := p.alloc(len(i.at))
	for k, d := range i.at {
		p.slotOf[d] = int32(k)
		if needs[k] > 0 {
			short[k] = max(0, needs[k]-p.free[d]-max(0, p.coming[d]))
		}
	}
	var from []*Instance
	for _, w := range p.lesser(i, short) {
		freed := p.project(w, p.minus(w.held, p.residue(w, w.Status.Level)), len(i.at))
		if met(short) || !helps(freed, needs) {
			continue
		}
		for k := range short {
			short[k] -= freed[k]
		}
		from = append(from, w)
	}
	for _, d := range i.at {
		p.slotOf[d] = -1
	}
	if !met(short) {
		return
	}
	for _, w := range from {
		p.withdraw(w, i.f.likelier(w.f))
	}
	p.book(amounts{i.at, needs}) // the grant follows when the revocations are acknowledged
}

// lesser lists the less likely grants on the devices that i lacks memory of, the least likely first.
func (p *plan) lesser(i *Instance, short bytes) []*Instance {
	var ws []*Instance
	likely := p.likely(i)
	for k, d := range i.at {
		if short[k] <= 0 {
			continue
		}
		standing := p.standing(d)
		for j := len(standing) - 1; j >= 0 && standing[j].key.Before(likely); j-- {
			if w := standing[j]; w.f != i.f && !w.seen && p.mayStand(w) && p.available(w) {
				w.seen = true
				ws = append(ws, w)
			}
		}
	}
	for _, w := range ws {
		w.seen = false
	}
	p.byWanted(ws)
	slices.Reverse(ws)
	return ws
}

// standing lists the sleepers that had a grant on d when giveGrants began, the likeliest to be needed first.
func (p *plan) standing(d int32) []*Instance {
	if is, found := p.grants[d]; found {
		return is
	}
	var is []*Instance
	for _, i := range p.w.on[d] {
		if i.reserved() && p.mayStand(i) {
			is = append(is, i)
		}
	}
	p.byWanted(is)
	p.grants[d] = is
	return is
}

// within reports whether the devices at have the needed free memory.
func within(needs []api.Bytes, at []int32, free bytes) bool {
	for k, n := range needs {
		if n > 0 && n > free[at[k]] {
			return false
		}
	}
	return true
}
