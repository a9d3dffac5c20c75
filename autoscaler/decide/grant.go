package decide

import (
	"cmp"
	"fmt"
	"slices"
)

// grant gives standing grants: a sleeper whose awake memory fits into what is
// left, and that nobody claims, may be woken by activators without asking. Of
// several that fit alone but not together the one that was used last gets it,
// because it is the likeliest to be wanted.
func (p *plan) grant() {
	var cs []*inst
	for k := range p.is {
		i := &p.is[k]
		if i.f == nil || i.taken || i.phase != phaseAsleep || i.f.frozen() || i.f.live() > 0 || i.f.desired > 0 {
			continue
		}
		cs = append(cs, i)
	}
	slices.SortStableFunc(cs, func(a, b *inst) int {
		return cmp.Or(p.usedUntil(b, 1).Compare(p.usedUntil(a, 1)), cmp.Compare(a.Status.Level, b.Status.Level))
	})
	// Memory that is over-committed to grants comes back from whoever was used longest ago.
	for k := len(cs) - 1; k >= 0; k-- {
		if i := cs[k]; i.reserved(p.now) && p.quiet(i) && p.overCommitted(i) {
			p.withdraw(i, "the memory is wanted")
		}
	}
	for k, i := range cs {
		if i.settling(p.now) {
			break // what it leaves is measured first: it comes before the rest
		}
		if i.taken || i.Doing != Nothing {
			continue
		}
		if i.reserved(p.now) {
			if p.due(i.Grant.Expires.Add(-p.pol.GrantLife/10)) && p.quiet(i) {
				p.permit(i, "nobody else wants the memory: renewed")
			}
			continue
		}
		if !sibling(cs[:k], i) && p.quiet(i) {
			p.permitIfRoom(i, cs[k+1:])
		}
	}
}

// sibling says whether another sleeper of i's function has the grant, or gets it in this plan.
func sibling(before []*inst, i *inst) bool {
	return slices.ContainsFunc(before, func(b *inst) bool { return b.f == i.f })
}

// overCommitted says whether i's reservation stands on memory that is not there.
func (p *plan) overCommitted(i *inst) bool {
	res := p.residue(i, i.Status.Level)
	for d, h := range i.held {
		if h > res[d] && p.free[d]+p.coming[d] < 0 {
			return true
		}
	}
	return false
}

// withdraw takes back i's grant.
func (p *plan) withdraw(i *inst, reason string) {
	p.do(i, Action{Kind: Revoke, Reason: reason})
	for d, r := range p.residue(i, i.Status.Level) {
		p.coming[d] += max(0, i.held[d]-r)
	}
}

// permit gives i a grant; its memory must be booked.
func (p *plan) permit(i *inst, reason string) {
	p.do(i, Action{Kind: Grant, Devices: i.Status.Devices, Memory: i.f.Need, Expires: p.now.Add(p.pol.GrantLife), Reason: reason})
}

// permitIfRoom gives i a grant if its memory is free, or becomes free by taking
// the grants of those that were used longer ago.
func (p *plan) permitIfRoom(i *inst, after []*inst) {
	needs := p.minus(i.up, i.held)
	if within(needs, p.free) {
		free := p.s.left(p.free)
		for d, n := range needs {
			p.free[d] -= n
		}
		p.permit(i, fmt.Sprintf("asleep at level %d; needs %s more, free %s and nobody else wants it", i.Status.Level, p.s.left(needs), free))
		return
	}
	have := slices.Clone(p.free)
	var from []*inst
	for k := len(after) - 1; k >= 0; k-- {
		w := after[k]
		if !w.reserved(p.now) || w.f == i.f || !p.quiet(w) || !p.usedUntil(w, 1).Before(p.usedUntil(i, 1)) {
			continue
		}
		freed := p.minus(w.held, p.residue(w, w.Status.Level))
		if !helps(freed, needs) {
			continue
		}
		for d := range have {
			have[d] += freed[d]
		}
		from = append(from, w)
		if within(needs, have) {
			for _, w := range from {
				p.withdraw(w, fmt.Sprintf("%s was used later and is likelier to be wanted", i.f.Spec.Name))
			}
			for d, n := range needs {
				p.free[d] -= n // booked: the grant follows when the revocations are acknowledged
			}
			return
		}
	}
}

// within says whether free holds needs.
func within(needs, free bytes) bool {
	for d, n := range needs {
		if n > 0 && n > free[d] {
			return false
		}
	}
	return true
}
