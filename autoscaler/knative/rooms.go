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
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// requestsOf is what the scheduler counts of a pod: its containers together, or the largest of those that
// run before them, and itself. A container that is being resized counts with what it has, where that is more.
func requestsOf(o *corev1.Pod) api.Requests {
	sum := amounts(o.Spec.Overhead).Plus(api.Requests{api.RequestPods: 1})
	for k := range o.Spec.Containers {
		sum = sum.Plus(counted(o, &o.Spec.Containers[k]))
	}
	beside := api.Requests{} // of init containers that go on
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

// amounts reads a list of Kubernetes' quantities.
func amounts(list corev1.ResourceList) api.Requests {
	r := make(api.Requests, len(list))
	for name, q := range list {
		if name == corev1.ResourceCPU {
			r[api.RequestCPU] = q.MilliValue()
		} else {
			r[string(name)] = q.Value()
		}
	}
	return r
}

// lean keeps of a pod what the account of its node needs: there may be many pods.
func lean(o any) (any, error) {
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
	for k := range p.Spec.Containers { // of those that are being resized
		c := &p.Spec.Containers[k]
		if has := granted(p, c); !maps.Equal(amounts(has), amounts(c.Resources.Requests)) {
			q.Status.ContainerStatuses = append(q.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, Resources: &corev1.ResourceRequirements{Requests: has}})
		}
	}
	return q, nil
}

const indexNode = "node"

// byNode indexes pods by the node that they are on; those that none takes are on "".
func byNode(o any) ([]string, error) {
	if p, ok := o.(*corev1.Pod); ok && (p.Spec.NodeName != "" || refusedBy(p) != nil) {
		return []string{p.Spec.NodeName}, nil
	}
	return nil, nil
}

// others are the pods of others that no node takes, and the sleepers that wait for more of theirs. For one that counts less than the common pod, that the scheduler
// makes room for itself, or that asks for nodes by more than labels, as those of a DaemonSet do, nobody goes.
func (f *Fleet) others() (unmanaged []inventory.UnmanagedPod) {
	waiting, _ := f.watch.everyPod.GetIndexer().ByIndex(indexNode, "") // the index is there
	for _, o := range waiting {
		p := o.(*corev1.Pod)
		if own := f.pods[api.InstanceID(p.Name)]; own != nil && own.object.UID == p.UID {
			continue
		}
		if p.DeletionTimestamp != nil || p.Status.NominatedNodeName != "" || p.Spec.Affinity != nil || p.Spec.Priority != nil && *p.Spec.Priority < 0 {
			continue
		}
		s := inventory.UnmanagedPod{Name: p.Namespace + "/" + p.Name, Requests: requestsOf(p)}
		if s.Candidates = f.candidates(p, s.Requests); len(s.Candidates) > 0 {
			unmanaged = append(unmanaged, s)
		}
	}
	unmanaged = append(unmanaged, f.growers()...)
	slices.SortFunc(unmanaged, func(a, b inventory.UnmanagedPod) int { return strings.Compare(a.Name, b.Name) })
	return unmanaged
}

// labelNodePool is on the nodes that Karpenter has made.
const labelNodePool = "karpenter.sh/nodepool"

// pooled says whether a node is one of those that are added and taken away: a cloud's, or Karpenter's.
func pooled(n *corev1.Node) bool {
	id := n.Spec.ProviderID
	return strings.Contains(id, "://") && !strings.HasPrefix(id, "kind://") || n.Labels[labelNodePool] != ""
}

// tellElastic tells the core whether nodes may be added: the operator says so, the nodes look like it, or somebody
// has said so of a pod lately, for events are kept for an hour.
func (f *Fleet) tellElastic() {
	on := f.cfg.NodesOnDemand || f.pooled || slices.ContainsFunc(f.watch.events, func(i cache.SharedIndexInformer) bool { return len(i.GetStore().ListKeys()) > 0 })
	if on == f.elastic || f.core == nil {
		return
	}
	f.elastic = on
	f.log.Info("what no node can hold is started", "nodes may be added", on)
	f.core.SetElastic(on)
}

