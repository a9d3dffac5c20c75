package knative

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler/dualpod"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// Labels of nodes about the use of their GPUs.
const (
	labelGPUs = "rouse.dev/gpus"
	gpusOwned = "owned" // only Rouse uses them
)

// pair is the state of a pod that is one of two; see package dualpod.
type pair struct {
	// bound is the other pod, empty if there is none; since is when that was decided.
	bound api.InstanceID
	since time.Time
	// busy says that a call is under way; stuck, that the provider failed to sleep.
	busy, stuck bool
	// spent says that the requester's provider went to sleep; released, that the requester is being released.
	spent, released bool
	// down says that the provider sleeps, or is going deeper; used is when it was last awake.
	down  bool
	used  time.Time
	marks dualpod.Marks
	span  *waketrace.Span // of the call that it must be awake for
}

// want is one instance that must become awake.
type want struct {
	id       int
	r        *revision
	provider api.InstanceID // the chosen sleeper; empty: a new one
	grant    api.Grant
	ctx      context.Context // of the call that waits
	marks    dualpod.Marks
	done     chan wanted // has room for the one result
}

// wanted is the result of a want.
type wanted struct {
	status api.InstanceStatus
	err    error
}

// making is a provider whose pod is being created.
type making struct {
	requester api.InstanceID
	node      string
	devices   []api.DeviceID
	epoch     uint64
	silent    bool            // the core learns of it in another way
	span      *waketrace.Span // of the call that it is created for
	start     string          // the trace given to its function
	since     time.Time
	marks     dualpod.Marks
}

// unheardFor is how long a provider that existed before a restart has to report its state.
const unheardFor = 15 * time.Second

// roleOf returns the role of a pod. Pods have the annotations of their revision.
func roleOf(o *corev1.Pod) control.Role {
	if o.Labels[dualpod.LabelProvider] != "" {
		return control.RoleProvider
	}
	if dual, err := strconv.ParseBool(o.Annotations[api.AnnotationDualPods]); err == nil && dual {
		return control.RoleRequester
	}
	return control.RoleInstance
}

// finished reports whether no process of a pod is left.
func finished(o *corev1.Pod) bool {
	return o.Status.Phase == corev1.PodFailed || o.Status.Phase == corev1.PodSucceeded
}

// checkDual returns what is wrong with a function with dual pods, nil if nothing is.
func checkDual(fn api.Function) error {
	switch {
	case !fn.DualPods:
		return nil
	case fn.Runtime.Endpoint != "":
		return fmt.Errorf("annotation %s: a sidecar container would run in the pod that only claims GPUs: leave %s out and let the function start its runtime, or leave the annotation out",
			api.AnnotationDualPods, api.AnnotationEndpoint)
	}
	return dualpod.CheckPatch(fn.ProviderPatch)
}

// apart returns a function with dual pods as the core sees it. It has its GPU to itself while awake, so it needs more
// than half of the memory, whatever it declares; the declared amount tells what is left for sleepers there. If all GPUs
// are ours, a wake needs no claim first, and it is a function like others.
func (f *Fleet) apart(fn api.Function) api.Function {
	var least api.Bytes
	fn.DualPods = false
	for _, n := range f.nodes {
		if len(n.ids) == 0 || n.shared {
			continue
		}
		if least == 0 || n.memory < least {
			least = n.memory
		}
		fn.DualPods = fn.DualPods || !n.owned
	}
	if fn.Memory.PerDevice == 0 {
		fn.Memory.PerDevice = api.Bytes(cmp.Or(fn.Memory.Share, api.DefaultShare) * float64(least))
	}
	fn.Memory.Share = 0
	fn.Memory.PerDevice = max(fn.Memory.PerDevice, least/2+1)
	return fn
}

// pairUp schedules a plan of pairs, if p belongs to one.
func (f *Fleet) pairUp(p *pod) {
	if p.role != control.RoleInstance {
		f.pairs.Ring()
	}
}

// clock records when a pod of a pair was scheduled and its container started.
func (p *pod) clock(o *corev1.Pod) {
	m := &p.pair.marks
	if p.role == control.RoleProvider { // the other times are the requester's
		if p.joined() && m.Up.IsZero() && !m.Made.IsZero() {
			m.Up = time.Now()
		}
		return
	}
	if o.Spec.NodeName != "" && m.Scheduled.IsZero() {
		m.Scheduled = time.Now()
	}
	if _, s := container(o); s != nil && s.State.Running != nil && m.Started.IsZero() {
		m.Started = time.Now()
	}
	if p.joined() && m.Joined.IsZero() {
		m.Joined = time.Now()
		if m.Started.IsZero() { // the join came before the kubelet's status
			m.Started = m.Joined
		}
	}
}

