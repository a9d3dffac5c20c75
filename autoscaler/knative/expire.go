package knative

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler/dualpod"
)

// A pod that is being deleted runs for most of a minute, and its model server may hold GPU memory all that time. So
// [Fleet.Stop] tells an instance to end once its pod is being deleted, and its memory is free only when it has ended.

// onEnding takes in an unknown instance whose pod is being deleted: it was stopped before this process led. The core counts
// its memory until its process is gone; activators are not told of it. The caller holds tr.mu.
func (tr *tracker) onEnding(r *revision, o *corev1.Pod) {
	_, s := container(o)
	if tr.ended[o.UID] || roleOf(o) != control.RoleInstance || o.DeletionTimestamp == nil || finished(o) || s == nil || s.State.Running == nil {
		return
	}
	p := newEnded(o)
	tr.ended[o.UID] = true
	p.devices = tr.nodes.heldDevices(p, dualpod.Devices(o))
	p.status = api.InstanceStatus{Instance: p.id, Function: r.name, State: api.Draining, Taken: true, Since: p.seen, Concurrency: r.spec.Concurrency,
		Devices: p.devices, Node: o.Spec.NodeName}
	tr.nodes.setWholeGPUs(p, &p.status)
	tr.expiring[o.UID], p.last = p, lastOf(p, "")
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

// expiringPod returns the pod of an instance that is being deleted and still counts, nil if there is none. The caller holds
// tr.mu.
func (tr *tracker) expiringPod(id api.InstanceID) *pod {
	for _, p := range tr.expiring {
		if p.id == id {
			return p
		}
	}
	return nil
}

// reportGone tells the core once that an instance is gone. The caller holds tr.mu.
func (tr *tracker) reportGone(uid types.UID) {
	if p := tr.expiring[uid]; p != nil {
		delete(tr.expiring, uid)
		close(p.over)
		tr.publishStatus(p, p.last)
	}
}
