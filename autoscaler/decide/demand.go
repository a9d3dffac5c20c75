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
	f     *Function
	class class
	// late says that the function has starved for Policy.Patience turns and is served before all others.
	late bool
	// nth numbers the demands of a function.
	nth int
	why string
	// of is the demanding function, if another variant serves it.
	of *Function
	// from is the time when a predicted demand begins.
	from time.Time
	// rehearsal says that it is for waking a sleeper after its rehearsal.
	rehearsal bool
}

// meetDemands collects the demands and serves them in order:
//
//  1. demands that have starved for too long, the longest first, whatever the priority
//  2. first instances, then MinScale, then further ones, then predicted demands
//  3. the higher priority
//  4. the longer starvation
//  5. the name and the number of the demand, so that the order is deterministic
func (p *plan) meetDemands() {
	ds := p.demands[:0]
	for _, f := range p.fs {
		ds = p.demandsOf(f, ds)
	}
	order := p.order[:0] // sort pointers: a demand is large
	for k := range ds {
		order = append(order, &ds[k])
	}
	slices.SortFunc(order, (*demand).compare)
	p.demands, p.order = ds, order
	for _, dm := range order {
		if dm.class != first {
			p.bookDeferred()
		}
		p.serve(dm)
	}
	p.bookDeferred()
	clear(ds) // don't keep removed functions alive
	clear(order)
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
func (p *plan) bookDeferred() {
	for _, needs := range p.deferred {
		p.book(needs)
	}
	p.deferred = p.deferred[:0]
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
func (p *plan) demandsOf(f *Function, ds []demand) []demand {
	if f.scaled && f.desired == 0 && f.Waiting > 0 && f.live() == 0 {
		p.wait(&demand{f: f}, fmt.Sprintf("%d waiting, and %s", f.Waiting, f.Scale))
	}
	if f.Undeclared || f.frozen() || f.refused || f.desired <= f.live() {
		return p.overflow(f, p.foreseen(f, ds))
	}
	if p.failing(f) && f.Order == OrderNone && f.Spec.MinScale == 0 && !f.unanswered() {
		return ds // it failed, all waiting requests were answered with that, and none has come since
	}
	if p.activatorWakes(f) {
		return ds
	}
	for n := f.live(); n < min(f.desired, f.live()+mostDemands); n++ {
		dm := demand{f: f, of: f, nth: n - f.live()}
		switch {
		case n == 0 && f.Waiting > 0:
			patience := time.Duration(p.pol.Patience) * p.pol.TurnWait
			dm.late = p.now.Sub(f.starved) >= patience
			dm.why = fmt.Sprintf("%d waiting, none awake", f.Waiting)
		case n == 0 && f.Order == OrderWake:
			dm.why = "asked for"
		case f.scaled:
			dm.class, dm.why = kept, fmt.Sprintf("%d awake or on the way, %s", n, f.Scale)
		case n < f.Spec.MinScale:
			dm.class, dm.why = kept, fmt.Sprintf("%d awake or on the way, min-scale is %d", n, f.Spec.MinScale)
		case f.Waiting > 0 && (n < f.places() || f.awake == 0):
			if f.awake > 0 && !p.due(f, f.WaitingSince.Add(p.pol.ScaleUpAfter)) {
				return ds
			}
			dm.class = extra
			dm.why = fmt.Sprintf("%d waiting and %d running at %d each want %d, %d awake or on the way",
				f.Waiting, f.Running, f.Spec.Concurrency, f.desired, n)
		case f.pressed:
			if !p.due(f, later(f.PressedSince.Add(p.pol.ScaleUpAfter), f.settledAt(p.pol.LoadSettle))) {
				return ds
			}
			dm.class, dm.why = extra, fmt.Sprintf("%s; %d awake or on the way", f.pressure, n)
		default:
			return ds // the awake instances are enough
		}
		f.hot = true // until it has the desired number
		ds = append(ds, dm)
	}
	return ds
}

// activatorWakes reports whether an activator that holds a grant is about to wake an instance of f itself. It gets a
// moment to begin. An activator that prefers a sleeper without a grant waits for the autoscaler.
func (p *plan) activatorWakes(f *Function) bool {
	if f.live() > 0 || f.Waiting == 0 {
		return false
	}
	if f.Prefers != "" && slices.ContainsFunc(f.Instances, func(i *Instance) bool {
		return i.phase == phaseAsleep && i.Status.Instance == f.Prefers && !i.Grant.Valid(p.now)
	}) {
		return false
	}
	for _, i := range f.Instances {
		if i.phase != phaseAsleep || !i.Grant.Valid(p.now) {
			continue
		}
		if i.Doing == DoingGrant || !p.due(f, later(f.WaitingSince, i.GrantedAt).Add(p.pol.GrantGrace)) {
			return true
		}
	}
	return false
}

// serve gives dm an instance, makes room for it, or records why it waits.
func (p *plan) serve(dm *demand) {
	if dm.f.refused || dm.f.gives {
		return
	}
	if dm.class == ahead {
		p.serveAhead(dm)
		return
	}
	if why := p.elect(dm); why != "" {
		p.wait(dm, why)
		return
	}
	f := dm.f
	// 1. It failed recently: not yet.
	if !p.due(f, f.RetryAt) {
		p.wait(dm, fmt.Sprintf("the last try failed: %s; the next is at %s", f.LastError, f.RetryAt.Format("15:04:05.000")))
		return
	}
	// 2. It never fits on the existing nodes.
	if reason, err := p.impossible(f); err != nil {
		if p.w.elastic {
			p.startOnNodeToCome(dm, reason)
		} else if f.asking() {
			p.fail(f, err, reason)
		} else {
			p.wait(dm, reason)
		}
		return
	}
	// 3. One of its own instances is going to sleep or changing its grant: if it still drains and nobody needs its memory,
	// cancel that; otherwise it will be the one to wake.
	o := p.best(dm)
	if o == nil || o.self == nil && f.falling+f.passing > 0 {
		if !p.keep(dm) {
			p.explain(dm)
		}
		return
	}
	// 4. The best way.
	p.follow(dm, o)
}

// keep cancels the sleep of an instance of dm's function that drains because it was not needed. Its memory is its own
// until it sleeps.
func (p *plan) keep(dm *demand) bool {
	for _, i := range dm.f.Instances {
		if i.Returns && i.Doing == DoingSleep && (i.Status.State == api.Draining || i.Status.State == api.Awake) && !i.taken {
			p.do(dm.f, i, Action{Kind: Keep, Reason: dm.why + ": it need not sleep"})
			return true
		}
	}
	return false
}

// explain records why nothing can be done for a demand, and books coming memory for it.
func (p *plan) explain(dm *demand) {
	if dm.f.passing > 0 {
		return // a matter of microseconds
	}
	if dm.f.falling > 0 {
		p.wait(dm, "its own instance is on its way to sleep and is woken after that")
		return
	}
	need := dm.f.Need
	if pinned := p.w.pinned - dm.f.pinned; pinned > 0 && len(p.w.nodes) == 1 && dm.f.Certain && need.Host > p.w.largest-pinned && dm.f.asking() {
		p.fail(dm.f, noCapacity("%s needs %s of host memory for one instance; of %s, functions with min-scale keep %s: %s, or lower min-scale or %s",
			dm.f.Spec.Name, need.Host, p.w.largest, pinned, p.pol.Advice.Memory, api.AnnotationMemory),
			fmt.Sprintf("needs %s, %s of %s are kept by min-scale", need.Host, pinned, p.w.largest))
		return
	}
	n := p.roomiest()
	p.bookAhead(dm, amounts{[]int32{n.host}, bytes{need.Host}})
	at := []int32{n.host}
	if need.Devices > 0 {
		at = append(at, n.gpus...)
	}
	where := ""
	if len(p.w.nodes) > 1 {
		where = " on " + n.name
	}
	p.wait(dm, fmt.Sprintf("needs %s, free %s%s and nothing can make room now", amountOf(need), p.room(at), where))
}

// roomiest returns the node with the most free host memory.
func (p *plan) roomiest() *node {
	best := &p.w.nodes[0]
	for k := range p.w.nodes {
		if n := &p.w.nodes[k]; p.free[n.host]+p.coming[n.host] > p.free[best.host]+p.coming[best.host] {
			best = n
		}
	}
	return best
}

// wait records that dm has to wait, once for each function.
func (p *plan) wait(dm *demand, reason string) {
	if dm.f.waits || dm.class == ahead { // no request waits for a predicted demand
		return
	}
	dm.f.waits = true
	p.do(dm.f, nil, Action{Kind: Wait, Reason: reason})
}

// Impossible says why f can never have an instance on the existing devices; empty: it can.
func (w *World) Impossible(f *Function) string {
	if w.elastic || len(w.devs) == 0 {
		return ""
	}
	reason, _ := (&plan{w: w, pol: &w.pol}).impossible(f)
	return reason
}

// impossible says why f can never have an instance on these devices; the error is nil if it can. The number of GPUs it
// needs is declared; the memory it needs of them may be a guess. An instance is on one node, so the largest one counts.
func (p *plan) impossible(f *Function) (string, *api.Error) {
	need, largest := f.Need, p.w.largest
	of, show := "", "shows"
	if len(p.w.nodes) > 1 {
		of, show = " on one node", "shows, on its largest node,"
	}
	if f.Certain && need.Host > largest {
		there := "there are " + largest.String()
		if of != "" {
			there = "the largest node has " + largest.String()
		}
		return fmt.Sprintf("needs %s of host memory%s, %s", need.Host, of, there),
			noCapacity("%s needs %s of host memory for one instance and may use %s: %s, or lower %s",
				f.Spec.Name, need.Host, largest, p.pol.Advice.Memory, api.AnnotationMemory)
	}
	if need.Devices == 0 {
		return "", nil
	}
	v := p.w.feasible(need)
	if v.gpus < need.Devices {
		there := fmt.Sprintf("there are %d", v.gpus)
		if of != "" {
			there = fmt.Sprintf("the largest node has %d", v.gpus)
		}
		return fmt.Sprintf("needs %s%s, %s", many(need.Devices, "GPU"), of, there),
			noCapacity("%s needs %s for one instance and %s %s %d: %s",
				f.Spec.Name, many(need.Devices, "GPU"), p.pol.Advice.Place, show, v.gpus, p.pol.Advice.Devices)
	}
	if v.fits || !f.Certain {
		return "", nil
	}
	if of != "" && v.large >= need.PerDevice {
		return fmt.Sprintf("needs %s on one node, and none has all of that", amountOf(need)),
			noCapacity("%s needs %s on one node and no node of %s has all of that: lower %s or %s",
				f.Spec.Name, amountOf(need), p.pol.Advice.Place, api.AnnotationMemory, api.AnnotationDeviceMemory)
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
