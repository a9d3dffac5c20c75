package knative

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/dualpod"
)

// A pod that is being deleted runs for most of a minute, and its model server may hold GPU memory all that time. So
// [Fleet.Stop] tells an instance to end once its pod is being deleted, and its memory is free only when it has ended.

// adoptEnding takes in an unknown instance whose pod is being deleted: it was stopped before this process led. The core counts
// its memory until its process is gone; activators are not told of it.
func (tr *tracker) adoptEnding(r *revision, o *corev1.Pod) {
	_, s := container(o)
	if r == nil || o.DeletionTimestamp == nil || finished(o) || s == nil || s.State.Running == nil {
		return
	}
	p := newEnded(o)
	p.devices = tr.nodes.heldDevices(p, dualpod.Devices(o))
	p.status = api.InstanceStatus{Instance: p.id, Function: r.name, State: api.Draining, Taken: true, Since: p.seen, Concurrency: r.spec.Concurrency,
		Devices: p.devices, Node: o.Spec.NodeName}
	tr.nodes.setWholeGPUs(p, &p.status)
	p.expiring, p.last = true, lastOf(p, "")
	tr.keepLeaving(p)
	tr.core.ObserveInstance(p.status)
}

// writeDevices annotates a pod that is about to be deleted with its GPUs, for the next leader, which may start before it is
// gone.
func (tr *tracker) writeDevices(ctx context.Context, p *pod) {
	tr.mu.Lock()
	o, devices := p.object, p.devices
	tr.mu.Unlock()
	if len(devices) == 0 || slices.Equal(dualpod.Devices(o), devices) {
		return
	}
	if err := tr.annotate(ctx, o, dualpod.AnnotationDevices, dualpod.JoinDevices(devices)); err != nil {
		tr.log.Debug("the GPUs of a pod that is to go could not be written on it", "pod", p.id, "error", err)
	}
}

// expiringPod returns the pod of an instance that is being deleted and still counts, nil if there is none.
func (tr *tracker) expiringPod(id api.InstanceID) *pod {
	if p := tr.leaving[id]; p != nil && p.expiring {
		return p
	}
	return nil
}

// reportGone tells the core once that an instance is gone.
func (tr *tracker) reportGone(p *pod) {
	if p.expiring {
		p.expiring = false
		close(p.over)
		tr.publishStatus(p, p.last)
	}
}
