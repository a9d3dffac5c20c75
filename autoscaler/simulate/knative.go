package simulate

import (
	"math"
	"slices"
	"time"
)

// knative is the stock autoscaler of Knative Serving 1.2x, class KPA, with its defaults and an exclusive GPU for each
// pod (pkg/autoscaler/scaling/autoscaler.go, pkg/reconciler/autoscaling/kpa/scaler.go, config-autoscaler).
//
// Keep is the time from the last request to the end of the last pod: up to 60 s the stable window, the excess the
// retention. [Forever] is min-scale 1.
type knative struct {
	w         *world
	stable    time.Duration
	retention time.Duration
	minScale  int
	functions []*kpa
	pending   []*kpaPod // without a GPU, the oldest first
}

// kpa is the autoscaler of one revision.
type kpa struct {
	f       *function
	pods    []*kpaPod // not told to go, the oldest first
	desired int
	// ring has the function's area at the last ticks.
	ring []float64
	// active is when the first request after an idle window came, busy when there was last one.
	active, busy time.Duration
	seen         bool
	panicking    bool
	panicked     time.Duration // when its condition last held
	most         int           // pods in this panic
	idle         bool          // nothing was needed for a window
	idleSince    time.Duration
	direct       time.Duration // when the activator was last not on the path; below 0: never
}

type kpaPod struct {
	k *kpa
	u *unit // nil: it has no GPU
}

// Knative's defaults.
const (
	kpaTick          = 2 * time.Second
	kpaUtilization   = 0.7
	kpaPanicShare    = 0.1
	kpaPanicAt       = 2.0
	kpaMaxDown       = 2.0
	kpaMaxUp         = 1000.0
	kpaGrace         = 30 * time.Second
	kpaBurst         = 200
	kpaMinWindow     = 6 * time.Second
	kpaWindow        = time.Minute
	kpaMostRetention = time.Hour
)

func newKnative(w *world, p Policy) controller {
	k := &knative{w: w, stable: min(kpaWindow, max(kpaMinWindow, p.Keep)), retention: min(kpaMostRetention, max(0, p.Keep-kpaWindow))}
	if p.Keep == Forever {
		k.minScale, k.retention = 1, 0
	}
	for _, f := range w.functions {
		k.functions = append(k.functions, &kpa{f: f, desired: k.minScale, direct: -1})
	}
	for _, a := range k.functions {
		k.reconcile(a)
	}
	k.tick()
	return k
}

// tick evaluates every revision, each tick-interval.
func (k *knative) tick() {
	for _, a := range k.functions {
		a.f.count(k.w.now)
		if a.load() > 0 {
			a.busy = k.w.now
		}
		settled := a.load() == 0 && a.desired == k.minScale && len(a.pods) == k.minScale
		if settled && len(a.ring) == 0 {
			continue
		}
		k.scale(a)
		a.ring = append(a.ring, a.f.area)
		if most := int(k.stable/kpaTick) + 1; len(a.ring) > most {
			a.ring = a.ring[len(a.ring)-most:]
		}
		if settled && a.ring[0] == a.f.area {
			a.ring = nil
		}
	}
	k.w.after(kpaTick, k.tick)
}

func (a *kpa) load() int { return len(a.f.queue) + a.f.running }

// mean returns the mean number of requests over the last d, or since the first of them if that is less.
func (a *kpa) mean(now, d time.Duration) float64 {
	d = max(d, kpaTick) // it counts whole ticks
	back := int(d / kpaTick)
	before := a.f.area
	if n := len(a.ring); n > 0 {
		before = a.ring[max(0, n-back)]
	}
	span := min(d, max(kpaTick/2, now-a.active))
	return (a.f.area - before) / span.Seconds()
}

func (k *knative) arrived(f *function) {
	a := k.functions[f.number]
	if !a.seen || a.load() == 1 && k.w.now-a.busy > k.stable {
		a.seen, a.active = true, k.w.now
		a.ring = append(a.ring[:0], a.f.area)
	}
	a.busy = k.w.now
	if a.desired == 0 { // the activator pokes the autoscaler
		a.desired, a.idle = 1, false
		k.reconcile(a)
	}
}

func (k *knative) changed(f *function) { k.functions[f.number].busy = k.w.now }

