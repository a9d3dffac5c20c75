package knative

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"knative.dev/pkg/ptr"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

func quantities(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for k := 0; k < len(pairs); k += 2 {
		list[corev1.ResourceName(pairs[k])] = resource.MustParse(pairs[k+1])
	}
	return list
}

// TestRequestsOfAPod: as the scheduler counts them.
func TestRequestsOfAPod(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	one := func(pairs ...string) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{Requests: quantities(pairs...)}}
	}
	beside := one("cpu", "50m")
	beside.RestartPolicy = &always
	o := &corev1.Pod{Spec: corev1.PodSpec{
		Overhead:       quantities("memory", "10Mi"),
		InitContainers: []corev1.Container{beside, one("cpu", "2", "memory", "1Mi")},
		Containers:     []corev1.Container{one("cpu", "100m", "memory", "64Mi", "nvidia.com/gpu", "1"), one("cpu", "25m")},
	}}
	want := api.Requests{"cpu": 2050, "memory": 74 << 20, "nvidia.com/gpu": 1, "pods": 1}
	if d := cmp.Diff(want, requestsOf(o)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	slim, err := stripPod(o)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, requestsOf(slim.(*corev1.Pod))); d != "" {
		t.Errorf("what is kept of it has other requests, -want +got:\n%s", d)
	}
}

// TestNodesThatMayBeAdded: in a cloud, with Karpenter, where the operator says so, and once somebody has said that he adds one.
func TestNodesThatMayBeAdded(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*corev1.Node)
		event  *corev1.Event
		want   bool
	}{
		"neither":   {func(*corev1.Node) {}, nil, false},
		"by kind":   {func(n *corev1.Node) { n.Spec.ProviderID = "kind://docker/kind/kind-control-plane" }, nil, false},
		"cloud":     {func(n *corev1.Node) { n.Spec.ProviderID = "gce://project/zone/name" }, nil, true},
		"Karpenter": {func(n *corev1.Node) { n.Labels = map[string]string{labelNodePool: "gpus"} }, nil, true},
		"an event":  {func(*corev1.Node) {}, says(eventScaleUp, "pool 0->1", "x"), true},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
				c.declare(scaling{initialized: true})
				c.edit("pod-1", without)
				if tt.event != nil {
					c.add(tt.event)
				}
				n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node2"}}
				tt.change(n)
				c.add(n)
				time.Sleep(2 * pollEvery)
				synctest.Wait()
				c.mu.Lock()
				defer c.mu.Unlock()
				if c.elastic != tt.want {
					t.Errorf("the core takes it that nodes may be added: %t, want %t", c.elastic, tt.want)
				}
			})
		})
	}
}

// TestPodsOfOthersThatFindNoNode are told, but for those that count less than the common pod, that the scheduler makes
// room for, or that ask for their node by name.
func TestPodsOfOthersThatFindNoNode(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		c.declare(scaling{initialized: true})
		c.edit("pod-1", func(p *corev1.Pod) { p.Spec.NodeName = "big" })
		c.add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "big"}, Status: corev1.NodeStatus{Allocatable: quantities("cpu", "2", "pods", "10")}})
		c.add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "without-ours"}, Status: corev1.NodeStatus{Allocatable: quantities("cpu", "2", "pods", "10")}})
		unmanaged := func(name string, change func(*corev1.Pod)) {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: quantities("cpu", "1500m")}}}}}
			without(p)
			change(p)
			c.add(p)
		}
		unmanaged("web", func(*corev1.Pod) {})
		unmanaged("spare", func(p *corev1.Pod) { p.Spec.Priority = ptr.Int32(-10) })
		unmanaged("preempts", func(p *corev1.Pod) { p.Status.NominatedNodeName = "big" })
		unmanaged("huge", func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = quantities("cpu", "50") })
		unmanaged("new", func(p *corev1.Pod) { p.Status.Conditions = nil })
		unmanaged("daemon", func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{}}}
		})
		time.Sleep(pollEvery)
		synctest.Wait()
		told := func(want ...inventory.UnmanagedPod) {
			t.Helper()
			c.mu.Lock()
			defer c.mu.Unlock()
			if d := cmp.Diff(want, c.unmanaged); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if rooms := len(c.rooms); rooms != len(want) {
				t.Errorf("what %d nodes have left is told, want %d", rooms, len(want))
			}
		}
		told(inventory.UnmanagedPod{Name: "shop/web", Requests: api.Requests{"cpu": 1500, "pods": 1}, Candidates: []string{"big"}})
		if err := c.kube.Tracker().Delete(podResource, "shop", "web"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(pollEvery)
		synctest.Wait()
		told()
	})
}