// candidates lists the nodes on which instances are, for only there can room be made, and which could take a pod if nothing
// else were on them: they are in use, have what it requests, the labels that it asks for, and no taint that it does not tolerate.
func (f *Fleet) candidates(o *corev1.Pod, need api.Requests) []string {
	ours := make(map[string]bool)
	for _, p := range f.pods {
		ours[p.object.Spec.NodeName] = true
	}
	var names []string
	for name := range ours {
		n, err := f.watch.nodeLister.Get(name)
		if err == nil && !n.Spec.Unschedulable && labels.SelectorFromSet(o.Spec.NodeSelector).Matches(labels.Set(n.Labels)) && tolerates(o, n) && amounts(n.Status.Allocatable).Lack(need) == nil {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}

// tolerates says whether no taint of a node keeps a pod away.
func tolerates(o *corev1.Pod, n *corev1.Node) bool {
	return !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && !slices.ContainsFunc(o.Spec.Tolerations, func(have corev1.Toleration) bool {
			return have.ToleratesTaint(klog.Background(), &t, false)
		})
	})
}

// offer gives the core what the nodes have left that could take the pods which have none, its own and others'. Without such
// a pod nothing is computed.
func (f *Fleet) offer() {
	nodes := make(map[string]bool)
	for _, p := range f.pods {
		if p.status.Unplaced() {
			for _, name := range p.status.Candidates {
				nodes[name] = true
			}
		}
	}
	unmanaged := f.others()
	for _, s := range unmanaged {
		for _, name := range s.Candidates {
			nodes[name] = true
		}
	}
	var rooms []inventory.Room
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		room, err := f.roomOf(name)
		if err != nil {
			f.log.Error("what a node has left can't be said", "node", name, "error", err)
			continue
		}
		rooms = append(rooms, room)
	}
	if len(rooms) == 0 {
		clear(f.ending)
	}
	if reflect.DeepEqual(rooms, f.rooms) && reflect.DeepEqual(unmanaged, f.unmanaged) {
		return
	}
	f.rooms, f.unmanaged = rooms, unmanaged
	f.core.SetRooms(rooms, unmanaged)
}

// roomOf adds up what a node has left. Of pods one hears in two ways: one of ours that has found its node counts from when the
// core knows it too, or its room would be looked for once more, where it has taken it.
func (f *Fleet) roomOf(name string) (inventory.Room, error) {
	n, err := f.watch.nodeLister.Get(name)
	if err != nil {
		return inventory.Room{}, err
	}
	pods, err := f.watch.everyPod.GetIndexer().ByIndex(indexNode, name)
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
		if own := f.pods[api.InstanceID(p.Name)]; own != nil && own.object.UID == p.UID {
			if own.object.Spec.NodeName == "" {
				continue
			}
			if needs = requestsOf(own.object); own.growing != nil { // it has not got it yet
				needs = needs.Minus(ungranted(own.object))
			}
		}
		room.Free = room.Free.Minus(needs)
		if p.DeletionTimestamp != nil || f.ending[p.UID] {
			room.Leaving = room.Leaving.Plus(needs)
		}
	}
	return room, nil
}

// onAnyPod has what nodes have left looked at again, where a pod waits for one.
func (f *Fleet) onAnyPod(o any) {
	p, is := o.(*corev1.Pod)
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.rooms) > 0 || is && p.Spec.NodeName == "" && refusedBy(p) != nil {
		f.stale.Ring()
	}
}

// keepRooms looks again at what nodes have left until ctx ends, but not at every pod's every word.
func (f *Fleet) keepRooms(ctx context.Context) {
	f.stale.Each(ctx, func() {
		f.mu.Lock()
		f.offer()
		f.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(pollEvery / 10):
		}
	})
}

// leaves takes in that a pod is on its way out before the core hears of it, which would take what it leaves for lost:
// of pods one hears in two ways, and either may be the first.
func (f *Fleet) leaves(p *pod) {
	k := slices.IndexFunc(f.rooms, func(r inventory.Room) bool { return r.Node == p.object.Spec.NodeName })
	if k < 0 {
		return
	}
	f.ending[p.object.UID] = true
	if room, err := f.roomOf(p.object.Spec.NodeName); err == nil {
		f.rooms = slices.Clone(f.rooms)
		f.rooms[k] = room
		f.core.SetRooms(f.rooms, f.unmanaged)
	}
}

// followRooms has the fleet hear of every pod that comes to a node or leaves it.
func (f *Fleet) followRooms() error {
	_, err := f.watch.everyPod.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    f.onAnyPod,
		UpdateFunc: func(_, o any) { f.onAnyPod(o) },
		DeleteFunc: f.onAnyPod,
	})
	if err != nil {
		return fmt.Errorf("watch the pods of nodes: %w", err)
	}
	return nil
}