// note stores s as p's last status, and reports whether that completes a start or wake.
func (p *pod) note(s api.InstanceStatus) (up bool) {
	if s.State == api.Awake || p.status.State == api.Awake {
		p.pair.used = time.Now()
	}
	if s.State == api.Awake && p.pair.down && p.role == control.RoleProvider { // an activator has woken it under its grant
		p.pair.marks = dualpod.Marks{Path: api.PathHot, Asked: time.Now().Add(-s.WakeTime)}
		if p.status.PID == 0 {
			p.pair.marks.Path = api.PathWarm
		}
	}
	if s.State == api.Awake || s.State == api.Asleep {
		p.pair.down = s.State == api.Asleep
	}
	if s.State == api.Awake {
		p.pair.stuck = false
		if p.pair.marks.Ready.IsZero() && !p.pair.marks.Asked.IsZero() {
			p.pair.marks.Ready, up = time.Now(), true
		}
	}
	if s.State != p.status.State {
		p.pair.since = time.Now()
	}
	p.status = s
	return up
}

// addPair takes in a new pod of a pair. The core learns of a provider that was created for a start when the start ends.
func (f *Fleet) addPair(r *revision, p *pod) {
	p.pair.bound, p.pair.since = api.InstanceID(p.object.Annotations[dualpod.AnnotationBound]), time.Now()
	if p.role == control.RoleRequester {
		r.pods[p.id] = p
		r.acted()
		f.weigh(r)
		f.pairUp(p)
		f.changed(r.name)
		return
	}
	r.providers[p.id] = p
	p.devices = dualpod.Devices(p.object)
	p.status.Devices, p.status.Node = p.devices, dualpod.NodeOf(p.object)
	m := r.making[p.id]
	if m == nil {
		f.pass(p, p.status)
		return
	}
	delete(r.making, p.id)
	p.pair.bound, p.pair.marks, p.pair.span = m.requester, m.marks, m.span
	p.pair.marks.Made, p.trace = p.seen, m.start
	p.epoch, p.status.Epoch = m.epoch, m.epoch
	if !m.silent {
		f.pass(p, p.status)
		return
	}
	f.deps.Activators.Tell(control.InstanceReport{Status: p.status})
	f.pairUp(p)
	f.changed(r.name)
}

// onLeaving takes in a pod of a pair that is being deleted, or has ended: its processes count until they are gone.
func (f *Fleet) onLeaving(r *revision, o *corev1.Pod) {
	if roleOf(o) == control.RoleInstance {
		return
	}
	id := api.InstanceID(o.Name)
	p := f.leaving[id]
	switch {
	case p != nil && p.object.UID == o.UID:
		p.object = o
	case p != nil:
		return
	default: // its deletion began before this process did
		p = newPod(r.name, o)
		p.ended = true
		close(p.gone)
		p.pair.bound = api.InstanceID(o.Annotations[dualpod.AnnotationBound])
		p.devices = dualpod.Devices(o)
		f.leaving[id] = p
	}
	f.pairs.Ring()
}

// onOrphan takes in a pod of a pair whose revision is gone: only what it is bound to keeps it.
func (f *Fleet) onOrphan(o *corev1.Pod) {
	id := api.InstanceID(o.Name)
	p := f.leaving[id]
	switch {
	case roleOf(o) == control.RoleInstance:
		return
	case p != nil && p.object.UID == o.UID:
		p.object = o
	case p == nil && o.DeletionTimestamp != nil && slices.Contains(o.Finalizers, dualpod.Finalizer):
		p = newPod(functionOf(o), o)
		p.ended = true
		close(p.gone)
		f.leaving[id] = p
	default:
		return
	}
	f.pairs.Ring()
}

// linger keeps a pod of a pair that is being deleted until it is gone.
func (f *Fleet) linger(p *pod) {
	if p.role != control.RoleInstance {
		f.leaving[p.id] = p
		f.pairs.Ring()
	}
}

// onGone forgets a pod that no longer exists.
func (f *Fleet) onGone(o *corev1.Pod) {
	if p := f.leaving[api.InstanceID(o.Name)]; p != nil && p.object.UID == o.UID {
		delete(f.leaving, p.id)
		f.pairs.Ring()
	}
}

// want registers an instance that must become awake. The caller holds f.mu.
func (f *Fleet) want(r *revision, g api.Grant, provider api.InstanceID) *want {
	f.wanted++
	w := &want{id: f.wanted, r: r, provider: provider, grant: g, done: make(chan wanted, 1)}
	w.marks.Asked = time.Now()
	r.wants = append(r.wants, w)
	return w
}

// await waits until a want is served.
func (f *Fleet) await(ctx context.Context, w *want) (api.InstanceStatus, error) {
	f.mu.Lock()
	w.ctx = ctx
	f.mu.Unlock()
	f.pairs.Ring()
	f.changed(w.r.name)
	defer f.changed(w.r.name)
	select {
	case d := <-w.done:
		return d.status, d.err
	case <-ctx.Done():
	}
	f.mu.Lock()
	w.close()
	f.mu.Unlock()
	f.pairs.Ring()
	return api.InstanceStatus{}, fmt.Errorf("no requester has claimed GPUs for it: %w", context.Cause(ctx))
}

// close removes a want from the list. The caller holds f.mu.
func (w *want) close() {
	w.r.wants = slices.DeleteFunc(w.r.wants, func(x *want) bool { return x == w })
}

// failWants fails all wants of a function. The caller holds f.mu.
func (f *Fleet) failWants(r *revision, err error) {
	for _, w := range r.wants {
		w.done <- wanted{err: err}
	}
	r.wants = nil
	f.pairs.Ring()
}
