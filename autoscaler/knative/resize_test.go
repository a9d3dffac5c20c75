package knative

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubetesting "k8s.io/client-go/testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// kubelet is the kubelet's reaction to a resize.
type kubelet int

const (
	grants kubelet = iota
	defers
	ignores
)

// resizable has pod-1 request 500m and 1 GiB for the function and 25m for its proxy, on a node of 2 CPUs and 4 GiB, asleep with 100 MiB
// in use. does says what its kubelet does with a resize, refusal what the API server says.
func (c *cluster) resizable(does *kubelet, refusal *error) {
	c.t.Helper()
	of := map[string]corev1.ResourceList{"user-container": quantities("cpu", "500m", "memory", "1Gi"), "queue-proxy": quantities("cpu", "25m")}
	c.add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "big"}, Status: corev1.NodeStatus{Allocatable: quantities("cpu", "2", "memory", "4Gi", "pods", "10")}})
	o, err := c.kube.Tracker().Get(deployments, "default", "tiny-00001-deployment")
	if err != nil {
		c.t.Fatal(err)
	}
	d := o.(*appsv1.Deployment).DeepCopy()
	for name, list := range of {
		d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: list}})
	}
	if err := c.kube.Tracker().Update(deployments, d, d.Namespace); err != nil {
		c.t.Fatal(err)
	}
	c.kube.PrependReactor("patch", "pods", func(action kubetesting.Action) (bool, runtime.Object, error) {
		p := action.(kubetesting.PatchAction)
		if p.GetSubresource() != "resize" {
			return false, nil, nil
		}
		if *refusal != nil {
			return true, nil, *refusal
		}
		var patch corev1.Pod
		if err := json.Unmarshal(p.GetPatch(), &patch); err != nil {
			return true, nil, err
		}
		if len(patch.Spec.Containers) != 2 || patch.Spec.Containers[0].Name != "user-container" {
			return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, p.GetName(), nil) // containers may not be reordered
		}
		c.change(p.GetName(), func(o *corev1.Pod) { resize(o, patch.Spec.Containers, *does) })
		now, err := c.kube.Tracker().Get(podResource, "default", p.GetName())
		return true, now, err
	})
	c.runs("pod-1", "10.0.0.1")
	c.edit("pod-1", func(o *corev1.Pod) {
		o.Spec.NodeName, o.Status.QOSClass = "big", corev1.PodQOSBurstable
		for k := range o.Spec.Containers {
			o.Spec.Containers[k].Resources.Requests = of[o.Spec.Containers[k].Name].DeepCopy()
		}
	})
	c.declare(scaling{initialized: true})
	if _, err := c.join("pod-1", "10.0.0.1"); err != nil {
		c.t.Fatal(err)
	}
	if err := c.fleet.Report(c.asleep(5), netip.MustParseAddr("10.0.0.1"), ownTok); err != nil {
		c.t.Fatal(err)
	}
	c.instances["10.0.0.1:8080"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := c.asleep(20)
		if r.URL.Path == control.PathWake {
			s.State, s.Level, s.Seq = api.Awake, 0, 30
		}
		api.WriteJSON(w, http.StatusOK, s)
	})
}

func (c *cluster) asleep(seq uint64) api.InstanceStatus {
	return api.InstanceStatus{Instance: "pod-1", Function: tiny, State: api.Asleep, Level: api.Level1, Seq: seq, Memory: api.Memory{Host: 100 * api.MiB}}
}

// resize does what Kubernetes does.
func resize(o *corev1.Pod, to []corev1.Container, does kubelet) {
	o.Status.Conditions = nil
	if to != nil {
		o.Generation++
	}
	for k := range o.Spec.Containers {
		c := &o.Spec.Containers[k]
		before := c.Resources.Requests.DeepCopy()
		for _, patch := range to {
			if patch.Name == c.Name {
				for name, q := range patch.Resources.Requests {
					c.Resources.Requests[name] = q
				}
			}
		}
		has := corev1.ContainerStatus{Name: c.Name, Resources: &corev1.ResourceRequirements{Requests: before}}
		if does == grants {
			has.Resources.Requests = c.Resources.Requests.DeepCopy()
		}
		known := false
		for j := range o.Status.ContainerStatuses {
			if s := &o.Status.ContainerStatuses[j]; s.Name == c.Name {
				if s.Resources == nil || does == grants {
					s.Resources = has.Resources
				}
				known = true
			}
		}
		if !known {
			o.Status.ContainerStatuses = append(o.Status.ContainerStatuses, has)
		}
	}
	if does == defers {
		o.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred, Message: "Node didn't have enough resource: cpu."}}
	}
}

