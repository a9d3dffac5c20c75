package inject

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	admission "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	autoscalingv1alpha1 "knative.dev/serving/pkg/apis/autoscaling/v1alpha1"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	servingfake "knative.dev/serving/pkg/client/clientset/versioned/fake"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/config"
)

// replica is one before a cluster with what the component installs.
func replica(t *testing.T, kube *fake.Clientset, revisions ...runtime.Object) *server {
	t.Helper()
	s := newServer(Config{Clients: kube, Serving: servingfake.NewSimpleClientset(revisions...)}, from, prometheus.NewRegistry())
	s.reach = func(context.Context, []byte) error { return nil }
	return s
}

func installedObjects() *fake.Clientset {
	return fake.NewClientset(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: control.SystemNamespace, Name: injectorName}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: control.SystemNamespace, Name: injectorName}},
		&admission.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: injectorName}, Webhooks: []admission.MutatingWebhook{{Name: webhookName}, {Name: "of.another"}, {Name: providersName}}})
}

func webhookOf(t *testing.T, kube *fake.Clientset) admission.MutatingWebhook {
	t.Helper()
	c, err := kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), injectorName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c.Webhooks[0]
}

// trusted reports whether the API server would trust a replica's certificate.
func trusted(t *testing.T, kube *fake.Clientset, s *server, now time.Time) error {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(webhookOf(t, kube).ClientConfig.CABundle)
	_, err := s.own.Load().Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: serviceHost, CurrentTime: now})
	return err
}

// TestCertificates has two replicas through the lives of certificates: each is trusted at all times.
func TestCertificates(t *testing.T) {
	kube, now := installedObjects(), time.Now()
	a, b := replica(t, kube), replica(t, kube)
	a.reach = func(context.Context, []byte) error { return errors.New("no endpoints") }
	if err := a.authorize(t.Context(), now); err == nil || len(webhookOf(t, kube).Rules) != 0 {
		t.Fatalf("%v, rules %v: want none before the service answers", err, webhookOf(t, kube).Rules)
	}
	a.reach = nil
	a.reach = b.reach
	for day := range 500 {
		now := now.Add(time.Duration(day) * 24 * time.Hour)
		for k, s := range []*server{a, b} {
			if err := s.authorize(t.Context(), now); err != nil {
				t.Fatalf("day %d, replica %d: %v", day, k, err)
			}
			for _, other := range []*server{a, b} {
				if other.own.Load() == nil {
					continue
				}
				if err := trusted(t, kube, other, now); err != nil {
					t.Fatalf("day %d, after replica %d: %v", day, k, err)
				}
			}
		}
	}
	if w := webhookOf(t, kube); len(w.Rules) != 1 || w.Rules[0].Resources[0] != "pods" {
		t.Errorf("the rules are %+v", w.Rules)
	}
}

