package replicas

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	servingfake "knative.dev/serving/pkg/client/clientset/versioned/fake"
)

// scales is an API server that has scales only.
func scales(t *testing.T, replicas int32, patches *[]string) *fake.Clientset {
	t.Helper()
	c := fake.NewSimpleClientset()
	c.PrependReactor("get", "*", func(a k8stesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "scale" {
			t.Errorf("get %s/%s: want scales only", a.GetResource().Resource, a.GetSubresource())
		}
		return true, &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}, nil
	})
	c.PrependReactor("patch", "*", func(a k8stesting.Action) (bool, runtime.Object, error) {
		p := a.(k8stesting.PatchAction)
		*patches = append(*patches, a.GetResource().Resource+"/"+a.GetSubresource()+" "+a.GetNamespace()+"/"+p.GetName()+" "+string(p.GetPatch()))
		return true, nil, nil
	})
	return c
}

func TestSetScale(t *testing.T) {
	for kind, resource := range map[Kind]string{Deployment: "deployments", ReplicaSet: "replicasets", StatefulSet: "statefulsets"} {
		var patches []string
		c := &Cluster{Kube: scales(t, 2, &patches)}
		target := Target{kind, "ns", "a"}
		for _, tt := range []struct {
			n    int
			dry  bool
			want Outcome
		}{{2, false, Outcome{Was: 2}}, {5, true, Outcome{Was: 2, Changed: true}}, {5, false, Outcome{Was: 2, Changed: true}}, {0, false, Outcome{Was: 2, Changed: true}}} {
			got, err := c.Set(t.Context(), target, tt.n, tt.dry)
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("%s to %d: %v (-want +got):\n%s", kind, tt.n, err, diff)
			}
		}
		if diff := cmp.Diff([]string{resource + `/scale ns/a {"spec":{"replicas":5}}`, resource + `/scale ns/a {"spec":{"replicas":0}}`}, patches); diff != "" {
			t.Errorf("patches (-want +got):\n%s", diff)
		}
	}
}

func revision(name string, annotations map[string]string) *servingv1.Revision {
	return &servingv1.Revision{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Annotations: annotations}}
}

// A revision of a stock class is held by its annotations, the older names included.
func TestSetStockRevision(t *testing.T) {
	const group = "autoscaling.knative.dev/"
	service := &servingv1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}}
	service.Status.LatestReadyRevisionName = "s-2"
	serving := servingfake.NewSimpleClientset(service, revision("s-1", nil), revision("s-2", map[string]string{group + "minScale": "1", group + "max-scale": "9", "other": "x"}))
	c := &Cluster{Serving: serving}
	annotations := func(name string) map[string]string {
		r, err := serving.ServingV1().Revisions("ns").Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Annotations
	}
	set := func(target Target, n int, want Outcome) {
		t.Helper()
		got, err := c.Set(t.Context(), target, n, false)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s to %d: %v (-want +got):\n%s", target, n, err, diff)
		}
	}
	set(Target{Service, "ns", "s"}, 3, Outcome{Was: 1, Changed: true, What: "revision s-2"})
	if diff := cmp.Diff(map[string]string{group + "min-scale": "3", group + "max-scale": "3", "other": "x"}, annotations("s-2")); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	set(Target{Service, "ns", "s"}, 3, Outcome{Was: 3, What: "revision s-2"})
	set(Target{Revision, "ns", "s-1"}, 0, Outcome{Changed: true})
	if diff := cmp.Diff(map[string]string{group + "min-scale": "0", group + "max-scale": "1"}, annotations("s-1")); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if _, err := c.Set(t.Context(), Target{Revision, "ns", "none"}, 1, false); err == nil || !strings.Contains(err.Error(), "there is none") {
		t.Errorf("%v, want that there is none", err)
	}
}

// A revision of Rouse's class is its autoscaler's.
func TestSetFunction(t *testing.T) {
	var calls []string
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		calls = append(calls, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization")+" "+string(raw))
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"message": "there is no function ns/f"}})
	}))
	defer server.Close()
	c := &Cluster{Serving: servingfake.NewSimpleClientset(revision("f", map[string]string{"autoscaling.knative.dev/class": "gpu.autoscaling.rouse.dev"}))}
	target := Target{Revision, "ns", "f"}
	if _, err := c.Set(t.Context(), target, 2, false); err == nil || !strings.Contains(err.Error(), "--autoscaler") {
		t.Errorf("%v, want what to set", err)
	}
	c.Functions = &Functions{URL: server.URL, Token: func() (string, error) { return "t", nil }, Transport: server.Client().Transport, Lifetime: time.Minute}
	for _, was := range []int{-1, 2} {
		got, err := c.Set(t.Context(), target, 2, false)
		if diff := cmp.Diff(Outcome{Was: was, Changed: true, Renew: true}, got); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	const call = `PUT /rouse/v1/functions/ns/f/scale Bearer t {"replicas":2,"for":"1m0s","by":"the relay"}`
	if diff := cmp.Diff([]string{call, call}, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	status = http.StatusServiceUnavailable // a number that did not arrive was not set
	if _, err := c.Set(t.Context(), target, 5, false); err == nil {
		t.Error("a refusal is no error")
	}
	status = http.StatusOK
	if got, err := c.Set(t.Context(), target, 5, false); err != nil || got.Was != 2 {
		t.Errorf("after a failure: %+v, %v; want that it was 2", got, err)
	}
	status = http.StatusNotFound
	if _, err := c.Set(t.Context(), target, 2, false); err == nil || !strings.Contains(err.Error(), "there is no function ns/f") {
		t.Errorf("%v, want the autoscaler's words", err)
	}
}
