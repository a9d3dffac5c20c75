package decide

import (
	"cmp"
	"slices"
	"time"
)

// finding is what [plan.best] has found for a claim. It is found again where nothing can have come
// in between that makes it another:
//
//  1. the function and its instances are the same, and so is what the search turns on of the claim
//  2. nothing has changed on the devices that were looked at, neither their accounts nor
//     who is there (see [face]), nor what was done there for claims that are served before (see [served])
//  3. no other place is among the best
//  4. no time has come that the search compared with now, and no two regrets that it compared,
//     both of which change as time passes, can have changed their order
type finding struct {
	// made is the number of the plan that it was made in, plan that of the last in which it held; edition is
	// that of the function.
	made, plan, edition uint64
	class               class
	starved             time.Time // of a first instance, which may interrupt who works
	way                 *option   // nil: there is none
	reads               []int32   // the devices that were looked at
	until               time.Time // from when it may be another, zero: never
	look                time.Time // when the search wanted a look, zero: never
}

// best finds the best way for c, nil if there is none. What is returned may
// have to wait: for memory on its way, or until its victims are ready.
func (p *plan) best(c *claim) *option {
	l := c.was.shortlist(c.f)
	f := &l.found
	if !p.holds(c, l) {
		p.reads, p.until, p.fickle, p.look = p.reads[:0], time.Time{}, false, time.Time{}
		l.spotted = false
		way := p.find(c)
		*f = finding{made: p.w.plans, edition: c.f.edition, class: c.class, way: way.clone(), reads: append(f.reads[:0], p.reads...), until: p.until, look: p.look}
		if c.class == first {
			f.starved = c.f.starved
		}
		if p.fickle {
			f.until = p.now.Add(1)
		}
	}
	f.plan = p.w.plans
	p.at(c.f, f.look)
	return f.way
}

// holds says whether what was found for c in the last plan, or in this one, is found again.
func (p *plan) holds(c *claim, l *shortlist) bool {
	f, now := &l.found, p.w.plans
	if f.edition != c.f.edition || f.class != c.class || c.class == first && !f.starved.Equal(c.f.starved) || !f.until.IsZero() && !p.now.Before(f.until) { // 1, 4
		return false
	}
	if f.plan == now {
		return true
	}
	if f.plan != now-1 || !c.was.steady || slices.ContainsFunc(f.reads, func(d int32) bool { return p.stirred[d] != 0 }) { // 2
		return false
	}
	return !l.spotted || p.same(c, l) // 3
}

// clone is o with memory of its own, nil for nil.
func (o *option) clone() *option {
	if o == nil {
		return nil
	}
	c := *o
	c.at, c.needs, c.own, c.touches = slices.Clone(o.at), slices.Clone(o.needs), slices.Clone(o.own), slices.Clone(o.touches)
	c.victims = slices.Clone(o.victims)
	for k := range c.victims {
		c.victims[k].frees = nil // nobody asks any more
	}
	return &c
}

// lapse notes that what is being found may be another from t on.
func (p *plan) lapse(t time.Time) {
	if t.After(p.now) && (p.until.IsZero() || t.Before(p.until)) {
		p.until = t
	}
}

// regret is a time that is lost, in seconds, and by how much it changes in a second at most, for as long
// as what is found by it holds.
type regret struct{ v, pace float64 }

// compareRegrets orders regrets, and notes when they may be in another order.
func (p *plan) compareRegrets(a, b regret) int {
	if pace := a.pace + b.pace; pace > 0 {
		gap := max(a.v, b.v) - min(a.v, b.v)
		if gap <= 1e-6*max(a.v, b.v) { // too near to tell for how long
			p.fickle = true
		} else if left := 0.9 * gap / pace; left < 1e6 {
			p.lapse(p.now.Add(time.Duration(left*float64(time.Second)) + 1))
		}
	}
	return cmp.Compare(a.v, b.v)
}
