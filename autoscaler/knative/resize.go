package knative

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// What a sleeper's container keeps: the smallest CPU weight of Linux, and its memory use plus slack.
const (
	leastCPU    = 2 // thousandths
	memorySlack = 16 * api.MiB
)

const resizeTimeout = 15 * time.Second

type resizer struct {
	*state
	rooms *rooms
	rigid map[string]bool // nodes whose pods the API server does not resize
}

type sizes map[string]corev1.ResourceList

// awakeSizes returns the Deployment's requests that can be resized without a restart.
func (rz *resizer) awakeSizes(p *pod) sizes {
	o := p.object
	d, err := rz.deployment(p.function)
	if err != nil || p.role != control.RoleInstance {
		return nil
	}
	full := make(sizes)
	for k := range d.Spec.Template.Spec.Containers {
		c := &d.Spec.Template.Spec.Containers[k]
		list := corev1.ResourceList{}
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if q, found := c.Resources.Requests[name]; found && !restarts(o, c.Name, name) {
				list[name] = q
			}
		}
		if len(list) > 0 {
			full[c.Name] = list
		}
	}
	return full
}

func restarts(o *corev1.Pod, container string, name corev1.ResourceName) bool {
	for k := range o.Spec.Containers {
		if c := &o.Spec.Containers[k]; c.Name == container {
			for _, p := range c.ResizePolicy {
				if p.ResourceName == name && p.RestartPolicy == corev1.RestartContainer {
					return true
				}
			}
		}
	}
	return false
}

// asleepSizes returns what is left of full while p sleeps and uses holds bytes; 0: unknown.
func asleepSizes(p *pod, full sizes, holds api.Bytes) sizes {
	small := make(sizes, len(full))
	own, _ := container(p.object)
	for name, list := range full {
		less := list.DeepCopy()
		if q, found := list[corev1.ResourceCPU]; found {
			less[corev1.ResourceCPU] = *resource.NewMilliQuantity(min(q.MilliValue(), leastCPU), resource.DecimalSI)
		}
		if q, found := list[corev1.ResourceMemory]; found && own != nil && own.Name == name && holds > 0 {
			less[corev1.ResourceMemory] = *resource.NewQuantity(min(q.Value(), int64(holds+memorySlack)), resource.BinarySI)
		}
		small[name] = less
	}
	return small
}

// sparedRequests returns what p's pod can give up asleep. It keeps its requests if its QoS class would change, or
// Kubernetes has refused to resize it.
func (rz *resizer) sparedRequests(p *pod, holds api.Bytes) api.Requests {
	o := p.object
	if rz.cfg.KeepRequests || p.rigid || rz.rigid[o.Spec.NodeName] || o.Status.QOSClass != corev1.PodQOSBurstable {
		return nil
	}
	spare := api.Requests{}
	small := asleepSizes(p, rz.awakeSizes(p), holds)
	for k := range o.Spec.Containers {
		c := &o.Spec.Containers[k]
		has := counted(o, c)
		for name, n := range amounts(small[c.Name]) {
			spare[name] += max(0, has[name]-n)
		}
	}
	if spare["cpu"] == 0 { // its CPU request shows whether a pod has shrunk
		return nil
	}
	return spare
}

func (rz *resizer) hasShrunk(p *pod) bool {
	full := rz.awakeSizes(p)
	for k := range p.object.Spec.Containers {
		c := &p.object.Spec.Containers[k]
		if amounts(full[c.Name])["cpu"] > leastCPU && amounts(c.Resources.Requests)["cpu"] == leastCPU {
			return true
		}
	}
	return false
}

// shrinkPod is not tried again for a pod if Kubernetes refuses, or if its kubelet is late, which says nothing of the node's other pods.
func (rz *resizer) shrinkPod(ctx context.Context, id api.InstanceID) {
	rz.mu.Lock()
	p := rz.pods[id]
	if p == nil {
		rz.mu.Unlock()
		return
	}
	full := rz.awakeSizes(p)
	small := asleepSizes(p, full, p.status.Memory.Host)
	rz.mu.Unlock()
	err := rz.resizePod(ctx, p, small)
	if err == nil {
		until, cancel := context.WithTimeoutCause(ctx, resizeTimeout, fmt.Errorf("its kubelet does not resize it within %s", resizeTimeout))
		defer cancel()
		if err = rz.awaitSize(until, p, func(o *corev1.Pod) bool { return amountsOf(small).Lack(grantedOf(o, small)) == nil }); err != nil {
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
			defer cancel()
			err = errors.Join(err, rz.resizePod(undo, p, full))
		}
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	rz.mu.Lock()
	defer rz.mu.Unlock()
	p.rigid = true
	if node := p.object.Spec.NodeName; apierrors.IsMethodNotSupported(err) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		rz.rigid[node] = true
		rz.log.Warn("the pods of sleepers on a node keep what they request: they can't be resized in place", "node", node, "error", err)
		return
	}
	rz.log.Warn("the pod of a sleeper keeps what it requests", "pod", p.id, "error", err)
}

