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

// A pod that is being deleted runs for the better part of a minute, and its model server may hold memory of
// GPUs all that time. So [Fleet.Stop] tells an instance to end once its pod is being deleted, and what it held is
// free only when it has ended.

// expiring is a pod that is being deleted for a stop, and what the core is told when nothing of its instance is left.
type expiring struct {
	*pod
	last api.InstanceStatus
}

// onEnding takes in an instance whose pod is being deleted and was not known before: it was stopped before this process led.
// The core counts what it holds until nothing of it is left; activators are not told of it. f.mu is held.
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

// noteDevices writes on a pod that is to go which GPUs it holds, for the next leader, which may come before it is gone.
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

// isExpiring returns an instance whose pod is being deleted and that still counts, nil if there is none. f.mu is held.
func (f *Fleet) isExpiring(id api.InstanceID) *pod {
	for _, e := range f.expiring {
		if e.id == id {
			return e.pod
		}
	}
	return nil
}

// expire tells the core that nothing of an instance is left, once. f.mu is held.
func (f *Fleet) expire(uid types.UID) {
	e, found := f.expiring[uid]
	if !found {
		return
	}
	delete(f.expiring, uid)
	close(e.over)
	f.pass(e.pod, e.last)
}

// finish has an instance end whose pod is being deleted, and returns when its process is gone: it says so itself, or
// Kubernetes does. Where neither has by the end of ctx the error is [autoscaler.ErrEnding], and the core hears it later.
func (f *Fleet) finish(ctx context.Context, p *pod, drain time.Duration) error {
	f.mu.Lock()
	_, held := f.expiring[p.object.UID]
	r := f.revisions[p.function]
	own := r != nil && r.spec.Runtime.Endpoint == "" // else it is a container of its own, which goes with the pod
	client, endpoint := p.client, p.endpoint
	f.mu.Unlock()
	if !held {
		return nil
	}
	if own && client != nil {
		call, cancel := context.WithTimeout(ctx, drain+emptyTimeout)
		defer cancel()
		_, err := client.Stop(call, endpoint, control.StopRequest{Drain: max(drain, time.Millisecond)}) // zero would be no bound
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

// unheld ends a stop that came to nothing, for a reason: p's end is not awaited. Where it has begun in the
// meantime it is as in [Fleet.finish].
func (f *Fleet) unheld(p *pod, why error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p.held = false
	if _, found := f.expiring[p.object.UID]; found {
		why = autoscaler.ErrEnding
	}
	return fmt.Errorf("stop %s: %w", p.id, why)
}
