package knative

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"knative.dev/pkg/configmap"
	"knative.dev/pkg/controller"
	autoscalingv1alpha1 "knative.dev/serving/pkg/apis/autoscaling/v1alpha1"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	"knative.dev/serving/pkg/autoscaler/config/autoscalerconfig"
	"knative.dev/serving/pkg/reconciler/autoscaling/config"

	"github.com/rouse-dev/rouse/api"
)

// pass reconciles the PodAutoscaler once, and returns it and the events.
func (c *cluster) pass() (*autoscalingv1alpha1.PodAutoscaler, []string) {
	c.t.Helper()
	events := record.NewFakeRecorder(16)
	ctx := controller.WithEventRecorder(c.t.Context(), events)
	ctx = config.ToContext(ctx, &config.Config{Autoscaler: &autoscalerconfig.Config{InitialScale: 1, AllowZeroInitialScale: true}})
	r := &reconciler{c.fleet}
	pa, err := c.serving.AutoscalingV1alpha1().PodAutoscalers("default").Get(ctx, tiny.Name(), metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	pa.Status.InitializeConditions()
	if err := r.ReconcileKind(ctx, pa); err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.serving.AutoscalingV1alpha1().PodAutoscalers("default").UpdateStatus(ctx, pa, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
	close(events.Events)
	var said []string
	for e := range events.Events {
		said = append(said, e)
	}
	return pa, said
}

func TestTheFirstPasses(t *testing.T) {
	inCluster(t, 0, map[string]string{"autoscaling.knative.dev/initial-scale": "0"}, func(t *testing.T, c *cluster) {
		pa, _ := c.pass()
		if !pa.Status.IsScaleTargetInitialized() || pa.Status.ServiceName != "tiny-00001" || !pa.Status.IsInactive() {
			t.Errorf("the first pass: got %+v", pa.Status)
		}
		wait := c.begin("tiny-00001-0001", api.Grant{})
		if pa, _ = c.pass(); !pa.Status.IsActivating() || *pa.Status.DesiredScale != 1 || *pa.Status.ActualScale != 0 {
			t.Errorf("on its way: got %+v", pa.Status)
		}
		if _, err := wait(); err != nil {
			t.Fatal(err)
		}
		c.addressed("pod-1", "10.0.0.1")
		if _, err := c.join("pod-1", "10.0.0.1"); err != nil {
			t.Fatal(err)
		}
		_ = c.report("pod-1", "10.0.0.1", api.Awake, 5)
		if pa, _ = c.pass(); !pa.Status.IsActive() || *pa.Status.ActualScale != 1 {
			t.Errorf("awake: got %+v", pa.Status)
		}
		_ = c.report("pod-1", "10.0.0.1", api.Asleep, 6)
		if pa, _ = c.pass(); !pa.Status.IsInactive() || *pa.Status.ActualScale != 0 || c.replicas() != 1 {
			t.Errorf("asleep: got %+v and %d replicas, want the pod kept", pa.Status, c.replicas())
		}
	})
}

// TestTheClustersMaxScale counts for a function that has none of its own.
func TestTheClustersMaxScale(t *testing.T) {
	for _, tc := range []struct {
		declared api.Function
		says     scaling
		want     int
	}{
		{api.Function{MaxScale: 1}, scaling{initialized: true}, 1},
		{api.Function{MaxScale: 1}, scaling{initialized: true, most: 3}, 3},
		{api.Function{MaxScale: 1}, scaling{initialized: true, most: 3, min: 4}, 4},
	} {
		if got := bounded(tc.declared, tc.says, false).MaxScale; got != tc.want {
			t.Errorf("%+v: max-scale is %d, want %d", tc.says, got, tc.want)
		}
	}
}

// TestAPodWithoutNodeIsNotOutOfReach: Knative calls a revision unreachable whose pods find no node. A route leads
// to it all the same, and it is kept; one that no route leads to is let go.
func TestAPodWithoutNodeIsNotOutOfReach(t *testing.T) {
	for state, want := range map[servingv1.RoutingState]int{servingv1.RoutingStateActive: 1, servingv1.RoutingStatePending: 1, servingv1.RoutingStateReserve: 0} {
		t.Run(string(state), func(t *testing.T) {
			inCluster(t, 1, map[string]string{"autoscaling.knative.dev/min-scale": "1"}, func(t *testing.T, c *cluster) {
				ctx := t.Context()
				rev, err := c.serving.ServingV1().Revisions("default").Get(ctx, tiny.Name(), metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				rev.SetRoutingState(state, time.Now())
				rev.Status.MarkResourcesAvailableFalse("Unschedulable", "0/1 nodes are available")
				if _, err := c.serving.ServingV1().Revisions("default").Update(ctx, rev, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				pa, err := c.serving.AutoscalingV1alpha1().PodAutoscalers("default").Get(ctx, tiny.Name(), metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				pa.Spec.Reachability = autoscalingv1alpha1.ReachabilityUnreachable
				if _, err := c.serving.AutoscalingV1alpha1().PodAutoscalers("default").Update(ctx, pa, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				c.pass()
				if got := c.functions[tiny].MinScale; got != want {
					t.Errorf("got min-scale %d, want %d", got, want)
				}
			})
		})
	}
}

func TestAWrongAnnotationReachesTheRevision(t *testing.T) {
	inCluster(t, 1, map[string]string{"rouse.dev/sleep-after": "soon"}, func(t *testing.T, c *cluster) {
		_, events := c.pass()
		if len(events) != 2 || !strings.Contains(events[0], "Warning "+reasonAnnotation) || !strings.Contains(events[0], "30s") {
			t.Errorf("got the events %q, want a warning at the revision and one at the PodAutoscaler", events)
		}
		pa, events := c.pass()
		if len(events) > 0 {
			t.Errorf("again: got %q, want it told once", events)
		}
		if cond := pa.Status.GetCondition(autoscalingv1alpha1.PodAutoscalerConditionActive); !cond.IsFalse() || cond.Reason != reasonAnnotation {
			t.Errorf("got %+v", cond)
		}
		rev, err := c.serving.ServingV1().Revisions("default").Get(t.Context(), tiny.Name(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		cond := rev.Status.GetCondition(servingv1.RevisionConditionReady)
		if cond == nil || !cond.IsFalse() || !strings.Contains(cond.Message, "sleep-after") {
			t.Errorf("the revision says %+v, want what is wrong", cond)
		}
	})
}

// TestAFailedStartIsAnEvent: each failure is told once.
func TestAFailedStartIsAnEvent(t *testing.T) {
	inCluster(t, 0, nil, func(t *testing.T, c *cluster) {
		c.pass()
		for range 2 {
			c.fleet.mu.Lock()
			c.fleet.revisions[tiny].trouble = &trouble{"StartFailed", "the pod is refused"}
			c.fleet.mu.Unlock()
			_, events := c.pass()
			if want := []string{"Warning StartFailed the pod is refused", "Warning StartFailed the pod is refused"}; !slices.Equal(events, want) {
				t.Errorf("got the events %q, want one at the revision and one at the PodAutoscaler", events)
			}
			if _, events = c.pass(); len(events) > 0 {
				t.Errorf("again: got %q", events)
			}
			c.fleet.mu.Lock()
			c.fleet.revisions[tiny].trouble = nil // a start succeeds
			c.fleet.mu.Unlock()
			if _, events = c.pass(); len(events) > 0 {
				t.Errorf("after a start: got %q", events)
			}
		}
	})
}

// TestADeletedPodAutoscaler: instances stay while their revision is there, for Knative makes another PodAutoscaler.
func TestADeletedPodAutoscaler(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		c.pass()
		r, key := &reconciler{c.fleet}, types.NamespacedName{Namespace: "default", Name: tiny.Name()}
		if again, _ := controller.IsRequeueKey(r.ObserveDeletion(t.Context(), key)); !again || slices.Contains(c.removed, tiny) {
			t.Errorf("it is looked at again: %t; removed: %v", again, c.removed)
		}
		if err := c.serving.ServingV1().Revisions("default").Delete(t.Context(), tiny.Name(), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := r.ObserveDeletion(t.Context(), key); err != nil || !slices.Contains(c.removed, tiny) {
			t.Errorf("without the revision: %v; removed: %v", err, c.removed)
		}
	})
}

func TestAControllerWithoutInjection(t *testing.T) {
	inCluster(t, 0, nil, func(t *testing.T, c *cluster) {
		ctx := controller.WithEventRecorder(t.Context(), record.NewFakeRecorder(16))
		impl := NewController(ctx, c.fleet, stillWatcher{})
		defer impl.WorkQueue().ShutDown()
		c.fleet.changed(tiny)
		if n := impl.WorkQueue().Len(); n == 0 {
			t.Error("a change of the fleet brings no pass")
		}
	})
}

// stillWatcher knows no ConfigMaps.
type stillWatcher struct{ configmap.Watcher }

func (stillWatcher) Watch(string, ...configmap.Observer) {}
