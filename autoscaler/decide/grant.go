package decide

import (
	"cmp"
	"fmt"
	"slices"
)

type granter struct {
	*plan
	// standing are the sleepers with a grant, by device, the likeliest to be needed first.
	standing [][]*instance
}

// giveGrants gives grants to sleepers whose awake memory fits into free memory that no demand needs, the likeliest to
// be needed first.
func (p *plan) giveGrants() {
	g := &granter{plan: p, standing: make([][]*instance, len(p.devs))}
	var cs []*instance
	for _, f := range p.fs {
		for _, i := range f.instances {
			if p.mayHaveGrant(i) {
				cs = append(cs, i)
			}
		}
	}
	slices.SortFunc(cs, compareNeed)
	for _, i := range cs {
		for _, d := range i.at {
			if i.reserved() {
				g.standing[d] = append(g.standing[d], i)
			}
		}
	}
	for k := len(cs) - 1; k >= 0; k-- {
		if i := cs[k]; i.reserved() && p.available(i) && p.overCommitted(i, true) {
			p.revoke(i, "the memory is wanted")
		}
	}
	// While a function has a scale from outside, activators must not wake its instances.
	cs = slices.DeleteFunc(cs, func(i *instance) bool {
		if i.f.scaled && i.reserved() && p.available(i) {
			p.revoke(i, i.f.Scale.String())
		}
		return i.f.scaled
	})
	blocked := map[int32]bool{}
	for _, i := range cs {
		if i.settling(p.now) { // its residue is measured first
			for _, d := range i.at {
				blocked[d] = true
			}
			continue
		}
		if i.taken || i.Doing != Nothing || slices.ContainsFunc(i.at, func(d int32) bool { return blocked[d] }) {
			continue
		}
		if i.reserved() {
			if !i.f.Spec.DualPods && p.due(i.Grant.Expires.Add(-p.pol.GrantLife/10)) && p.available(i) && !p.overCommitted(i, false) {
				p.giveGrant(i, i.at, "nobody else wants the memory: renewed")
			}
			continue
		}
		if !i.wanted && !g.hasLikelierSibling(i) && p.available(i) {
			g.grantIfRoom(i)
		}
	}
}

// mayHaveGrant reports whether i may have a standing grant. Its wake must need nothing from Kubernetes.
func (p *plan) mayHaveGrant(i *instance) bool {
	f := i.f
	return !f.Undeclared && (!f.Spec.DualPods || i.reserved()) && !i.taken && !i.lost && !i.Status.Shrunk && i.phase == phaseAsleep && !f.frozen() && f.live() == 0 && f.desired == 0
}

func compareNeed(a, b *instance) int {
	return cmp.Or(
		b.key.Compare(a.key),
		cmp.Compare(a.Status.Level, b.Status.Level),
		cmp.Compare(a.f.Spec.Name, b.f.Spec.Name),
		cmp.Compare(a.Status.Instance, b.Status.Instance))
}

func (g *granter) hasLikelierSibling(i *instance) bool {
	return slices.ContainsFunc(i.f.instances, func(b *instance) bool {
		return b != i && b.phase == phaseAsleep && !b.lost && (!b.taken || b.grantChanged) && compareNeed(b, i) < 0
	})
}

// giveGrant gives i a grant; its memory must be booked.
func (p *plan) giveGrant(i *instance, at []int32, reason string) {
	p.addAction(i.f, i, Action{Kind: Grant, Devices: p.namesOf(i, at), Memory: i.f.Need, Expires: p.now.Add(p.pol.GrantLife), Reason: reason})
	i.grantChanged = true
}

// grantIfRoom gives i a grant if its memory is free, or revokes less likely ones for it. It books the coming memory,
// which must not go to another in between.
func (g *granter) grantIfRoom(i *instance) {
	os := g.searchFor(nil, i.f).wakings(i)
	if len(os) == 0 {
		return
	}
	at, needs := os[0].at, os[0].needs
	if os[0].fits(g.free, nil) {
		free := g.formatFree(at)
		for k, d := range at {
			g.spend(d, -needs[k], 0)
		}
		g.giveGrant(i, at, fmt.Sprintf("asleep at level %d; needs %s more, free %s and nobody else wants it", i.Status.Level, g.formatAmounts(at, needs), free))
		return
	}
	short := g.alloc(len(at))
	for k, d := range at {
		if needs[k] > 0 {
			short[k] = max(0, needs[k]-g.free[d]-max(0, g.coming[d]))
		}
	}
	var from []*instance
	for _, w := range g.lessLikely(i, at, short) {
		freed := g.released(w, w.held, w.Status.Memory, at)
		if met(short) || !helps(freed, needs) {
			continue
		}
		for k := range short {
			short[k] -= freed[k]
		}
		from = append(from, w)
	}
	if !met(short) {
		return
	}
	for _, w := range from {
		g.revoke(w, i.f.likelier(w.f.Function))
	}
	g.book(amounts{at, needs}) // the grant follows when the revocations are acknowledged
}

func (g *granter) lessLikely(i *instance, at []int32, short bytes) (ws []*instance) {
	for k, d := range at {
		if short[k] <= 0 {
			continue
		}
		standing := g.standing[d]
		for j := len(standing) - 1; j >= 0 && standing[j].key.Before(i.key); j-- {
			if w := standing[j]; w.f != i.f && g.mayHaveGrant(w) && g.available(w) {
				ws = append(ws, w)
			}
		}
	}
	slices.SortFunc(ws, func(a, b *instance) int { return compareNeed(b, a) })
	return slices.Compact(ws)
}
