package decide

import (
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// A claim that waits is served in every plan, for it is told each time what it waits for. What
// that takes is kept small by what is known from the plan before: the claim meets the
// accounts that it met then, but for the devices in [plan.changed]:
//
//  1. those whose account is another than at the last plan
//  2. those of which anything was booked otherwise than in the last plan, by what comes
//     before the claims or by claims that come before it in both plans
//  3. those that claims have booked which come before it in one of the two plans only
//
// Each claim compares what it books with what it booked in the last plan. So a change goes
// on to the claims behind it as far as it matters to them, and the order in which they are
// served stays what it is.

// served is how a claim was served in the last plan.
type served struct {
	// plan is the number of that plan, order its place among the claims of it.
	plan  uint64
	order int
	rank  rank
	// steady says that the plan under way serves it in the same order with all others that are
	// steady, and that what the others had booked is in [plan.changed].
	steady bool
	booked []booking
	lists  []*shortlist
}

// rank is what the order of claims turns on.
type rank struct {
	late     bool
	class    class
	priority int
	starved  time.Time // zero for now
}

// booking is what was booked of a device, or is deferred until all first instances are served; or says
// that an instance was dealt with whose function has something of the device.
type booking struct {
	entry
	deferred bool
	dealt    *inst
}

// account is that of one device.
type account struct{ free, coming, soft api.Bytes }

func (w *World) account(d int32) account { return account{w.free[d], w.coming[d], w.soft[d]} }

// touch notes that the account of d is about to change for other reasons than a plan's bookings.
func (w *World) touch(d int32) {
	if m := &w.marks[d]; !m.touched {
		m.touched, m.was = true, w.account(d)
	}
}

// recall looks up how the claims, which are in their order, were served in the last plan.
func (p *plan) recall(cs []claim) {
	p.compare(&p.w.early, p.booked)
	now := p.w.plans
	for _, s := range p.w.line {
		s.steady = false
	}
	line := make([]*served, len(cs))
	last := -1
	for k := range cs {
		c := &cs[k]
		for len(c.f.served) <= c.nth {
			c.f.served = append(c.f.served, &served{})
		}
		s, r := c.f.served[c.nth], c.rank(p.now)
		if s.steady = s.plan == now-1 && s.rank == r && s.order > last; s.steady {
			last = s.order
		}
		c.was, line[k], s.rank = s, s, r
	}
	for _, s := range p.w.line {
		if !s.steady {
			p.compare(&s.booked, nil)
		}
	}
	for k, s := range line {
		if !s.steady {
			s.booked = s.booked[:0]
		}
		s.plan, s.order = now, k
	}
	for _, s := range p.w.line {
		if s.plan != now {
			*s = served{}
		}
	}
	p.w.line = line
}

// rank is c's.
func (c *claim) rank(now time.Time) rank {
	r := rank{late: c.late, class: c.class, priority: c.f.Spec.Priority, starved: c.f.starved}
	if r.starved.Equal(now) {
		r.starved = time.Time{}
	}
	return r
}

// compare takes the devices of which something else was booked than before into those that have changed.
func (p *plan) compare(was *[]booking, booked []booking) {
	if slices.Equal(*was, booked) {
		return
	}
	for _, b := range *was {
		p.change(b.device)
	}
	for _, b := range booked {
		p.change(b.device)
	}
	*was = append((*was)[:0], booked...)
}

// change notes that d is not what it was for the claims that follow.
func (p *plan) change(d int32) {
	if p.stirred[d]&changed == 0 {
		p.stirred[d] |= changed
		p.changed = append(p.changed, d)
	}
}

// stir says what has happened on a device.
type stir uint8

const (
	changed stir = 1 << iota // its account is another
	others                   // somebody who has something of it shows another face
)