// growPod gives p's pod back its requests, and returns when its node has granted them. If that has no room before ctx
// ends, the pod keeps what it has.
func (rz *resizer) growPod(ctx context.Context, id api.InstanceID) error {
	rz.mu.Lock()
	p := rz.pods[id]
	if p == nil {
		rz.mu.Unlock()
		return nil
	}
	shrunk, full := rz.hasShrunk(p), rz.awakeSizes(p)
	small := asleepSizes(p, full, p.status.Memory.Host)
	rz.mu.Unlock()
	if !shrunk {
		return nil
	}
	rz.setGrowing(p, full)
	defer rz.setGrowing(p, nil)
	err := rz.resizePod(ctx, p, full)
	if err == nil {
		err = rz.awaitSize(ctx, p, func(o *corev1.Pod) bool { return grantedOf(o, full).Lack(amountsOf(full)) == nil })
	}
	if err == nil {
		return nil
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	return fmt.Errorf("give the pod %s what it requests awake: %w", p.id, errors.Join(err, rz.resizePod(undo, p, small)))
}

// setGrowing locks.
func (rz *resizer) setGrowing(p *pod, full sizes) {
	rz.mu.Lock()
	defer rz.mu.Unlock()
	p.growing = full
	rz.rooms.updateRooms()
}

func amountsOf(s sizes) (sum api.Requests) {
	for _, list := range s {
		sum = sum.Plus(amounts(list))
	}
	return sum
}

// grantedOf returns what the kubelet has granted, of the resources in sizes.
func grantedOf(o *corev1.Pod, of sizes) api.Requests {
	sum := api.Requests{}
	for k := range o.Spec.Containers {
		c := &o.Spec.Containers[k]
		for name, n := range amounts(granted(o, c)) {
			if _, named := of[c.Name][corev1.ResourceName(name)]; named {
				sum[name] += n
			}
		}
	}
	return sum
}

// counted returns what the scheduler counts: the requests, or during a resize what it has, if that is more.
func counted(o *corev1.Pod, c *corev1.Container) api.Requests {
	asks := amounts(c.Resources.Requests)
	return asks.Plus(asks.Lack(amounts(granted(o, c))))
}

// admitted reports whether the kubelet has admitted the last resize: the room is set aside, only the cgroups are still
// to change.
func admitted(o *corev1.Pod) bool {
	return o.Generation > 0 && slices.ContainsFunc(o.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodResizeInProgress && c.Status == corev1.ConditionTrue && c.Reason == "" && c.ObservedGeneration >= o.Generation
	})
}

func granted(o *corev1.Pod, c *corev1.Container) corev1.ResourceList {
	if admitted(o) {
		return c.Resources.Requests
	}
	for k := range o.Status.ContainerStatuses {
		if s := &o.Status.ContainerStatuses[k]; s.Name == c.Name && s.Resources != nil {
			return s.Resources.Requests
		}
	}
	return c.Resources.Requests
}

func ungranted(o *corev1.Pod) (sum api.Requests) {
	for k := range o.Spec.Containers {
		c := &o.Spec.Containers[k]
		sum = sum.Plus(amounts(granted(o, c)).Lack(amounts(c.Resources.Requests)))
	}
	return sum
}

func (rz *resizer) resizePod(ctx context.Context, p *pod, to sizes) error {
	rz.mu.Lock()
	o := p.object
	rz.mu.Unlock()
	var containers []map[string]any
	for k := range o.Spec.Containers { // another order would be refused
		c := map[string]any{"name": o.Spec.Containers[k].Name}
		if list := to[o.Spec.Containers[k].Name]; len(list) > 0 {
			c["resources"] = map[string]any{"requests": list}
		}
		containers = append(containers, c)
	}
	now, err := rz.patchPod(ctx, o, map[string]any{}, containers, "resize")
	if err != nil {
		return fmt.Errorf("resize the pod %s: %w", p.id, err)
	}
	rz.mu.Lock()
	defer rz.mu.Unlock()
	if !p.ended && p.object.ResourceVersion == o.ResourceVersion { // else the watch is ahead
		p.object = now
	}
	return nil
}

// awaitSize waits until done. Its error has the kubelet's message.
func (rz *resizer) awaitSize(ctx context.Context, p *pod, done func(*corev1.Pod) bool) error {
	var o *corev1.Pod
	var ended bool
	err := poll(ctx, pollEvery/40, func() bool {
		rz.mu.Lock()
		defer rz.mu.Unlock()
		o, ended = p.object, p.ended
		return ended || done(o)
	})
	switch {
	case err != nil:
		return fmt.Errorf("%w%s", err, pending(o))
	case ended:
		return errors.New("it is being deleted")
	}
	return nil
}

func pending(o *corev1.Pod) string {
	for _, c := range o.Status.Conditions {
		if c.Type == corev1.PodResizePending && c.Status == corev1.ConditionTrue {
			return fmt.Sprintf(" (%s: %s)", c.Reason, strings.TrimSuffix(c.Message, "."))
		}
	}
	return ""
}

// onResize does not wait: the core would look elsewhere for what the instance can no longer give up.
func (rz *resizer) onResize(p *pod, before *corev1.Pod) {
	if len(rz.rooms.given) > 0 && !maps.Equal(requestsOf(before), requestsOf(p.object)) {
		rz.rooms.updateRooms()
	}
}
