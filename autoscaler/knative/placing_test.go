package knative

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rouse-dev/rouse/api"
)

// without takes the node away from a pod, as the scheduler does that finds none.
func without(p *corev1.Pod) {
	p.Spec.NodeName = ""
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		LastTransitionTime: metav1.Now(), Message: "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."}}
}

// says returns an event of a node autoscaler.
func says(reason, message string, uid string) *corev1.Event {
	return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: reason + uid + time.Now().Format(".150405")}, Reason: reason, Message: message,
		LastTimestamp:  metav1.Now(),
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "pod-1", UID: "pod-1"}}
}

// TestAPodWithoutNodeWaits for hours, and says why; while a node is being added for it, it says that, until
// that has taken too long; and when a node takes it, it starts as every pod.
func TestAPodWithoutNodeWaits(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		c.declare(scaling{initialized: true})
		c.edit("pod-1", without)
		expect := func(when, stage string, parts ...string) {
			t.Helper()
			time.Sleep(2 * pollEvery)
			synctest.Wait()
			s := c.last("pod-1")
			if s.State != api.Starting || s.Stage != stage {
				t.Errorf("%s: got %s in the stage %q: %s; want it starting in %q", when, s.State, s.Stage, s.Message, stage)
			}
			for _, part := range parts {
				if !strings.Contains(s.Message, part) {
					t.Errorf("%s: %q lacks %q", when, s.Message, part)
				}
			}
		}
		expect("at once", api.StageUnschedulable, "pod-1", "Insufficient nvidia.com/gpu", "time slicing")
		if pa, _ := c.pass(); !pa.Status.IsActivating() || !strings.Contains(pa.Status.GetCondition("Active").Message, "Insufficient nvidia.com/gpu") {
			t.Errorf("the PodAutoscaler says %+v, want that it waits, and for what", pa.Status.GetCondition("Active"))
		}
		time.Sleep(3 * time.Hour)
		expect("hours later", api.StageUnschedulable, "Insufficient nvidia.com/gpu")
		if n := c.heard("pod-1"); n > 3 {
			t.Errorf("the core heard %d times of a pod to which nothing happened", n)
		}
		c.add(says(eventNoScaleUp, "pod didn't trigger scale-up: 1 max node group size reached", "a"))
		expect("no node is added", api.StageUnschedulable, "max node group size reached")
		time.Sleep(time.Minute)
		c.add(says(eventScaleUp, "pod triggered scale-up: [{gpu-pool 0->1 (max: 4)}]", "b"))
		expect("a node is added", api.StageProvisioning, "gpu-pool 0->1")
		time.Sleep(c.fleet.cfg.ProvisionTimeout)
		expect("it does not come", api.StageUnschedulable, "has not come within 15m", "gpu-pool")
		c.add(says(eventNominated, "Pod should schedule on: nodeclaim/gpu-x7k2p", "c"))
		expect("Karpenter makes one", api.StageProvisioning, "gpu-x7k2p")
		c.edit("pod-1", func(p *corev1.Pod) {
			p.Spec.NodeName, p.Status.Conditions[0].Status, p.Status.Conditions[0].Reason = "node1", corev1.ConditionTrue, ""
		})
		expect("it has a node", stageCreating)
		if s := c.last("pod-1"); s.Message != "" {
			t.Errorf("it has a node and says %q", s.Message)
		}
	})
}

func TestProvisioning(t *testing.T) {
	now := time.Now()
	event := func(reason string, ago time.Duration) *corev1.Event {
		return &corev1.Event{Reason: reason, Message: reason + ".", EventTime: metav1.NewMicroTime(now.Add(-ago)), InvolvedObject: corev1.ObjectReference{UID: "uid"}}
	}
	other := event(eventScaleUp, 0)
	other.InvolvedObject.UID = "another"
	series := event(eventScaleUp, time.Hour)
	series.Series = &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(now.Add(-time.Second))}
	for name, tt := range map[string]struct {
		nominated string
		events    []*corev1.Event
		adding    bool
		says      string
	}{
		"nobody says anything":       {},
		"a node is on its way":       {events: []*corev1.Event{event(eventScaleUp, time.Minute)}, adding: true, says: eventScaleUp},
		"none is, after all":         {events: []*corev1.Event{event(eventNoScaleUp, time.Second), event(eventScaleUp, time.Minute)}, says: "no node is added"},
		"one is, after all":          {events: []*corev1.Event{event(eventNoScaleUp, time.Minute), event(eventNominated, time.Second)}, adding: true, says: eventNominated},
		"it is long overdue":         {events: []*corev1.Event{event(eventScaleUp, time.Hour)}, says: "has not come within 15m0s"},
		"it is said again and again": {events: []*corev1.Event{series}, adding: true, says: eventScaleUp},
		"of a pod by the same name":  {events: []*corev1.Event{other}},
		"the scheduler makes room":   {nominated: "node7", adding: true, says: "node7"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid"}, Status: corev1.PodStatus{NominatedNodeName: tt.nominated}}
			got := provisioning(pod, tt.events, now, 15*time.Minute)
			if got.adding != tt.adding || !strings.Contains(got.says, tt.says) || tt.says == "" && got.says != "" {
				t.Errorf("got %+v, want adding %t and %q", got, tt.adding, tt.says)
			}
		})
	}
}
