package decide

import "slices"

// shortlist holds the best places for a new instance of a function, as they were when one
// claim was served. It is brought up to date by the devices that are not what they were
// then (see [plan.changed]), and made from nothing only where too few of its places are left.
type shortlist struct {
	f *fn
	// plan is the number of the plan that it is of, edition that of the function.
	plan, edition uint64
	// spots are the best ones, in order. Unless they are all that there are, no other
	// comes before limit.
	spots []spot
	all   bool
	limit spot
	// spotted says that they were asked for when found was found, there or elsewhere.
	spotted bool
	found   finding
}

// few changed devices are looked at one by one, however small the world is.
const few = 8

// places lists where a new instance may go for c, the best first: one place where
// there is room or soon is, else those where somebody may give way.
func (p *plan) places(c *claim) []spot {
	f, now := c.f, p.w.plans
	l := c.was.shortlist(f)
	switch {
	case l.edition != f.edition, len(p.changed) > few+len(p.w.devs)/8:
		p.list(l)
	case l.plan == now: // it was looked at for this claim already
	case l.plan == now-1 && c.was.steady:
		p.relist(l, p.changed)
	default:
		p.list(l)
	}
	l.plan, l.edition, l.spotted = now, f.edition, true
	return l.spots[:p.shown(l)]
}

// same brings l up to date, and says whether places says the same of it as in the last plan.
func (p *plan) same(c *claim, l *shortlist) bool {
	if l.plan != p.w.plans-1 || l.edition != c.f.edition || len(p.changed) > few+len(p.w.devs)/8 {
		return false
	}
	l.plan = p.w.plans
	shown := p.shown(l)
	return p.relist(l, p.changed) >= shown && p.shown(l) == shown
}

// shown is how many of l's spots are places.
func (p *plan) shown(l *shortlist) int {
	switch {
	case len(l.spots) > 0 && l.spots[0].class <= 1:
		return 1
	case p.large():
		return min(mostSpots, len(l.spots))
	}
	return len(l.spots)
}

// list looks at all places.
func (p *plan) list(l *shortlist) {
	most := p.mostListed()
	l.spots, l.all = l.spots[:0], true
	add := func(s spot) {
		if len(l.spots) == most {
			if l.all = false; s.compare(&l.spots[most-1]) >= 0 {
				return
			}
			l.spots = l.spots[:most-1]
		}
		l.insert(s)
	}
	for k := range p.w.nodes {
		p.spotsOf(l.f, int32(k), -1, add)
	}
	if !l.all {
		l.limit = l.spots[most-1]
	}
}

// relist looks at the places on devices again. Those before place same stay what they are.
func (p *plan) relist(l *shortlist, devices []int32) (same int) {
	same = len(l.spots)
	add := func(s spot) {
		if l.all || s.compare(&l.limit) < 0 {
			same = min(same, l.insert(s))
		}
	}
	for _, d := range devices {
		k, gpu := p.w.of[d], d
		if d == p.w.nodes[k].host {
			gpu = -1
		}
		if gpu >= 0 && l.f.Need.Devices == 0 {
			continue
		}
		there := func(s spot) bool { return s.node == k && (gpu < 0 || s.gpu < 0 || s.gpu == gpu) }
		if at := slices.IndexFunc(l.spots, there); at >= 0 {
			same = min(same, at)
			l.spots = append(l.spots[:at], slices.DeleteFunc(l.spots[at:], there)...)
		}
		p.spotsOf(l.f, k, gpu, add)
	}
	most := p.mostListed()
	switch {
	case l.all:
	case len(l.spots) < most/2:
		p.list(l)
	case len(l.spots) > 2*most:
		l.spots, l.limit = l.spots[:most], l.spots[most-1]
	}
	return same
}

// mostListed is how many places a new list has: twice as many as are looked at, so that
// it lasts for a while.
func (p *plan) mostListed() int {
	if !p.large() {
		return len(p.w.devs)
	}
	return 2 * mostSpots
}

// shortlist is the list of places of f.
func (s *served) shortlist(f *fn) *shortlist {
	for _, l := range s.lists {
		if l.f == f {
			return l
		}
	}
	l := &shortlist{f: f}
	s.lists = append(s.lists, l)
	return l
}

// insert says where s is now.
func (l *shortlist) insert(s spot) (at int) {
	at, _ = slices.BinarySearchFunc(l.spots, s, func(a, b spot) int { return a.compare(&b) })
	l.spots = slices.Insert(l.spots, at, s)
	return at
}