// requested returns the requests of pod-1.
func (c *cluster) requested() api.Requests { return requestsOfSpec(c.pods()[0]) }

func requestsOfSpec(o *corev1.Pod) api.Requests {
	o = o.DeepCopy()
	o.Status.ContainerStatuses = nil
	return requestsOf(o)
}

var (
	large = api.Requests{"cpu": 525, "memory": 1 << 30, "pods": 1}
	small = api.Requests{"cpu": 4, "memory": 116 << 20, "pods": 1}
)

// shrinks puts pod-1, which is asleep, to sleep again with the order to give up what it can spare.
func (c *cluster) shrinks() api.InstanceStatus {
	c.t.Helper()
	s := c.last("pod-1")
	if d := cmp.Diff(api.Requests{"cpu": 521, "memory": 908 << 20}, s.Spare); d != "" || s.Shrunk {
		c.t.Fatalf("it can spare, -want +got:\n%s", d)
	}
	s, err := c.fleet.Sleep(c.t.Context(), s, api.Level1, 9, api.Drain{})
	if err != nil || s.State != api.Asleep {
		c.t.Fatalf("it is %s, %v; want it asleep as before", s.State, err)
	}
	return s
}

// TestASleeperShrinksAndGrows: what it gives up, and that it is woken when its kubelet has admitted that it gets it again and no sooner,
// for which the core is told what its node lacks.
func TestASleeperShrinksAndGrows(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		does, refusal := grants, error(nil)
		c.resizable(&does, &refusal)
		s := c.shrinks()
		if d := cmp.Diff(small, c.requested()); d != "" || !s.Shrunk || s.Spare != nil || cmp.Diff(small, s.Requests) != "" {
			t.Errorf("it says %+v; its pod requests, -want +got:\n%s", s, d)
		}
		does = defers
		woken := make(chan error, 1)
		go func() {
			awake, err := c.fleet.Wake(t.Context(), s, api.Grant{Epoch: 10})
			if err == nil && (awake.State != api.Awake || awake.Shrunk || cmp.Diff(large, awake.Requests) != "") {
				err = errors.New(string(awake.State) + " with " + awake.Requests.String())
			}
			woken <- err
		}()
		time.Sleep(pollEvery)
		synctest.Wait()
		if c.called("POST 10.0.0.1:8080" + control.PathWake) {
			t.Error("it was woken before it had what it requests awake")
		}
		if d := cmp.Diff(large, c.requested()); d != "" {
			t.Errorf("its pod is to have, -want +got:\n%s", d)
		}
		c.mu.Lock()
		rooms, unmanaged := c.rooms, c.unmanaged
		c.mu.Unlock()
		if d := cmp.Diff([]inventory.UnmanagedPod{{Name: "pod-1", Function: tiny, Requests: api.Requests{"cpu": 521, "memory": 908 << 20}, Candidates: []string{"big"}}}, unmanaged); d != "" {
			t.Errorf("what wants room, -want +got:\n%s", d)
		}
		if d := cmp.Diff([]inventory.Room{{Node: "big", Free: api.Requests{"cpu": 1996, "memory": 4<<30 - 116<<20, "pods": 9}}}, rooms); d != "" {
			t.Errorf("what its node has left, which does not count what it waits for, -want +got:\n%s", d)
		}
		admits := func(generation int64) {
			c.edit("pod-1", func(o *corev1.Pod) {
				o.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue, ObservedGeneration: generation}}
			})
			time.Sleep(pollEvery)
			synctest.Wait()
		}
		if admits(1); c.called("POST 10.0.0.1:8080" + control.PathWake) {
			t.Error("it was woken when its kubelet had admitted that it shrinks")
		}
		if admits(2); !c.called("POST 10.0.0.1:8080" + control.PathWake) {
			t.Error("it was not woken though its kubelet has admitted what it requests awake")
		}
		if err := <-woken; err != nil {
			t.Errorf("its wake: %v", err)
		}
		c.edit("pod-1", func(o *corev1.Pod) { resize(o, nil, grants) })
		time.Sleep(pollEvery)
		synctest.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.rooms)+len(c.unmanaged) > 0 {
			t.Errorf("afterwards %v of %v is looked for", c.unmanaged, c.rooms)
		}
	})
}

