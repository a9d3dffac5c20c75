package knative

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"knative.dev/pkg/controller"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/internal/bell"
)

// rooms gives the core what is left of the nodes on which pods wait for room.
type rooms struct {
	*state
	stale     bell.Bell
	given     []inventory.Room         // as last given to the core
	unmanaged []inventory.UnmanagedPod // as last given to the core
	ending    map[types.UID]bool       // pods that are about to be deleted, while rooms are given
}

// requestsOf returns what the scheduler counts for a pod, plus one pod.
func requestsOf(o *corev1.Pod) api.Requests {
	sum := amounts(o.Spec.Overhead).Plus(api.Requests{"pods": 1})
	for k := range o.Spec.Containers {
		sum = sum.Plus(counted(o, &o.Spec.Containers[k]))
	}
	beside := api.Requests{} // sidecar containers
	for k := range o.Spec.InitContainers {
		c := &o.Spec.InitContainers[k]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			beside = beside.Plus(amounts(c.Resources.Requests))
			continue
		}
		for name, n := range beside.Plus(amounts(c.Resources.Requests)) {
			sum[name] = max(sum[name], n-beside[name])
		}
	}
	return sum.Plus(beside)
}

func amounts(list corev1.ResourceList) api.Requests {
	r := make(api.Requests, len(list))
	for name, q := range list {
		if name == corev1.ResourceCPU {
			r["cpu"] = q.MilliValue()
		} else {
			r[string(name)] = q.Value()
		}
	}
	return r
}

// stripPod keeps what the account of a node needs: there may be many pods.
func stripPod(o any) (any, error) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	q := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: p.UID, ResourceVersion: p.ResourceVersion, DeletionTimestamp: p.DeletionTimestamp},
		Status: corev1.PodStatus{Phase: p.Status.Phase, NominatedNodeName: p.Status.NominatedNodeName}}
	q.Spec.NodeName, q.Spec.Overhead = p.Spec.NodeName, p.Spec.Overhead
	if c := refusedBy(p); c != nil && p.Spec.NodeName == "" {
		q.Status.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status, Reason: c.Reason}}
		if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			q.Spec.Affinity = a
		}
		q.Spec.Priority, q.Spec.NodeSelector, q.Spec.Tolerations = p.Spec.Priority, p.Spec.NodeSelector, p.Spec.Tolerations
	}
	of := func(cs []corev1.Container) (out []corev1.Container) {
		for _, c := range cs {
			out = append(out, corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy, Resources: corev1.ResourceRequirements{Requests: c.Resources.Requests}})
		}
		return out
	}
	q.Spec.Containers, q.Spec.InitContainers = of(p.Spec.Containers), of(p.Spec.InitContainers)
	for k := range p.Spec.Containers { // those that are being resized
		c := &p.Spec.Containers[k]
		if has := granted(p, c); !maps.Equal(amounts(has), amounts(c.Resources.Requests)) {
			q.Status.ContainerStatuses = append(q.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, Resources: &corev1.ResourceRequirements{Requests: has}})
		}
	}
	return q, nil
}

const indexNode = "node"

// byNode indexes pods by their node; those that fit on none are at "".
func byNode(o any) ([]string, error) {
	if p, ok := o.(*corev1.Pod); ok && (p.Spec.NodeName != "" || refusedBy(p) != nil) {
		return []string{p.Spec.NodeName}, nil
	}
	return nil, nil
}

// unmanagedPods returns others' pods that fit on no node, and growing sleepers. No instance gives way to a negative
// priority, a pod that the scheduler makes room for, and one that chooses nodes by more than labels, such as a
// DaemonSet's.
func (rs *rooms) unmanagedPods() (unmanaged []inventory.UnmanagedPod) {
	waiting, _ := rs.watch.everyPod.GetIndexer().ByIndex(indexNode, "") // the index exists
	for _, o := range waiting {
		p := o.(*corev1.Pod)
		if own := rs.pods[api.InstanceID(p.Name)]; own != nil && own.object.UID == p.UID {
			continue
		}
		if p.DeletionTimestamp != nil || p.Status.NominatedNodeName != "" || p.Spec.Affinity != nil || p.Spec.Priority != nil && *p.Spec.Priority < 0 {
			continue
		}
		s := inventory.UnmanagedPod{Name: p.Namespace + "/" + p.Name, Requests: requestsOf(p)}
		if s.Candidates = rs.candidates(p, s.Requests); len(s.Candidates) > 0 {
			unmanaged = append(unmanaged, s)
		}
	}
	unmanaged = append(unmanaged, rs.growingPods()...)
	slices.SortFunc(unmanaged, func(a, b inventory.UnmanagedPod) int { return strings.Compare(a.Name, b.Name) })
	return unmanaged
}

