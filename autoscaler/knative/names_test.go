package knative

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"knative.dev/pkg/apis"
	autoscalingv1alpha1 "knative.dev/serving/pkg/apis/autoscaling/v1alpha1"
	"knative.dev/serving/pkg/apis/serving"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
)

// service adds a Knative Service that was made at some hour, and where aliases are given a revision of it, NAME-00001.
func (c *cluster) service(name api.FunctionName, hour int64, aliases string) {
	c.t.Helper()
	made := metav1.Unix(3600*hour, 0)
	objects := []runtime.Object{&servingv1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace(), Name: name.Name(), CreationTimestamp: made}}}
	if aliases != "" {
		meta := metav1.ObjectMeta{Namespace: name.Namespace(), Name: name.Name() + "-00001",
			Labels:      map[string]string{serving.ServiceLabelKey: name.Name()},
			Annotations: map[string]string{config.AnnotationClass: config.Class, config.AnnotationModel: "pico", "rouse.dev/aliases": aliases}}
		objects = append(objects, &autoscalingv1alpha1.PodAutoscaler{ObjectMeta: meta},
			&servingv1.Revision{ObjectMeta: meta, Spec: servingv1.RevisionSpec{PodSpec: corev1.PodSpec{Containers: []corev1.Container{{Image: "any"}}}}})
	}
	for _, o := range objects {
		if err := c.serving.Tracker().Add(o); err != nil {
			c.t.Fatal(err)
		}
	}
	synctest.Wait()
}

// conditions returns the name conditions of the Service default/tiny and its revision.
func (c *cluster) conditions() (of [2]*apis.Condition) {
	c.t.Helper()
	s, err := c.serving.ServingV1().Services("default").Get(c.t.Context(), "tiny", metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	r, err := c.serving.ServingV1().Revisions("default").Get(c.t.Context(), tiny.Name(), metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return [2]*apis.Condition{s.Status.GetCondition(conditionNames), r.Status.GetCondition(conditionNames)}
}

// TestLostNamesAreTold: the loser's Service and revision say so, ready as before, until the name is free.
func TestLostNamesAreTold(t *testing.T) {
	inCluster(t, 0, map[string]string{"rouse.dev/aliases": "gpt-4o, team/chat, team/later"}, func(t *testing.T, c *cluster) {
		asked := map[api.FunctionName]int{} // who was to be looked at again
		c.fleet.mu.Lock()
		c.fleet.changed = func(n api.FunctionName) { asked[n]++ }
		c.fleet.mu.Unlock()
		c.service("default/tiny", 2, "")
		c.pass()
		if got := c.conditions(); got[0] != nil || got[1] != nil {
			t.Errorf("alone: got %v", got)
		}
		c.service("team/chat", 1, "gpt-4o")
		if _, _, _, err := c.fleet.declare(t.Context(), "team/chat-00001", scaling{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := asked[tiny]; n == 0 {
			t.Fatalf("nobody looks at the loser: %v", slices.Collect(maps.Keys(asked)))
		}
		_, events := c.pass()
		if len(events) != 1 || !strings.Contains(events[0], reasonNames) {
			t.Errorf("got the events %q, want one", events)
		}
		for _, got := range c.conditions() {
			want := `the name "gpt-4o" of default/tiny finds team/chat, which was there first: choose another name, or ask for default/tiny; ` +
				`the name "team/chat" of default/tiny finds team/chat, which is called so: choose another name; ` +
				`the name "team/later" of default/tiny is refused: team/ is the namespace team: choose another name`
			if got == nil || !got.IsFalse() || got.Severity != apis.ConditionSeverityInfo || got.Reason != reasonNames || got.Message != want {
				t.Errorf("got %+v\nwant %s", got, want)
			}
		}
		if _, events := c.pass(); len(events) > 0 {
			t.Errorf("again: got the events %q", events)
		}
		c.fleet.forgetFunction("team/chat-00001")
		synctest.Wait()
		c.pass()
		if got := c.conditions(); got[0] != nil || got[1] != nil {
			t.Errorf("alone again: got %v", got)
		}
	})
}

// TestVariantsLoseTogether: the services of a model with variants are told that its name is another's.
func TestVariantsLoseTogether(t *testing.T) {
	inCluster(t, 0, map[string]string{"rouse.dev/variant-of": "big"}, func(t *testing.T, c *cluster) {
		c.service("default/tiny", 2, "")
		c.pass()
		c.service("team/chat", 1, "big")
		if _, _, _, err := c.fleet.declare(t.Context(), "team/chat-00001", scaling{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		c.pass()
		for _, got := range c.conditions() {
			if got == nil || !strings.Contains(got.Message, `the name "big" of default/big finds team/chat`) {
				t.Errorf("got %+v", got)
			}
		}
	})
}
