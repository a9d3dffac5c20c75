package knative

import (
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"
	networkingv1alpha1 "knative.dev/networking/pkg/apis/networking/v1alpha1"
	autoscalingv1alpha1 "knative.dev/serving/pkg/apis/autoscaling/v1alpha1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/config"
)

// activatorsAt are the activators' Endpoints.
func activatorsAt(ips ...string) *corev1.Endpoints { //nolint:staticcheck // what Knative's ingresses read
	e := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: control.SystemNamespace, Name: control.ActivatorName}} //nolint:staticcheck // the same
	if len(ips) > 0 {
		s := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Name: "http", Port: 8012}, {Name: "http2", Port: 8013}, {Name: "https", Port: 8112}}} //nolint:staticcheck // the same
		for _, ip := range ips {
			s.Addresses = append(s.Addresses, corev1.EndpointAddress{IP: ip})
		}
		e.Subsets = append(e.Subsets, s)
	}
	return e
}

// reached is where requests for the revision go: of its Service, and as IP:port of its Endpoints.
func (c *cluster) reached() (*corev1.Service, []string) {
	c.t.Helper()
	s, err := c.kube.CoreV1().Services("default").Get(c.t.Context(), tiny.Name(), metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	e, err := c.kube.CoreV1().Endpoints("default").Get(c.t.Context(), tiny.Name(), metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	var at []string
	for _, subset := range e.Subsets {
		for _, a := range subset.Addresses {
			for _, p := range subset.Ports {
				at = append(at, a.IP+":"+p.Name)
			}
		}
	}
	for _, o := range []metav1.Object{s, e} {
		owner := metav1.GetControllerOf(o)
		if owner == nil || owner.Kind != "PodAutoscaler" || owner.Name != tiny.Name() || len(o.GetOwnerReferences()) != 1 {
			c.t.Errorf("it is owned by %+v, want its PodAutoscaler, with which it goes", o.GetOwnerReferences())
		}
		if o.GetAnnotations()[config.AnnotationClass] != config.Class {
			c.t.Errorf("its annotations are %v, want the class, by which admission policies know it", o.GetAnnotations())
		}
	}
	return s, at
}

// TestRequestsComeToActivators: a revision's Service leads to the activators that are ready now, also after somebody has changed it.
func TestRequestsComeToActivators(t *testing.T) {
	inCluster(t, 0, map[string]string{"autoscaling.knative.dev/initial-scale": "0"}, func(t *testing.T, c *cluster) {
		want := func(when string, want ...string) {
			t.Helper()
			synctest.Wait() // until it is seen
			c.pass()
			s, at := c.reached()
			if len(s.Spec.Selector) > 0 || len(s.Spec.Ports) != 2 || s.Spec.Ports[0].Name != "http" {
				t.Errorf("%s: the Service is %+v", when, s.Spec)
			}
			same(t, when, at, want)
		}
		want("without activators")
		c.add(activatorsAt("10.0.9.1", "10.0.9.2"))
		want("two activators", "10.0.9.1:http", "10.0.9.1:https", "10.0.9.2:http", "10.0.9.2:https")
		if _, err := c.kube.CoreV1().Endpoints(control.SystemNamespace).Update(t.Context(), activatorsAt("10.0.9.2"), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		want("one is gone", "10.0.9.2:http", "10.0.9.2:https")
		s, _ := c.reached()
		s.Spec.Selector = map[string]string{"app": "other"}
		if _, err := c.kube.CoreV1().Services("default").Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		want("somebody has changed it", "10.0.9.2:http", "10.0.9.2:https")
		synctest.Wait()
		c.kube.ClearActions()
		c.pass()
		for _, a := range c.kube.Actions() {
			if a.GetVerb() != "get" && (a.GetResource().Resource == "services" || a.GetResource().Resource == "endpoints") {
				t.Errorf("nothing has changed, and there is %+v", a)
			}
		}
	})
}

// TestOlderServerlessService: what Knative has made of the ServerlessService of an older version stays as it is, and goes on as ours.
func TestOlderServerlessService(t *testing.T) {
	inCluster(t, 0, map[string]string{"autoscaling.knative.dev/initial-scale": "0"}, func(t *testing.T, c *cluster) {
		ctx := t.Context()
		pa, err := c.serving.AutoscalingV1alpha1().PodAutoscalers("default").Get(ctx, tiny.Name(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		sks := &networkingv1alpha1.ServerlessService{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: tiny.Name(), UID: "sks-uid", Annotations: pa.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pa, autoscalingv1alpha1.SchemeGroupVersion.WithKind("PodAutoscaler"))}}}
		if err := c.network.Tracker().Add(sks); err != nil {
			t.Fatal(err)
		}
		knatives := []metav1.OwnerReference{*metav1.NewControllerRef(sks, networkingv1alpha1.SchemeGroupVersion.WithKind("ServerlessService"))}
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: tiny.Name(), Annotations: pa.Annotations, OwnerReferences: knatives},
			Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.9"}}
		private := service.DeepCopy()
		private.Name = tiny.Name() + "-private"
		endpoints := activatorsAt("10.0.9.1")
		endpoints.ObjectMeta = service.ObjectMeta
		c.add(activatorsAt("10.0.9.1"), service, private, endpoints)
		synctest.Wait()
		if c.fleet.Reached() {
			t.Error("a function is reached by a ServerlessService, and so by activator-service: want that this is said")
		}
		c.network.ClearActions()
		c.pass()
		actions := c.network.Actions()
		if len(actions) != 1 || actions[0].GetVerb() != "delete" {
			t.Fatalf("the ServerlessService: %+v, want that it is deleted", actions)
		}
		if o := actions[0].(clienttesting.DeleteAction).GetDeleteOptions(); o.PropagationPolicy == nil || *o.PropagationPolicy != metav1.DeletePropagationOrphan {
			t.Errorf("it is deleted with what hangs on it: %+v", o)
		}
		if _, err := c.kube.CoreV1().Services("default").Get(ctx, private.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the private Service: %v, want it gone: by it Knative's activator probes pods that sleep", err)
		}
		s, err := c.kube.CoreV1().Services("default").Get(ctx, service.Name, metav1.GetOptions{})
		if err != nil || len(s.OwnerReferences) != 2 || s.OwnerReferences[1].UID != pa.UID {
			t.Fatalf("the Service: %v, %+v; want that the PodAutoscaler owns it too", err, s.OwnerReferences)
		}
		s.OwnerReferences = s.OwnerReferences[1:] // as Kubernetes does it before the ServerlessService is gone
		if _, err := c.kube.CoreV1().Services("default").Update(ctx, s, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !c.fleet.Reached() {
			t.Error("there is no ServerlessService any more: want that this is said")
		}
		pa, _ = c.pass()
		s, at := c.reached()
		if pa.Status.ServiceName != tiny.Name() || s.Spec.ClusterIP != "10.96.0.9" {
			t.Errorf("got %+v and the Service %+v; want the one that was there", pa.Status, s.Spec)
		}
		same(t, "afterwards", at, []string{"10.0.9.1:http", "10.0.9.1:https"})
	})
}

// TestClassOfTheCluster: a revision that names no class is served where its PodAutoscaler says so.
func TestClassOfTheCluster(t *testing.T) {
	inCluster(t, 0, map[string]string{"autoscaling.knative.dev/initial-scale": "0"}, func(t *testing.T, c *cluster) {
		rev, err := c.serving.ServingV1().Revisions("default").Get(t.Context(), tiny.Name(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		rev = rev.DeepCopy()
		delete(rev.Annotations, config.AnnotationClass)
		if rev, err = c.serving.ServingV1().Revisions("default").Update(t.Context(), rev, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		c.pass()
		c.reached()
		if got := c.fleet.Resolve("default/tiny"); !slices.Equal(got, []api.FunctionName{tiny}) || !c.fleet.functions.isFunction(rev) {
			t.Errorf("the revisions of its Service are %v, want %s", got, tiny)
		}
		rev.Name = "of-nobody"
		if c.fleet.functions.isFunction(rev) {
			t.Error("a revision without a PodAutoscaler and without a class is said to be a function")
		}
	})
}

func same(t *testing.T, when string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: requests go to %v, want %v", when, got, want)
	}
}
