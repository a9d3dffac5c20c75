package knative

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	autoscalingv1alpha1 "knative.dev/serving/pkg/apis/autoscaling/v1alpha1"
	"knative.dev/serving/pkg/apis/serving"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	servingfake "knative.dev/serving/pkg/client/clientset/versioned/fake"
	servinginformers "knative.dev/serving/pkg/client/informers/externalversions"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/config"
)

// ask sends a request that names a model to the front door.
func (g *rig) ask(model string) (int, string) {
	w := httptest.NewRecorder()
	g.core.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"model":"`+model+`"}`)))
	return w.Code, w.Body.String()
}

// serve sends a request for a revision.
func (g *rig) serve(revision string) (int, string) {
	w := httptest.NewRecorder()
	g.core.ServeFunction(w, httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"model":"any"}`)), api.NewFunctionName("default", revision))
	return w.Code, w.Body.String()
}

// host answers with the request's destination.
func host(r *http.Request) (*http.Response, error) {
	_ = r.Body.Close()
	return answer(200, r.URL.Host)
}

// TestClassOfTheCluster: a revision without a class is a function if its PodAutoscaler has the class, whichever comes
// first.
func TestClassOfTheCluster(t *testing.T) {
	pa := func(class string) *autoscalingv1alpha1.PodAutoscaler {
		return &autoscalingv1alpha1.PodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tiny-00001", Annotations: map[string]string{config.AnnotationClass: class}}}
	}
	for name, tt := range map[string]struct {
		class string
		first bool
		want  int
	}{
		"the revision first":      {config.Class, false, 200},
		"the PodAutoscaler first": {config.Class, true, 200},
		"another default":         {"kpa.autoscaling.knative.dev", true, 404},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, host)
			rev := revision("tiny-00001", "")
			delete(rev.Annotations, config.AnnotationClass)
			if !tt.first {
				g.watch.revision(rev)
				g.watch.find = func(n api.FunctionName) *servingv1.Revision {
					if n != "default/tiny-00001" {
						t.Errorf("asked for %s", n)
					}
					return rev
				}
			}
			g.watch.podAutoscaler(pa(tt.class))
			if tt.first {
				g.watch.revision(rev)
			}
			g.core.ObserveInstance(awake("tiny-00001", "a", "10.0.0.1"))
			if status, got := g.serve("tiny-00001"); status != tt.want {
				t.Errorf("got %d %s, want %d", status, got, tt.want)
			}
			g.watch.noPodAutoscaler(pa(tt.class))
			if g.watch.isOurs(rev) {
				t.Error("its PodAutoscaler is gone, and it counts as a function")
			}
		})
	}
}

