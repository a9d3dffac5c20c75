package decide

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// class ranks demands.
type class int

const (
	first class = iota // requests wait and no instance is awake or on its way
	kept               // MinScale, or a scale from outside
	extra              // one more in addition to those awake
	ahead              // no request waits, but one is predicted; see foresee.go
)

// demand is a function's demand for one more awake instance.
type demand struct {
	f     *function
	class class
	// late says that the function has starved for four turns and is served before all others.
	late bool
	// nth numbers the demands of a function.
	nth int
	why string
	// from is the time when a predicted demand begins.
	from time.Time
	// rehearsal says that it is for waking a sleeper after its rehearsal.
	rehearsal bool
}

// queue is the demands of one plan.
type queue struct {
	*plan
	groups map[group][]*function // see chooseVariant
	// deferred are the needs of waiting demands that have not been booked yet.
	deferred []amounts
	// chosen has one entry for each further instance that this plan chose for requests to a model with variants.
	chosen []*function
}

// meetDemands collects the demands and serves them in order:
//
//  1. demands that have starved for too long, the longest first, whatever the priority
//  2. first instances, then MinScale, then further ones, then predicted demands
//  3. the higher priority
//  4. the longer starvation
//  5. the name and the number of the demand, so that the order is deterministic
func (p *plan) meetDemands() {
	q := &queue{plan: p, groups: groupsOf(p.fs)}
	var order []*demand
	for _, f := range p.fs {
		order = q.demandsOf(f, order)
	}
	slices.SortFunc(order, (*demand).compare)
	for _, dm := range order {
		if dm.class != first {
			q.bookDeferred()
		}
		q.serveDemand(dm)
	}
	q.bookDeferred()
}

// compare orders demands, the one to serve first before others.
func (dm *demand) compare(d *demand) int {
	if dm.late != d.late {
		return cmp.Compare(btoi(d.late), btoi(dm.late))
	}
	if !dm.late && (dm.class != d.class || dm.f.Spec.Priority != d.f.Spec.Priority) {
		return cmp.Or(cmp.Compare(dm.class, d.class), cmp.Compare(d.f.Spec.Priority, dm.f.Spec.Priority))
	}
	if way := dm.f.starved.Compare(d.f.starved); way != 0 {
		return way
	}
	return cmp.Or(cmp.Compare(dm.f.Spec.Name, d.f.Spec.Name), cmp.Compare(dm.nth, d.nth))
}

// bookDeferred books the needs of first instances that have to wait, before others are served.
func (q *queue) bookDeferred() {
	for _, needs := range q.deferred {
		q.book(needs)
	}
	q.deferred = q.deferred[:0]
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// mostDemands bounds the demands of one function in one plan; the rest follows in later ones.
const mostDemands = 16

// demandsOf appends f's demands to ds.
func (q *queue) demandsOf(f *function, ds []*demand) []*demand {
	if f.scaled && f.desired == 0 && f.Waiting > 0 && f.live() == 0 {
		q.plan.wait(f, fmt.Sprintf("%d waiting, and %s", f.Waiting, f.Scale))
	}
	if f.Undeclared || f.frozen() || f.refused || f.desired <= f.live() {
		return q.overflowDemand(f, q.predictedDemand(f, ds))
	}
	if q.failing(f) && f.Order == OrderNone && f.Spec.MinScale == 0 && !f.unanswered() {
		return ds // it failed, all waiting requests were answered with that, and none has come since
	}
	if q.activatorWakes(f) {
		return ds
	}
	for n := f.live(); n < min(f.desired, f.live()+mostDemands); n++ {
		dm := &demand{f: f, nth: n - f.live()}
		switch {
		case n == 0 && f.Waiting > 0:
			dm.late = q.now.Sub(f.starved) >= patience*q.pol.TurnWait
			dm.why = fmt.Sprintf("%d waiting, none awake", f.Waiting)
		case n == 0 && f.Order == OrderWake:
			dm.why = "asked for"
		case f.scaled:
			dm.class, dm.why = kept, fmt.Sprintf("%d awake or on the way, %s", n, f.Scale)
		case n < f.Spec.MinScale:
			dm.class, dm.why = kept, fmt.Sprintf("%d awake or on the way, min-scale is %d", n, f.Spec.MinScale)
		case f.Waiting > 0 && (n < f.places() || f.awake == 0):
			if f.awake > 0 && !q.due(f.WaitingSince.Add(q.pol.ScaleUpAfter)) {
				return ds
			}
			dm.class = extra
			dm.why = fmt.Sprintf("%d waiting and %d running at %d each want %d, %d awake or on the way",
				f.Waiting, f.Running, f.Spec.Concurrency, f.desired, n)
		case f.pressed:
			if !q.due(later(f.PressedSince.Add(q.pol.ScaleUpAfter), f.settledAt(loadSettle))) {
				return ds
			}
			dm.class, dm.why = extra, fmt.Sprintf("%s; %d awake or on the way", f.pressure, n)
		default:
			return ds // the awake instances are enough
		}
		ds = append(ds, dm)
	}
	return ds
}

// activatorWakes reports whether an activator that holds a grant is about to wake an instance of f itself. It gets a
// moment to begin. An activator that prefers a sleeper without a grant waits for the autoscaler.
func (q *queue) activatorWakes(f *function) bool {
	if f.live() > 0 || f.Waiting == 0 {
		return false
	}
	if f.Prefers != "" && slices.ContainsFunc(f.instances, func(i *instance) bool {
		return i.phase == phaseAsleep && i.Status.Instance == f.Prefers && !i.Grant.Valid(q.now)
	}) {
		return false
	}
	for _, i := range f.instances {
		if i.phase != phaseAsleep || !i.Grant.Valid(q.now) {
			continue
		}
		if i.Doing == DoingGrant || !q.due(later(f.WaitingSince, i.GrantedAt).Add(q.pol.GrantGrace)) {
			return true
		}
	}
	return false
}
