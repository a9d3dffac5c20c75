package knative

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler"
	"github.com/rouse-dev/rouse/autoscaler/dualpod"
)

// A pod that is being deleted runs for most of a minute, and its model server may hold GPU memory all that time. So
// [Fleet.Stop] tells an instance to end once its pod is being deleted, and its memory is free only when it has ended.

// expiring is a pod that is being deleted by a stop, and the status that the core is told when its process is gone.
type expiring struct {
	*pod
	last api.InstanceStatus
}

// onEnding takes in an unknown instance whose pod is being deleted: it was stopped before this process led. The core counts
// its memory until its process is gone; activators are not told of it. The caller holds f.mu.
func (f *Fleet) onEnding(r *revision, o *corev1.Pod) {
	_, s := container(o)
	if f.ended[o.UID] || roleOf(o) != control.RoleInstance || o.DeletionTimestamp == nil || finished(o) || s == nil || s.State.Running == nil {
		return
	}
	p := newPod(r.name, o)
	p.ended, f.ended[o.UID] = true, true
	close(p.gone)
	p.devices = f.holds(p, dualpod.Devices(o))
	p.status = api.InstanceStatus{Instance: p.id, Function: r.name, State: api.Draining, Taken: true, Since: p.seen, Concurrency: r.spec.Concurrency,
		Devices: p.devices, Node: o.Spec.NodeName}
	f.ownWhole(p, &p.status)
	f.expiring[o.UID] = expiring{p, lastOf(p, "")}
	f.core.ObserveInstance(p.status)
}

// noteDevices annotates a pod that is about to be deleted with its GPUs, for the next leader, which may start before it is
// gone.
func (f *Fleet) noteDevices(ctx context.Context, p *pod) {
	f.mu.Lock()
	o, devices := p.object, p.devices
	f.mu.Unlock()
	if len(devices) == 0 || slices.Equal(dualpod.Devices(o), devices) {
		return
	}
	if err := f.annotate(ctx, o, dualpod.AnnotationDevices, dualpod.JoinDevices(devices)); err != nil {
		f.log.Debug("the GPUs of a pod that is to go could not be written on it", "pod", p.id, "error", err)
	}
}

// isExpiring returns the pod of an instance that is being deleted and still counts, nil if there is none. The caller holds
// f.mu.
func (f *Fleet) isExpiring(id api.InstanceID) *pod {
	for _, e := range f.expiring {
		if e.id == id {
			return e.pod
		}
	}
	return nil
}

// expire tells the core once that an instance is gone. The caller holds f.mu.
func (f *Fleet) expire(uid types.UID) {
	e, found := f.expiring[uid]
	if !found {
		return
	}
	delete(f.expiring, uid)
	close(e.over)
	f.pass(e.pod, e.last)
}

// finish tells an instance to end whose pod is being deleted, and returns when its process is gone, by its own answer or by
// Kubernetes' status. If neither comes before ctx ends it returns [autoscaler.ErrEnding], and the core is told later.
func (f *Fleet) finish(ctx context.Context, p *pod, drain time.Duration) error {
	f.mu.Lock()
	_, held := f.expiring[p.object.UID]
	r := f.revisions[p.function]
	own := r != nil && r.spec.Runtime.Endpoint == "" // else the runtime is a container of its own, which ends with the pod
	client, endpoint := p.client, p.endpoint
	f.mu.Unlock()
	if !held {
		return nil
	}
	if own && client != nil {
		call, cancel := context.WithTimeout(ctx, drain+emptyTimeout)
		defer cancel()
		_, err := client.Stop(call, endpoint, control.StopRequest{Drain: max(drain, time.Millisecond)}) // zero would mean no bound
		if err == nil {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.expire(p.object.UID)
			return nil
		}
		f.log.Debug("an instance that is to end does not say that it has", "instance", p.id, "error", err)
	}
	select {
	case <-p.over:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop %s: %w", p.id, autoscaler.ErrEnding)
	}
}

// unheld ends a failed stop: p's end is no longer awaited. If the end has begun in the meantime it returns
// [autoscaler.ErrEnding], like [Fleet.finish].
func (f *Fleet) unheld(p *pod, why error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p.held = false
	if _, found := f.expiring[p.object.UID]; found {
		why = autoscaler.ErrEnding
	}
	return fmt.Errorf("stop %s: %w", p.id, why)
}
