package knative

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// A pod that is being deleted may hold GPU memory for most of a minute: it counts until its process has ended.

// onLeaving handles an event of a pod that is not in [state.pods] and is being deleted, has ended, or has no revision (r
// is nil). One of a pair counts until it is gone; without a revision only its finalizer keeps it.
func (tr *tracker) onLeaving(r *revision, o *corev1.Pod) {
	p := tr.leaving[api.InstanceID(o.Name)]
	switch {
	case p != nil && p.object.UID == o.UID:
		p.object = o
		tr.planPairOf(p)
	case p != nil:
	case roleOf(o) == control.RoleInstance:
		tr.adoptEnding(r, o)
	case r != nil:
		p = newEnded(o)
		p.pair.bound, p.devices = api.InstanceID(o.Annotations[AnnotationBound]), Devices(o)
		tr.keepLeaving(p)
	case o.DeletionTimestamp != nil && slices.Contains(o.Finalizers, Finalizer):
		tr.keepLeaving(newEnded(o))
	}
}

func (tr *tracker) keepLeaving(p *pod) {
	tr.leaving[p.id] = p
	tr.planPairOf(p)
}

func (tr *tracker) dropLeaving(o *corev1.Pod) {
	if p := tr.leaving[api.InstanceID(o.Name)]; p != nil && p.object.UID == o.UID {
		tr.reportGone(p)
		p.endSpan.Done(nil)
		delete(tr.leaving, p.id)
		tr.planPairOf(p)
	}
}

// stopProcess tells an instance to end after its requests, if its pod is being deleted without a stop. Knative lets the
// containers run on for most of a minute.
func (tr *tracker) stopProcess(p *pod) {
	if p.stopping || !p.joined() || p.role != control.RoleInstance || p.object.DeletionTimestamp == nil || p.status.State == api.Gone {
		return
	}
	client, endpoint, drain := p.client, p.endpoint, grace(p)
	tr.startCall(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, drain+emptyTimeout)
		defer cancel()
		if _, err := client.Stop(ctx, endpoint, control.StopRequest{Drain: drain}); err != nil {
			tr.log.Debug("an instance whose pod is being deleted was not told to end", "instance", p.id, "error", err)
		}
	})
}

func grace(p *pod) time.Duration {
	if s := p.object.DeletionGracePeriodSeconds; s != nil && *s > 0 {
		return time.Duration(*s) * time.Second
	}
	return time.Second
}

// adoptEnding takes in an instance that was stopped before this process led. Activators are not told of it.
func (tr *tracker) adoptEnding(r *revision, o *corev1.Pod) {
	_, s := container(o)
	if r == nil || o.DeletionTimestamp == nil || finished(o) || s == nil || s.State.Running == nil {
		return
	}
	p := newEnded(o)
	p.devices = tr.nodes.heldDevices(p, Devices(o))
	p.status = api.InstanceStatus{Instance: p.id, Function: r.name, State: api.Draining, Taken: true, Since: p.seen, Concurrency: r.spec.Concurrency,
		Devices: p.devices, Node: o.Spec.NodeName}
	tr.nodes.setWholeGPUs(p, &p.status)
	p.expiring, p.last = true, lastOf(p, "")
	tr.keepLeaving(p)
	tr.core.ObserveInstance(p.status)
}

func (tr *tracker) expiringPod(id api.InstanceID) *pod {
	if p := tr.leaving[id]; p != nil && p.expiring {
		return p
	}
	return nil
}

func (tr *tracker) reportGone(p *pod) {
	if p.expiring {
		p.expiring = false
		close(p.over)
		tr.publishStatus(p, p.last)
		tr.nodes.dropExcess(p.object.Spec.NodeName)
	}
}

// writeDevices annotates a pod with its GPUs, for the next leader.
func (tr *tracker) writeDevices(ctx context.Context, p *pod) {
	tr.mu.Lock()
	o, devices := p.object, p.devices
	tr.mu.Unlock()
	if len(devices) == 0 || slices.Equal(Devices(o), devices) {
		return
	}
	if err := tr.annotate(ctx, o, AnnotationDevices, JoinDevices(devices)); err != nil {
		tr.log.Debug("the GPUs of a pod that is to go could not be written on it", "pod", p.id, "error", err)
	}
}