// TestASleeperThatCannotGrow sleeps on with what it has, and its wake says what stands in the way.
func TestASleeperThatCannotGrow(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		does, refusal := grants, error(nil)
		c.resizable(&does, &refusal)
		s := c.shrinks()
		does = defers
		ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Second, errors.New("no answer within 30s"))
		defer cancel()
		_, err := c.fleet.Wake(ctx, s, api.Grant{Epoch: 10})
		if err == nil || !strings.Contains(err.Error(), "no answer within 30s (Deferred: Node didn't have enough resource: cpu)") {
			t.Errorf("its wake says %v, want what its kubelet says", err)
		}
		if d := cmp.Diff(small, c.requested()); d != "" || c.called("POST 10.0.0.1:8080"+control.PathWake) {
			t.Errorf("it was woken, or its pod is to have, -want +got:\n%s", d)
		}
	})
}

// TestWherePodsCannotBeResized they keep what they request, and nobody is asked twice.
func TestWherePodsCannotBeResized(t *testing.T) {
	for name, tt := range map[string]struct {
		does    kubelet
		refusal error
		node    bool
	}{
		"the API server knows nothing of it": {refusal: apierrors.NewGenericServerResponse(http.StatusNotFound, "patch", schema.GroupResource{Resource: "pods"}, "pod-1", "", 0, true), node: true},
		"the kubelet does nothing":           {does: ignores}, // or is late
		"a limit range forbids it":           {refusal: apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "pod-1", errors.New("minimum cpu usage per Container is 10m"))},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
				does, refusal := tt.does, tt.refusal
				c.resizable(&does, &refusal)
				s := c.shrinks()
				if d := cmp.Diff(large, c.requested()); d != "" || s.Spare != nil || s.Shrunk {
					t.Errorf("it says %+v; its pod requests, -want +got:\n%s", s, d)
				}
				if c.fleet.resizer.rigid["big"] != tt.node {
					t.Errorf("the node is said not to resize pods: %t, want %t", !tt.node, tt.node)
				}
				does, refusal = grants, nil
				if s, err := c.fleet.Wake(t.Context(), s, api.Grant{Epoch: 10}); err != nil || s.State != api.Awake {
					t.Errorf("its wake: %s, %v", s.State, err)
				}
			})
		})
	}
}

// TestPodsThatAreLeftAlone: one whose class of service would change, and all where the operator says so.
func TestPodsThatAreLeftAlone(t *testing.T) {
	for name, change := range map[string]func(*cluster){
		"guaranteed": func(c *cluster) {
			c.edit("pod-1", func(o *corev1.Pod) { o.Status.QOSClass = corev1.PodQOSGuaranteed })
		},
		"the operator says so": func(c *cluster) { c.fleet.cfg.KeepRequests = true },
		"it would restart": func(c *cluster) {
			c.edit("pod-1", func(o *corev1.Pod) {
				for k := range o.Spec.Containers {
					o.Spec.Containers[k].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}}
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
				does, refusal := grants, error(nil)
				c.resizable(&does, &refusal)
				change(c)
				synctest.Wait()
				if err := c.fleet.Report(c.asleep(40), netip.MustParseAddr("10.0.0.1"), ownTok); err != nil {
					t.Fatal(err)
				}
				if s := c.last("pod-1"); s.Spare != nil {
					t.Errorf("it can spare %s, want nothing", s.Spare)
				}
			})
		})
	}
}
