package decide

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
)

type class int

const (
	first class = iota // requests wait and no instance is awake or on its way
	kept               // MinScale, or a scale from outside
	extra              // one more in addition to those awake
	ahead              // no request waits, but one is predicted; see foresee.go
)

type demand struct {
	f     *function
	class class
	// late: it has starved for four turns.
	late bool
	nth  int
	why  string
	// from is when a predicted demand begins.
	from time.Time
	// rehearsal: it wakes a sleeper after its rehearsal.
	rehearsal bool
}

type queue struct {
	*plan
	groups map[group][]*function // see chooseVariant
	// deferred are the needs of first instances that wait; they are booked once all first instances were served.
	deferred []amounts
	// chosen has one entry for each instance chosen for a model with variants.
	chosen []*function
}

// meetDemands collects the demands and serves them in order:
//
//  1. demands that have starved for too long, the longest first, whatever the priority
//  2. first instances, then MinScale, then further ones, then predicted demands
//  3. the higher priority
//  4. the longer starvation
//  5. the name and the number of the demand
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

// mostDemands is for one function in one plan.
const mostDemands = 16

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
			return ds
		}
		ds = append(ds, dm)
	}
	return ds
}

// activatorWakes reports whether an activator that holds a grant is about to wake an instance of f itself. An activator
// that prefers a sleeper without a grant waits for the autoscaler.
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

// Load is the work of a function's awake instances together. One that reports none counts as idle.
type Load struct {
	Awake int
	// Waiting requests are inside the runtimes.
	Waiting int
	// KV is the sum of the used shares of their KV caches.
	KV float64
	// TTFT is the mean, weighted by requests; 0: none reported one.
	TTFT time.Duration
}

// LoadOf adds up what instances report.
func LoadOf(instances []*Instance) Load {
	var l Load
	var took, weight float64
	for _, i := range instances {
		s := &i.Status
		if s.State != api.Awake {
			continue
		}
		l.Awake++
		if s.Load == nil {
			continue
		}
		l.Waiting += min(max(0, s.Load.Waiting), 1<<20)
		if kv := s.Load.KVUsage; kv > 0 { // false for NaN
			l.KV += min(kv, 1)
		}
		if s.Load.TTFT > 0 {
			w := float64(max(1, s.Load.Running))
			took, weight = took+w*s.Load.TTFT.Seconds(), weight+w
		}
	}
	if weight > 0 {
		l.TTFT = time.Duration(took / weight * float64(time.Second))
	}
	return l
}

const (
	targetKVUsage = 0.8
	targetQueue   = 5
)

// ease is the part of a target that the load of the remaining instances must stay below before one sleeps.
const ease = 0.7

type want struct {
	// up meets the target; keep stays below ease.
	up, keep int
	why      func() string
}

// Wanted returns how many instances f should have awake, given that live ones are awake or on their way:
//
//  1. Requests: each held or running one has a place.
//  2. KV cache: use stays within targetKVUsage.
//  3. Queue: at most targetQueue wait inside each runtime.
//  4. Time to first token: the mean meets the target, with no more instances than requests.
//  5. Held tokens: they are read within the target's time to first token, at the learned rate.
//
// 2 to 5 at most double the instances that were measured. Their wish stays until the rest would be below [ease] of the
// target. pressed: they want more than live; why says which.
func (f *Function) Wanted(live int) (n int, pressed bool, why string) {
	most := max(1, f.Spec.MaxScale)
	n = min(f.places(), most) // 1
	if n == 0 || most == 1 || f.Load.Awake == 0 {
		return n, false, ""
	}
	for _, w := range []want{f.byCache(), f.byQueue(), f.byFirstToken(), f.byTokens()} {
		up, keep := min(w.up, most, 2*f.Load.Awake), min(w.keep, most)
		if up > live && up > n {
			pressed, why = true, w.why()
		}
		n = max(n, up, min(keep, live))
	}
	return n, pressed, why
}

// settledAt returns when the newest awake instance has been so for settle; zero: none is.
func (f *Function) settledAt(settle time.Duration) (t time.Time) {
	for _, i := range f.Instances {
		if phaseOf(i) == phaseAwake {
			t = later(t, i.Since.Add(settle))
		}
	}
	return t
}

func (f *Function) places() int {
	c := max(1, f.Spec.Concurrency)
	return (f.Waiting + f.Running + c - 1) / c
}

// byCache: 2.
func (f *Function) byCache() want {
	return want{ceil(f.Load.KV / targetKVUsage), ceil(f.Load.KV / (ease * targetKVUsage)),
		func() string {
			return fmt.Sprintf("%.0f %% of the KV cache is in use over %d awake, the target is %.0f %%", 100*f.Load.KV/float64(f.Load.Awake), f.Load.Awake, 100*targetKVUsage)
		}}
}

// byQueue: 3.
func (f *Function) byQueue() want {
	queue := float64(f.Load.Waiting)
	return want{ceil(queue / targetQueue), ceil(queue / (ease * targetQueue)),
		func() string {
			return fmt.Sprintf("%d wait inside the runtimes of %d awake, the target is %d each", f.Load.Waiting, f.Load.Awake, targetQueue)
		}}
}

// byFirstToken: 4.
func (f *Function) byFirstToken() want {
	target := f.Spec.Target.TTFT
	if target <= 0 || f.Load.TTFT <= 0 {
		return want{}
	}
	work := f.Load.TTFT.Seconds() * float64(f.Load.Awake) / target.Seconds()
	requests := f.Waiting + f.Running
	return want{min(ceil(work), requests), min(ceil(work/ease), requests),
		func() string {
			return fmt.Sprintf("the first token takes %s with %d awake, the target is %s", short(f.Load.TTFT), f.Load.Awake, short(target))
		}}
}

// byTokens: 5.
func (f *Function) byTokens() want {
	target, rate := f.Spec.Target.TTFT, f.Past.PromptRate
	if target <= 0 || rate <= 0 || f.HeldTokens <= 0 {
		return want{}
	}
	n := min(ceil(float64(f.HeldTokens)/(rate*target.Seconds())), f.Waiting+f.Running)
	return want{n, n, func() string {
		return fmt.Sprintf("%d tokens wait, an instance reads %.0f a second, the target is %s", f.HeldTokens, rate, short(target))
	}}
}

// ceil rounds up, but for rounding errors; 0 for NaN and values that are not positive.
func ceil(v float64) int {
	if !(v > 0) {
		return 0
	}
	return int(math.Ceil(min(v, 1<<20) - 1e-9))
}

// Desired returns how many instances of f a plan at now wants awake.
func Desired(f *Function, now time.Time) int {
	g := function{Function: f}
	g.count()
	g.desire(now)
	return g.desired
}

func (f *function) desire(now time.Time) {
	f.scaled = !f.Undeclared && f.Order == OrderNone && f.Scale.On(now)
	if f.Undeclared {
		f.desired = 0
		return
	}
	f.desired, f.pressed, f.pressure = f.Wanted(f.live())
	if f.live() == 0 && f.Waiting > 0 {
		f.desired = max(f.desired, min(f.Spec.ActivationScale, max(1, f.Spec.MaxScale)))
	}
	f.desired = max(f.desired, f.Spec.MinScale)
	if f.scaled {
		f.desired = f.Scale.Bound(f.Spec)
	}
	switch f.Order {
	case OrderWake:
		f.desired = max(f.desired, 1)
	case OrderSleep, OrderStop:
		f.desired = 0
	}
}