// candidates lists the nodes with instances that could take the pod if they were empty.
func (rs *rooms) candidates(o *corev1.Pod, need api.Requests) []string {
	ours := make(map[string]bool)
	for _, p := range rs.pods {
		ours[p.object.Spec.NodeName] = true
	}
	var names []string
	for name := range ours {
		n, err := rs.watch.nodes.Lister().Get(name)
		if err == nil && !n.Spec.Unschedulable && labels.SelectorFromSet(o.Spec.NodeSelector).Matches(labels.Set(n.Labels)) && tolerates(o, n) && amounts(n.Status.Allocatable).Lack(need) == nil {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}

func tolerates(o *corev1.Pod, n *corev1.Node) bool {
	return !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && !slices.ContainsFunc(o.Spec.Tolerations, func(have corev1.Toleration) bool {
			return have.ToleratesTaint(klog.Background(), &t, false)
		})
	})
}

func (rs *rooms) updateRooms() {
	nodes := make(map[string]bool)
	for _, p := range rs.pods {
		if p.status.Unplaced() {
			for _, name := range p.status.Candidates {
				nodes[name] = true
			}
		}
	}
	unmanaged := rs.unmanagedPods()
	for _, s := range unmanaged {
		for _, name := range s.Candidates {
			nodes[name] = true
		}
	}
	var rooms []inventory.Room
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		room, err := rs.roomOf(name)
		if err != nil {
			rs.log.Error("what a node has left can't be said", "node", name, "error", err)
			continue
		}
		rooms = append(rooms, room)
	}
	if len(rooms) == 0 {
		clear(rs.ending)
	}
	if reflect.DeepEqual(rooms, rs.given) && reflect.DeepEqual(unmanaged, rs.unmanaged) {
		return
	}
	rs.given, rs.unmanaged = rooms, unmanaged
	rs.core.SetRooms(rooms, unmanaged)
}

// roomOf counts one of our pods as soon as the core knows it: the other watch may be late, and the core would make room
// again.
func (rs *rooms) roomOf(name string) (inventory.Room, error) {
	n, err := rs.watch.nodes.Lister().Get(name)
	if err != nil {
		return inventory.Room{}, err
	}
	pods, err := rs.watch.everyPod.GetIndexer().ByIndex(indexNode, name)
	if err != nil {
		return inventory.Room{}, fmt.Errorf("list the pods of %s: %w", name, err)
	}
	room := inventory.Room{Node: name, Free: amounts(n.Status.Allocatable)}
	for _, o := range pods {
		p := o.(*corev1.Pod)
		if finished(p) {
			continue
		}
		needs := requestsOf(p)
		if own := rs.pods[api.InstanceID(p.Name)]; own != nil && own.object.UID == p.UID {
			if own.object.Spec.NodeName == "" {
				continue
			}
			if needs = requestsOf(own.object); own.growing != nil { // it has not got it yet
				needs = needs.Minus(ungranted(own.object))
			}
		}
		room.Free = room.Free.Minus(needs)
		if p.DeletionTimestamp != nil || rs.ending[p.UID] {
			room.Leaving = room.Leaving.Plus(needs)
		}
	}
	return room, nil
}

func (rs *rooms) onAnyPod(o any) {
	p, is := o.(*corev1.Pod)
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if len(rs.given) > 0 || is && p.Spec.NodeName == "" && refusedBy(p) != nil {
		rs.stale.Ring()
	}
}

// keepRooms limits the rate.
func (rs *rooms) keepRooms(ctx context.Context) {
	rs.stale.Each(ctx, func() {
		rs.mu.Lock()
		rs.updateRooms()
		rs.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(pollEvery / 10):
		}
	})
}

// removeFromRoom updates a node's room before the core hears that a pod is going and would count its requests as lost:
// either watch may be first.
func (rs *rooms) removeFromRoom(p *pod) {
	k := slices.IndexFunc(rs.given, func(r inventory.Room) bool { return r.Node == p.object.Spec.NodeName })
	if k < 0 {
		return
	}
	rs.ending[p.object.UID] = true
	if room, err := rs.roomOf(p.object.Spec.NodeName); err == nil {
		rs.given = slices.Clone(rs.given)
		rs.given[k] = room
		rs.core.SetRooms(rs.given, rs.unmanaged)
	}
}

func (rs *rooms) followRooms() error {
	if _, err := rs.watch.everyPod.AddEventHandler(controller.HandleAll(rs.onAnyPod)); err != nil {
		return fmt.Errorf("watch the pods of nodes: %w", err)
	}
	return nil
}

func (rs *rooms) growingPods() (gs []inventory.UnmanagedPod) {
	for _, p := range rs.pods {
		if p.growing == nil {
			continue
		}
		if lack := grantedOf(p.object, p.growing).Lack(amountsOf(p.growing)); lack != nil {
			gs = append(gs, inventory.UnmanagedPod{Name: string(p.id), Function: p.function, Requests: lack, Candidates: []string{p.object.Spec.NodeName}})
		}
	}
	return gs
}
