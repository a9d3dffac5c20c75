package decide

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
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
	// late says that the function has starved for Policy.Patience turns and is served before all others.
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
	groups map[group][]*function // see elect
	// deferred are the needs of waiting demands that have not been booked yet.
	deferred []amounts
	// elected has one entry for each further instance that this plan chose for requests to a model with variants.
	elected []*function
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
		q.serve(dm)
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
		return q.overflow(f, q.foreseen(f, ds))
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
			patience := time.Duration(q.pol.Patience) * q.pol.TurnWait
			dm.late = q.now.Sub(f.starved) >= patience
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
			if !q.due(later(f.PressedSince.Add(q.pol.ScaleUpAfter), f.settledAt(q.pol.LoadSettle))) {
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

// serve gives dm an instance, makes room for it, or records why it waits.
func (q *queue) serve(dm *demand) {
	if dm.f.refused || dm.f.gives {
		return
	}
	if dm.class == ahead {
		q.serveAhead(dm)
		return
	}
	if why := q.elect(dm); why != "" {
		q.wait(dm, why)
		return
	}
	f := dm.f
	// 1. It failed recently: not yet.
	if !q.due(f.RetryAt) {
		q.wait(dm, fmt.Sprintf("the last try failed: %s; the next is at %s", f.LastError, f.RetryAt.Format("15:04:05.000")))
		return
	}
	// 2. It never fits on the existing nodes.
	if reason, err := q.impossible(f.Function, q.pol.Advice); err != nil {
		if q.s.Elastic {
			q.startOnNodeToCome(dm, reason)
		} else if f.asking() {
			q.fail(f, err, reason)
		} else {
			q.wait(dm, reason)
		}
		return
	}
	// 3. One of its own instances is going to sleep or changing its grant: if it still drains and nobody needs its memory,
	// cancel that; otherwise it will be the one to wake.
	o := q.best(dm)
	if o == nil || o.self == nil && f.falling+f.passing > 0 {
		if !q.keep(dm) {
			q.explain(dm)
		}
		return
	}
	// 4. The best way.
	q.follow(dm, o)
}

// keep cancels the sleep of an instance of dm's function that drains because it was not needed. Its memory is its own
// until it sleeps.
func (q *queue) keep(dm *demand) bool {
	for _, i := range dm.f.instances {
		if i.Returns && i.Doing == DoingSleep && (i.Status.State == api.Draining || i.Status.State == api.Awake) && !i.taken {
			q.do(dm.f, i, Action{Kind: Keep, Reason: dm.why + ": it need not sleep"})
			return true
		}
	}
	return false
}

// explain records why nothing can be done for a demand, and books coming memory for it.
func (q *queue) explain(dm *demand) {
	if dm.f.passing > 0 {
		return // a matter of microseconds
	}
	if dm.f.falling > 0 {
		q.wait(dm, "its own instance is on its way to sleep and is woken after that")
		return
	}
	need := dm.f.Need
	if pinned := q.pinnedBeside(dm.f); pinned > 0 && need.Host > q.largest-pinned && dm.f.Certain && dm.f.asking() {
		q.fail(dm.f, noCapacity("%s needs %s of host memory for one instance; of %s, functions with min-scale keep %s: %s, or lower min-scale or %s",
			dm.f.Spec.Name, need.Host, q.largest, pinned, q.pol.Advice.Memory, api.AnnotationMemory),
			fmt.Sprintf("needs %s, %s of %s are kept by min-scale", need.Host, pinned, q.largest))
		return
	}
	n := q.roomiest()
	q.bookAhead(dm, amounts{[]int32{n.host}, bytes{need.Host}})
	at := []int32{n.host}
	if need.Devices > 0 {
		at = append(at, n.gpus...)
	}
	where := ""
	if len(q.nodes) > 1 {
		where = " on " + n.name
	}
	q.wait(dm, fmt.Sprintf("needs %s, free %s%s and nothing can make room now", amountOf(need), q.room(at), where))
}

// pinnedBeside returns the host memory that min-scale keeps for other functions than f, of the only node.
func (q *queue) pinnedBeside(f *function) (sum api.Bytes) {
	if len(q.nodes) > 1 {
		return 0
	}
	for _, g := range q.fs {
		if g != f {
			sum += g.pinned()
		}
	}
	return sum
}

// wait records that dm has to wait, once for each function.
func (q *queue) wait(dm *demand, reason string) {
	if dm.class != ahead { // no request waits for a predicted demand
		q.plan.wait(dm.f, reason)
	}
}

// Impossible says why f can never have an instance on these devices; empty: it can.
func (t *Topology) Impossible(f *Function) string {
	if len(t.devs) == 0 {
		return ""
	}
	reason, _ := t.impossible(f, Advice{})
	return reason
}

// impossible says why f can never have an instance on these devices; the error is nil if it can. The number of GPUs it
// needs is declared; the memory it needs of them may be a guess. An instance is on one node, so the largest one counts.
func (t *Topology) impossible(f *Function, advice Advice) (string, *api.Error) {
	need, largest := f.Need, t.largest
	of, show := "", "shows"
	if len(t.nodes) > 1 {
		of, show = " on one node", "shows, on its largest node,"
	}
	if f.Certain && need.Host > largest {
		there := "there are " + largest.String()
		if of != "" {
			there = "the largest node has " + largest.String()
		}
		return fmt.Sprintf("needs %s of host memory%s, %s", need.Host, of, there),
			noCapacity("%s needs %s of host memory for one instance and may use %s: %s, or lower %s",
				f.Spec.Name, need.Host, largest, advice.Memory, api.AnnotationMemory)
	}
	if need.Devices == 0 {
		return "", nil
	}
	v := t.feasible(need)
	if v.gpus < need.Devices {
		there := fmt.Sprintf("there are %d", v.gpus)
		if of != "" {
			there = fmt.Sprintf("the largest node has %d", v.gpus)
		}
		return fmt.Sprintf("needs %s%s, %s", many(need.Devices, "GPU"), of, there),
			noCapacity("%s needs %s for one instance and %s %s %d: %s",
				f.Spec.Name, many(need.Devices, "GPU"), advice.Place, show, v.gpus, advice.Devices)
	}
	if v.fits || !f.Certain {
		return "", nil
	}
	if of != "" && v.large >= need.PerDevice {
		return fmt.Sprintf("needs %s on one node, and none has all of that", amountOf(need)),
			noCapacity("%s needs %s on one node and no node of %s has all of that: lower %s or %s",
				f.Spec.Name, amountOf(need), advice.Place, api.AnnotationMemory, api.AnnotationDeviceMemory)
	}
	return fmt.Sprintf("needs %s on each of %s, the largest has %s", need.PerDevice, many(need.Devices, "GPU"), v.large),
		noCapacity("%s needs %s on each of %s and the largest has %s: lower %s",
			f.Spec.Name, need.PerDevice, many(need.Devices, "GPU"), v.large, api.AnnotationDeviceMemory)
}

func noCapacity(format string, args ...any) *api.Error {
	e := api.Errorf(http.StatusServiceUnavailable, api.CodeNoCapacity, format, args...)
	e.NoRetry = true
	return e
}