// TestAdaptersOfAService: a Service's own list of adapters replaces its revisions' as long as it exists.
func TestAdaptersOfAService(t *testing.T) {
	g := newRig(t, host)
	service := &servingv1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tiny"}}
	g.watch.service(service)
	g.watch.revision(revision("tiny-00001", config.Class, config.AnnotationAdapters, "old=a"))
	g.watch.route(route(map[string]int64{"tiny-00001": 100}))
	g.core.ObserveInstance(awake("tiny-00001", "a", "10.0.0.1"))
	want := func(known ...string) {
		t.Helper()
		for _, name := range []string{"old", "fr", "de"} {
			is := slices.Contains(known, name)
			if status, got := g.ask(name); (status == 200) != is || !is && status != 404 {
				t.Errorf("%s: got %d %s; want it known: %t", name, status, got, is)
			}
		}
	}
	want("old")
	for _, list := range []string{"fr=a,de=b", "de=b", ""} {
		object, err := strip(&servingv1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tiny", Annotations: map[string]string{config.AnnotationAdapters: list, "other": "x"}}})
		if err != nil {
			t.Fatal(err)
		}
		g.watch.service(object.(*servingv1.Service))
		var names []string
		for pair := range strings.SplitSeq(list, ",") {
			name, _, _ := strings.Cut(pair, "=")
			names = append(names, name)
		}
		want(names...)
	}
	broken := &servingv1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tiny", Annotations: map[string]string{config.AnnotationAdapters: "fr=a,,"}}}
	g.watch.service(broken) // it removes nothing
	want()
	if status, got := g.ask("tiny"); status != 200 {
		t.Errorf("with a list that can't be read: got %d %s", status, got)
	}
	g.watch.service(service)
	want("old")
}

func TestWatch(t *testing.T) {
	g := newRig(t, host)
	one, two := revision("tiny-00001", config.Class), revision("tiny-00002", config.Class, "rouse.dev/aliases", "second")
	g.watch.revision(one)
	g.watch.revision(two)
	g.watch.revision(revision("tiny-00003", "hpa.autoscaling.knative.dev"))
	g.core.ObserveInstance(awake("tiny-00001", "a", "10.0.0.1"))
	g.core.ObserveInstance(awake("tiny-00002", "b", "10.0.0.2"))
	if g.core.Declared("default/tiny-00003") {
		t.Error("a revision of another class is a function")
	}
	if status, got := g.ask("tiny"); status != 200 || got != "10.0.0.2:9000" {
		t.Errorf("before the route is ready: got %d %s, want the newest revision", status, got)
	}
	g.watch.route(route(map[string]int64{"tiny-00001": 100}))
	if status, got := g.ask("tiny"); status != 200 || got != "10.0.0.1:9000" {
		t.Errorf("all to the first: got %d %s", status, got)
	}
	g.watch.route(route(map[string]int64{"tiny-00002": 100}))
	for _, name := range []string{"tiny", "second", "default/tiny"} {
		if status, got := g.ask(name); status != 200 || got != "10.0.0.2:9000" {
			t.Errorf("%s, all to the second: got %d %s", name, status, got)
		}
	}
	if status, got := g.serve("tiny-00001"); status != 200 || got != "10.0.0.1:9000" {
		t.Errorf("a revision without traffic: got %d %s", status, got)
	}

	// The class is taken away, the revision is deleted, the route is deleted.
	g.watch.revision(revision("tiny-00001", "kpa.autoscaling.knative.dev"))
	if status, _ := g.serve("tiny-00001"); status != 404 {
		t.Errorf("a revision that is no longer ours: got %d", status)
	}
	g.watch.noRoute(route(nil))
	if status, got := g.ask("tiny"); status != 200 || got != "10.0.0.2:9000" {
		t.Errorf("without a route: got %d %s, want the newest revision", status, got)
	}
	g.watch.noRevision(two)
	if status, _ := g.ask("tiny"); status != 404 {
		t.Errorf("without revisions: got %d", status)
	}
}

// TestFaultyRevision: clients are told what is wrong, once, and the autoscaler's failure survives each status update.
func TestFaultyRevision(t *testing.T) {
	g := newRig(t, host)
	bad := revision("tiny-00001", config.Class, "rouse.dev/hold-capacty", "5")
	g.watch.revision(bad)
	status, got := g.serve("tiny-00001")
	if status != 503 || !strings.Contains(got, "rouse.dev/hold-capacty") || !strings.Contains(got, api.CodeStartFailed) {
		t.Errorf("got %d %s, want what is wrong", status, got)
	}
	good := revision("tiny-00002", config.Class)
	g.watch.revision(good)
	g.core.Fail("default/tiny-00002", api.Errorf(http.StatusServiceUnavailable, api.CodeNoCapacity, "no device is large enough"))
	changed := good.DeepCopy()
	changed.Status.ObservedGeneration = 7
	g.watch.revision(changed)
	if status, got := g.serve("tiny-00002"); status != 503 || !strings.Contains(got, "no device is large enough") {
		t.Errorf("after a change of status: got %d %s", status, got)
	}
}

func TestPods(t *testing.T) {
	g := newRig(t, host)
	g.watch.revision(revision("tiny-00001", config.Class))
	p := pod("tiny-00001", "a", "")
	g.watch.pod(p)
	if got := g.instances.addresses("default/tiny-00001"); len(got) != 0 {
		t.Errorf("a pod without an address: got %v", got)
	}
	g.watch.pod(pod("tiny-00001", "a", "10.0.0.1"))
	g.instances.learn(control.InstanceReport{Status: awake("tiny-00001", "a", "10.0.0.1"), Token: "secret"})
	g.core.ObserveInstance(awake("tiny-00001", "a", "10.0.0.1"))
	if got := g.instances.addresses("default/tiny-00001")["a"]; got != "10.0.0.1" {
		t.Errorf("address: got %q", got)
	}
	if got := g.watch.endpoint("default/tiny-00001", "fd00::1"); got != "http://[fd00::1]:9000" {
		t.Errorf("endpoint: got %s", got)
	}
	injected := pod("tiny-00001", "b", "10.0.0.2")
	injected.Annotations = map[string]string{config.AnnotationInjected: "8014"}
	kept, err := strip(injected)
	if err != nil {
		t.Fatal(err)
	}
	if g.watch.pod(kept.(*corev1.Pod)); g.instances.port("b") != 8014 || g.instances.port("a") != 0 {
		t.Errorf("ports: got %d and %d, want that of the pod that says one", g.instances.port("b"), g.instances.port("a"))
	}
	failed := pod("tiny-00001", "a", "10.0.0.1")
	failed.Status.Phase = corev1.PodFailed
	g.watch.pod(failed)
	if s, _ := g.core.Stats("default/tiny-00001"); len(s.Instances) != 0 {
		t.Errorf("the instance of a pod that has ended: %+v", s.Instances)
	}
	if got := g.instances.token("http://10.0.0.1:9000"); got != "" {
		t.Error("its credential is still known")
	}
}

// TestFeed: existing objects are known when feed returns, and changes arrive.
func TestFeed(t *testing.T) {
	g := newRig(t, host)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: control.ControlSecret, Namespace: control.SystemNamespace}, Data: map[string][]byte{control.ControlSecretKey: []byte("first")}}
	kube := kubefake.NewClientset(secret, pod("tiny-00001", "a", "10.0.0.1"))
	other := revision("other-00001", config.Class, "rouse.dev/aliases", "tiny, default/more, quiet/more, third")
	other.Namespace, other.Labels[serving.ServiceLabelKey] = "team", "other"
	made := func(namespace, name string, hour int64) *servingv1.Service {
		return &servingv1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.Unix(3600*hour, 0)}}
	}
	knative := servingfake.NewSimpleClientset(revision("tiny-00001", config.Class, "rouse.dev/aliases", "third"), route(map[string]int64{"tiny-00001": 100}), other,
		made("default", "tiny", 1), made("team", "other", 2))
	_ = kube.Tracker().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "quiet"}})
	revisions := servinginformers.NewSharedInformerFactory(knative, 0)
	secrets := informers.NewSharedInformerFactory(kube, 0)
	from := sources{revisions: revisions.Serving().V1().Revisions().Informer(), secret: secrets.Core().V1().Secrets().Informer(), kube: kube, serving: knative}
	revisions.Start(ctx.Done())
	secrets.Start(ctx.Done())
	token := &clusterToken{}
	if err := from.feed(ctx, g.watch, token); err != nil {
		t.Fatal(err)
	}
	if token.current() != "first" || !g.core.Declared("default/tiny-00001") || g.instances.addresses("default/tiny-00001")["a"] != "10.0.0.1" {
		t.Errorf("after the start: token %q, pods %v", token.current(), g.instances.addresses("default/tiny-00001"))
	}
	g.core.ObserveInstance(awake("tiny-00001", "a", "10.0.0.1"))
	if status, got := g.ask("tiny"); status != 200 {
		t.Errorf("the front door: got %d %s", status, got)
	}
	if s, _ := g.core.Stats("team/other-00001"); len(s.LostNames) != 4 {
		t.Errorf("the younger service, of another namespace, lost %q, want all four names", s.LostNames)
	}
	if s, _ := g.core.Stats("default/tiny-00001"); len(s.LostNames) != 0 {
		t.Errorf("the older service lost %q", s.LostNames)
	}
	if err := knative.ServingV1().Services("default").Delete(ctx, "tiny", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := kube.CoreV1().Namespaces().Delete(ctx, "quiet", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other one's names without the older service and the namespace", func() bool {
		s, _ := g.core.Stats("team/other-00001")
		return len(s.LostNames) == 1 // default/more
	})
	secret = secret.DeepCopy()
	secret.Data[control.ControlSecretKey] = []byte("second")
	if _, err := kube.CoreV1().Secrets(control.SystemNamespace).Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := kube.CoreV1().Pods("default").Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new token and the pod's end", func() bool {
		s, _ := g.core.Stats("default/tiny-00001")
		return token.current() == "second" && len(s.Instances) == 0
	})
	if err := knative.ServingV1().Revisions("default").Delete(ctx, "tiny-00001", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the revision's end", func() bool { return !g.core.Declared("default/tiny-00001") })
}

// eventually waits until ok, or fails the test.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not within 10 s: %s", what)
		case <-tick.C:
		}
	}
}
