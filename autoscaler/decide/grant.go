package decide

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rouse-dev/rouse/api"
)

// giveGrants gives standing grants: a sleeper whose awake memory fits into what is
// left, and that no demand needs, may be woken by activators without asking. Of
// several that fit alone but not together the one that is the likeliest to be wanted
// gets it: the one that was used last, as far as its past says nothing better. It looks at the sleepers of what
// has changed: of functions that the plan looks at, and of dirty nodes. For all others nothing can have come of it.
func (p *plan) giveGrants() {
	p.grants = make(map[int32][]*Instance)
	cs := p.grantable()
	// Memory that is over-committed to grants comes back from those that were used longest ago.
	for k := len(cs) - 1; k >= 0; k-- {
		if i := cs[k]; i.reserved() && p.available(i) && p.overCommitted(i) {
			p.withdraw(i, "the memory is wanted")
		}
	}
	// No activator is to wake an instance of a function that was scaled to a number from outside.
	cs = slices.DeleteFunc(cs, func(i *Instance) bool {
		if i.f.scaled && i.reserved() && p.available(i) {
			p.withdraw(i, i.f.Scale.String())
		}
		return i.f.scaled
	})
	blocked := map[int32]bool{}
	for _, i := range cs {
		if i.settling(p.now) { // what it leaves is measured first: it comes before the rest
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

// grantable lists the sleepers to look at for grants, the likeliest to be wanted first.
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
	for k := 0; k < len(cs); k++ { // those that settle, or wait for what is on its way, come before some of these
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

// mayStand says whether i is a sleeper that no demand needs and nothing was decided of, and that needs
// no claim of GPUs, and none of what its pod has given up, from Kubernetes before it may wake.
func (p *plan) mayStand(i *Instance) bool {
	f := i.f
	return !f.Undeclared && (!f.Spec.DualPods || i.reserved()) && !i.taken && !i.lost && !i.Status.Shrunk && i.phase == phaseAsleep && !f.frozen() && f.live() == 0 && f.desired == 0
}

// wanted orders sleepers, the likeliest to be wanted first.
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

// byWanted sorts sleepers, the likeliest to be wanted first.
func (p *plan) byWanted(is []*Instance) {
	for _, i := range is {
		i.key = p.likely(i)
	}
	slices.SortFunc(is, compareKeys)
}

// sibling says whether another sleeper of i's function comes before it: that one
// has the grant, or is the one to get it.
func (p *plan) sibling(i *Instance) bool {
	return slices.ContainsFunc(i.f.Instances, func(b *Instance) bool {
		return b != i && b.phase == phaseAsleep && !b.lost && (!b.taken || b.permitted) && p.wanted(b, i) < 0
	})
}

// overCommitted says whether i's reservation stands on memory that is not there.
func (p *plan) overCommitted(i *Instance) bool {
	res := p.residue(i, i.Status.Level)
	for k, d := range i.at {
		if i.held[k] > res[k] && p.free[d]+p.coming[d] < 0 {
			return true
		}
	}
	return false
}

// backed says whether i's reservation stands on memory that is there now: what one before us
// has granted may be in use by another, or not have been left yet.
func (p *plan) backed(i *Instance) bool {
	res := p.residue(i, i.Status.Level)
	for k, d := range i.at {
		if i.held[k] > res[k] && p.free[d] < 0 {
			return false
		}
	}
	return true
}

// withdraw takes back i's grant.
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

// permitIfRoom gives i a grant if its memory is free, or becomes free by taking
// the grants of those that are less likely to be wanted. What is on its way already is waited for: who
// is less likely to be wanted does not get what was taken for i in between.
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

// lesser lists the grants on what i is short of that are less likely to be used, the least first.
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

// standing lists the sleepers that have a grant on d when grants begin to be looked at,
// the likeliest to be wanted first.
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

// within says whether free holds what is needed of the devices at.
func within(needs []api.Bytes, at []int32, free bytes) bool {
	for k, n := range needs {
		if n > 0 && n > free[at[k]] {
			return false
		}
	}
	return true
}