// Pods of a lost node are deleted, and replaced.
func (k *knative) left(_ int, lost []*unit) {
	for _, a := range k.functions {
		a.pods = slices.DeleteFunc(a.pods, func(p *kpaPod) bool { return p.u != nil && slices.Contains(lost, p.u) })
		k.reconcile(a)
	}
}

func (k *knative) joined(int) { k.schedule() }

func (a *kpa) ready() int {
	n := 0
	for _, p := range a.pods {
		if p.u != nil && p.u.state == awake {
			n++
		}
	}
	return n
}

// scale evaluates a revision:
//
//   - The mean number of requests, over the stable window and over panic-window-percentage of it, is compared with
//     container-concurrency-target-percentage of a pod's concurrency.
//   - A revision panics if the short window wants panic-threshold-percentage of the ready pods. It scales down again
//     only when that has not been so for a stable window.
//   - From zero it scales to one pod at the first request.
func (k *knative) scale(a *kpa) {
	now, ready := k.w.now, a.ready()
	target := kpaUtilization * float64(a.f.m.Concurrency)
	wide := a.mean(now, k.stable)
	short := a.mean(now, time.Duration(kpaPanicShare*float64(k.stable)))
	pods := max(1, float64(ready))
	up, down := math.Ceil(kpaMaxUp*pods), math.Floor(float64(ready)/kpaMaxDown)
	bound := func(mean float64) int { return int(min(max(math.Ceil(mean/target), down), up)) }
	desired, hurried := bound(wide), bound(short)
	if math.Ceil(short/target)/pods >= kpaPanicAt {
		if !a.panicking {
			a.panicking, a.most = true, 0
		}
		a.panicked = now
	} else if a.panicking && now-a.panicked > k.stable {
		a.panicking = false
	}
	if a.panicking {
		a.most = max(a.most, hurried, ready)
		desired = max(desired, a.most)
	}
	desired = min(max(desired, k.minScale), k.w.cfg.MaxScale)
	if ready*a.f.m.Concurrency-kpaBurst-int(short) >= 0 {
		a.direct = now
	}
	if desired == 0 {
		k.toZero(a)
		return
	}
	a.desired, a.idle = desired, false
	k.reconcile(a)
}

// toZero removes the last pod once the stable window saw no request and scale-to-zero-pod-retention-period has passed,
// and scale-to-zero-grace-period if the activator was not on the path. It is there while the ready pods can't take
// target-burst-capacity requests in addition to running ones.
func (k *knative) toZero(a *kpa) {
	if a.desired == 0 {
		return
	}
	a.desired = 1
	if !a.idle {
		a.idle, a.idleSince = true, k.w.now
	}
	wait := k.retention
	if a.direct >= 0 && k.w.now-a.direct < kpaGrace {
		wait = max(wait, kpaGrace)
	}
	if k.w.now-a.idleSince >= wait {
		a.desired = 0
	}
	k.reconcile(a)
}

// Pods that are not ready go first, then the youngest.
func (k *knative) reconcile(a *kpa) {
	for len(a.pods) < a.desired {
		p := &kpaPod{k: a}
		a.pods = append(a.pods, p)
		k.pending = append(k.pending, p)
	}
	for len(a.pods) > a.desired {
		k.remove(a)
	}
	k.schedule()
}

func (k *knative) remove(a *kpa) {
	rank := func(p *kpaPod) int {
		switch {
		case p.u == nil:
			return 0
		case p.u.state == rising:
			return 1
		}
		return 2
	}
	victim := len(a.pods) - 1
	for j := victim; j >= 0; j-- {
		if rank(a.pods[j]) < rank(a.pods[victim]) {
			victim = j
		}
	}
	p := a.pods[victim]
	a.pods = slices.Delete(a.pods, victim, victim+1)
	if p.u != nil {
		k.w.stop(p.u, k.schedule)
		return
	}
	k.pending = slices.DeleteFunc(k.pending, func(q *kpaPod) bool { return q == p })
}

// A pod that finds too few GPUs blocks no other: the scheduler tries the next.
func (k *knative) schedule() {
	left := k.pending[:0]
	for _, p := range k.pending {
		if devices := k.w.free(p.k.f.m, nil); devices != nil {
			p.u = k.w.start(p.k.f, devices, k.w.cfg.Pod, nil)
			continue
		}
		left = append(left, p)
	}
	k.pending = left
}