func TestAWebhookThatSomebodyRemoved(t *testing.T) {
	kube := installedObjects()
	if err := kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(t.Context(), injectorName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := replica(t, kube).authorize(t.Context(), time.Now()); err == nil || !strings.Contains(err.Error(), "there is no MutatingWebhookConfiguration") {
		t.Errorf("got %v", err)
	}
}

// TestReview asks as the API server does, over TLS.
func TestReview(t *testing.T) {
	kube := installedObjects()
	revision := func(name, class string) *servingv1.Revision {
		return &servingv1.Revision{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, Annotations: map[string]string{config.AnnotationClass: class, config.AnnotationModel: "m"}}}
	}
	scaled := func(name, class string) *autoscalingv1alpha1.PodAutoscaler {
		return &autoscalingv1alpha1.PodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, Annotations: map[string]string{config.AnnotationClass: class}}}
	}
	s := replica(t, kube, revision("chat-00001", config.Class), revision("stock-00001", "kpa.autoscaling.knative.dev"), revision("default-00001", ""), revision("new-00001", ""),
		scaled("default-00001", config.Class), revision("other-00001", ""), scaled("other-00001", "kpa.autoscaling.knative.dev"))
	if err := s.authorize(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(s.handler())
	server.TLS = &tls.Config{GetCertificate: s.certificate, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(webhookOf(t, kube).ClientConfig.CABundle)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: serviceHost}}}
	ask := func(revision, image string) *admissionv1.AdmissionResponse {
		t.Helper()
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"serving.knative.dev/revision": revision}, Annotations: map[string]string{config.AnnotationModel: "m"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "user-container", Image: image, Ports: []corev1.ContainerPort{{Name: servingv1.UserPortName, ContainerPort: 8080}}}}}}
		raw, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		body, err := json.Marshal(admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{UID: "u", Namespace: "a", Operation: admissionv1.Create, Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Object: runtime.RawExtension{Raw: raw}}})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Post(server.URL+"/pods", "application/json", strings.NewReader(string(body)))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var answer admissionv1.AdmissionReview
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Response == nil || answer.Response.UID != "u" {
			t.Fatalf("got %+v (%v)", answer, err)
		}
		return answer.Response
	}
	for _, tt := range []struct {
		revision, image, patch string
		allowed                bool
	}{
		{"chat-00001", "vllm/vllm-openai:v1", `"/spec/containers/0/command"`, true},
		{"chat-00001", "dev.local/rouse-function:v1", `"/spec/containers/0/volumeMounts"`, true},
		{"chat-00001", "dev.local/mine:v1", "not-injected", true},
		{"stock-00001", "vllm/vllm-openai:v1", "", true},
		{"default-00001", "vllm/vllm-openai:v1", `"/spec/containers/0/command"`, true},
		{"other-00001", "vllm/vllm-openai:v1", "", true},
		{"gone-00001", "vllm/vllm-openai:v1", "", true},
	} {
		got := ask(tt.revision, tt.image)
		if got.Allowed != tt.allowed || (len(got.Patch) > 0) != (tt.patch != "") || !strings.Contains(string(got.Patch), tt.patch) {
			t.Errorf("%s of %s: allowed %t, patch %s; want %q", tt.image, tt.revision, got.Allowed, got.Patch, tt.patch)
		}
	}
	soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if ours, err := s.isFunction(soon, revision("new-00001", "")); err == nil || !strings.Contains(err.Error(), "PodAutoscaler a/new-00001") {
		t.Errorf("a revision whose class nobody says: %t, %v; want an error that names what is missing", ours, err)
	}
	resp, err := client.Post(server.URL+"/pods", "application/json", strings.NewReader(`{"request":`))
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("half a review is answered with %d", resp.StatusCode)
	}
}

// TestProviders: the second of dual pods is given the function as the first is, one that has it already gets today's image of it, and
// the account says which that is. Both webhooks are kept in order, and no other.
func TestProviders(t *testing.T) {
	kube := installedObjects()
	s := replica(t, kube, &servingv1.Revision{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "chat-00001", Annotations: map[string]string{config.AnnotationClass: config.Class, config.AnnotationModel: "m", config.AnnotationDualPods: "true"}}})
	for range 2 {
		if err := errors.Join(s.announce(t.Context()), s.authorize(t.Context(), time.Now())); err != nil {
			t.Fatal(err)
		}
	}
	a, err := kube.CoreV1().ServiceAccounts(control.SystemNamespace).Get(t.Context(), injectorName, metav1.GetOptions{})
	if err != nil || a.Annotations[annotationImage] != from.name {
		t.Errorf("the account says %v (%v)", a.Annotations, err)
	}
	c, err := kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), injectorName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range c.Webhooks {
		if ours := w.Name != "of.another"; ours != (len(w.Rules) == 1) || ours != (len(w.ClientConfig.CABundle) > 0) {
			t.Errorf("the webhook %s has %d rules", w.Name, len(w.Rules))
		}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{labelProvider: "chat-00001"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "user-container", Image: "vllm/vllm-openai:v1", Ports: []corev1.ContainerPort{{Name: servingv1.UserPortName, ContainerPort: 8080}}}}}}
	try := func(want string) {
		t.Helper()
		change, _, err := s.change(t.Context(), pod, "a")
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(change)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(raw); (want == "") != (len(change) == 0) || !strings.Contains(got, want) {
			t.Errorf("changed by %s, want %q", got, want)
		}
	}
	try(`{"op":"add","path":"/metadata/labels/rouse.dev~1injected","value":"true"}`)
	pod.Annotations = map[string]string{config.AnnotationInjected: "8080"}
	pod.Spec.InitContainers = []corev1.Container{{Name: "mine", Image: "x"}, {Name: volume, Image: from.name}}
	try("")
	pod.Spec.InitContainers[1].Image = "rouse-function:old"
	try(`[{"op":"add","path":"/spec/initContainers/1/image","value":"` + from.name + `"}]`)
	delete(pod.Labels, labelProvider)
	pod.Labels["serving.knative.dev/revision"] = "chat-00001"
	try("") // it is Knative's to renew
}