// TestWhatNodesHaveLeft is told while a pod finds no node, of those that could take it, and followed until it has one.
func TestWhatNodesHaveLeft(t *testing.T) {
	inCluster(t, 4, nil, func(t *testing.T, c *cluster) {
		c.declare(scaling{initialized: true})
		node := func(name string, change func(*corev1.Node)) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Allocatable: quantities("cpu", "2", "memory", "8Gi", "pods", "10")}}
			change(n)
			c.add(n)
		}
		node("fits", func(*corev1.Node) {})
		node("cordoned", func(n *corev1.Node) { n.Spec.Unschedulable = true })
		node("tainted", func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "only", Value: "others", Effect: corev1.TaintEffectNoSchedule}}
		})
		node("small", func(n *corev1.Node) { n.Status.Allocatable = quantities("cpu", "10m", "pods", "10") })
		other := func(name, cpu string, change func(*corev1.Pod)) {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "others", Name: name, UID: "uid-1"}, Spec: corev1.PodSpec{NodeName: "fits",
				Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: quantities("cpu", cpu)}}}}}
			change(p)
			c.add(p)
		}
		other("works", "1500m", func(*corev1.Pod) {})
		other("over", "1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
		for k, name := range []string{"fits", "cordoned", "small"} {
			c.edit(fmt.Sprintf("pod-%d", k+2), func(p *corev1.Pod) { p.Spec.NodeName = name })
		}
		c.edit("pod-1", func(p *corev1.Pod) {
			without(p)
			p.Spec.Containers[0].Resources.Requests = quantities("cpu", "100m")
		})
		time.Sleep(2 * pollEvery)
		synctest.Wait()
		if got := c.last("pod-1").Candidates; !cmp.Equal(got, []string{"fits"}) {
			t.Errorf("it could go to %v, want only where it fits and is let in", got)
		}
		free := func(when string, want ...inventory.Room) {
			t.Helper()
			time.Sleep(pollEvery)
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			if d := cmp.Diff(want, c.rooms); d != "" {
				t.Errorf("%s, -want +got:\n%s", when, d)
			}
		}
		left := func(cpu, pods int64) api.Requests { return api.Requests{"cpu": cpu, "memory": 8 << 30, "pods": pods} }
		free("at first", inventory.Room{Node: "fits", Free: left(500, 8)})
		other("leaves", "200m", beingDeleted)
		free("one is being deleted", inventory.Room{Node: "fits", Free: left(300, 7), Leaving: api.Requests{"cpu": 200, "pods": 1}})
		c.ahead("pod-1", "fits")
		free("it has a node, of which the core has not heard", inventory.Room{Node: "fits", Free: left(300, 7), Leaving: api.Requests{"cpu": 200, "pods": 1}})
		c.edit("pod-1", func(p *corev1.Pod) {
			p.Spec.NodeName, p.Status.Conditions[0].Status, p.Status.Conditions[0].Reason = "fits", corev1.ConditionTrue, ""
		})
		time.Sleep(2 * pollEvery)
		free("it has a node")
	})
}

// ahead makes the account of nodes see a scheduled pod before the watch of functions' pods does.
func (c *cluster) ahead(name, node string) {
	c.t.Helper()
	o, err := c.kube.Tracker().Get(podResource, "default", name)
	if err != nil {
		c.t.Fatal(err)
	}
	p := o.(*corev1.Pod).DeepCopy()
	p.Spec.NodeName, p.Status.Conditions = node, nil
	slim, err := stripPod(p)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.fleet.watch.everyPod.GetIndexer().Update(slim); err != nil {
		c.t.Fatal(err)
	}
	c.fleet.rooms.onAnyPod(slim)
}

// TestWhatASleeperGaveUpIsThereWhenItHasIt: when the core hears that a sleeper has nothing to spare any more, it has heard
// before that its node has that left.
func TestWhatASleeperGaveUpIsThereWhenItHasIt(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		does, refusal := defers, error(nil)
		c.resizable(&does, &refusal)
		c.add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web"}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: quantities("cpu", "1700m")}}}},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}}})
		time.Sleep(pollEvery)
		synctest.Wait()
		cpu := func() int64 {
			c.mu.Lock()
			defer c.mu.Unlock()
			if len(c.rooms) != 1 {
				t.Fatalf("got %+v, want what one node has left", c.rooms)
			}
			return c.rooms[0].Free["cpu"]
		}
		if got := cpu(); got != 2000-525 {
			t.Fatalf("at first %d are left", got)
		}
		o := c.pods()[0]
		resize(o, []corev1.Container{{Name: "user-container", Resources: corev1.ResourceRequirements{Requests: quantities("cpu", "2m")}},
			{Name: "queue-proxy", Resources: corev1.ResourceRequirements{Requests: quantities("cpu", "2m")}}}, grants)
		c.fleet.mu.Lock()
		c.fleet.tracker.observePod(o)
		c.fleet.mu.Unlock() // from now on the sleeper may report
		if got := cpu(); got != 2000-4 {
			t.Errorf("when its pod has shrunk %d are left, want what it gave up among it", got)
		}
	})
}
