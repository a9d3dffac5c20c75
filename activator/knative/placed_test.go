package knative

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	v1 "knative.dev/serving/pkg/apis/serving/v1"
	servingfake "knative.dev/serving/pkg/client/clientset/versioned/fake"

	"github.com/rouse-dev/rouse/activator/federation/agent"
	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
)

var _ agent.Applier = (*applier)(nil)

// manifest returns a manifest of default/chat; more are further annotations of its template, container further fields
// of its container.
func manifest(more, container string) protocol.Manifest {
	return protocol.Manifest{Name: "default/chat", Number: 1, YAML: `apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: chat}
spec:
  template:
    metadata:
      annotations: {rouse.dev/model: pico, rouse.dev/memory: 64Mi, rouse.dev/clusters: gpu, rouse.dev/remove-after: 10m` + more + `}
    spec: {containers: [{image: evil.example/miner` + container + `}]}
`}
}

// cluster returns an Applier of a cluster with the objects, its client, and a function that reads the Service.
func cluster(t *testing.T, objects ...runtime.Object) (*applier, *servingfake.Clientset, func() *v1.Service) {
	t.Helper()
	client := servingfake.NewSimpleClientset(objects...)
	a, err := newApplier(acceptConfig{Namespace: "default", Images: map[string]string{api.RuntimeEngine: "own.example/engine:v1"}}, client.ServingV1())
	if err != nil {
		t.Fatal(err)
	}
	return a, client, func() *v1.Service {
		t.Helper()
		s, err := client.ServingV1().Services("default").Get(t.Context(), "chat", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		a.See(s) // as the cluster's watch does
		return s
	}
}

// TestLife creates a Service for two front doors, which is deleted with the second.
func TestLife(t *testing.T) {
	a, _, chat := cluster(t)
	ctx, m := t.Context(), manifest("", ", args: [--, --threads, \"2\"]")
	for _, front := range []string{"x", "y", "y"} {
		if err := a.Apply(ctx, m, front); err != nil {
			t.Fatal(err)
		}
	}
	s := chat()
	template := s.Spec.Template
	c := template.Spec.Containers[0]
	if c.Image != "own.example/engine:v1" || !slices.Equal(c.Args, []string{"--", "--threads", "2"}) || c.Resources.Requests.Memory().Value() != 64<<20 {
		t.Errorf("the container is %+v: want the cluster's image, the runtime's arguments and 64 MiB", c)
	}
	if token := template.Spec.AutomountServiceAccountToken; token == nil || *token {
		t.Error("the function has the token of a service account")
	}
	if an := template.Annotations; an[config.AnnotationClass] != config.Class || an[config.AnnotationModel] != "pico" || an["autoscaling.knative.dev/initial-scale"] != "0" || an[config.AnnotationClusters]+an[config.AnnotationRemoveAfter] != "" {
		t.Errorf("annotations %v", an)
	}
	if got := a.Owners("default/chat"); !slices.Equal(got, []string{"x", "y"}) {
		t.Errorf("it is there for %v", got)
	}
	var e *api.Error
	if err := a.Apply(ctx, manifest(", rouse.dev/sleep-after: 1m", ""), "x"); !errors.As(err, &e) || e.Status != http.StatusConflict {
		t.Errorf("another manifest, while two have it: %v", err)
	}
	if err := a.Remove(ctx, "default/chat", "x"); err != nil || chat() == nil || !slices.Equal(a.Owners("default/chat"), []string{"y"}) {
		t.Errorf("removed for one: %v, it is there for %v", err, a.Owners("default/chat"))
	}
	if err := a.Apply(ctx, manifest(", rouse.dev/sleep-after: 1m", ""), "y"); err != nil || chat().Spec.Template.Annotations[config.AnnotationSleepAfter] != "1m" {
		t.Errorf("changed by the only one that has it: %v", err)
	}
	if err := a.Remove(ctx, "default/chat", "y"); err != nil || chat() != nil {
		t.Errorf("removed for both: %v, and it is there", err)
	}
	a.Forget(&v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "chat"}})
	if got := a.Owners("default/chat"); len(got) != 0 {
		t.Errorf("it is gone, and there for %v", got)
	}
	if err := a.Remove(ctx, "default/chat", "y"); err != nil {
		t.Errorf("removed again: %v", err)
	}
}

// TestNotItsOwn: a Service declared by others is neither changed nor removed, whatever its marks.
func TestNotItsOwn(t *testing.T) {
	for name, meta := range map[string]metav1.ObjectMeta{
		"plain":          {},
		"without label":  {Annotations: map[string]string{annotationFronts: `["x"]`}},
		"without fronts": {Labels: map[string]string{labelPlaced: "true"}},
	} {
		meta.Namespace, meta.Name = "default", "chat"
		a, client, chat := cluster(t, &v1.Service{ObjectMeta: meta})
		chat()
		if err := a.Apply(t.Context(), manifest("", ""), "x"); err == nil || !strings.Contains(err.Error(), "declared there by somebody else") {
			t.Errorf("%s: applied: %v", name, err)
		}
		if err := a.Remove(t.Context(), "default/chat", "x"); err != nil || chat() == nil || len(a.Owners("default/chat")) > 0 {
			t.Errorf("%s: removed: %v", name, err)
		}
		for _, act := range client.Actions() {
			if act.GetVerb() != "get" {
				t.Errorf("%s: %s", name, act.GetVerb())
			}
		}
	}
}

// TestRefuses: a forbidden manifest is refused with a reason.
func TestRefuses(t *testing.T) {
	a, client, _ := cluster(t)
	other := manifest("", "")
	other.Name = "default/other"
	far := manifest("", "")
	far.Name, far.YAML = "system/chat", strings.Replace(far.YAML, "name: chat", "name: chat, namespace: system", 1)
	for want, m := range map[string]protocol.Manifest{
		"no image for the runtime vllm": manifest(", rouse.dev/runtime: vllm", ""),
		"with a command, a handler":     manifest("", ", command: [sh]"),
		"an environment of its own":     manifest("", ", env: [{name: LD_PRELOAD, value: x}]"),
		"rouse.dev/provider-patch":      manifest(`, rouse.dev/provider-patch: '{"a": "b"}'`, ""),
		"not of default/other":          other,
		"the namespace default only":    far,
		"can't be read here":            {Name: "default/chat", YAML: "["},
	} {
		var e *api.Error
		if err := a.Apply(t.Context(), m, "x"); !errors.As(err, &e) || !strings.Contains(e.Message, want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if n := len(client.Actions()); n > 0 {
		t.Errorf("%d calls of the API server", n)
	}
}

// TestRefused: a refusal by the API server is reported with what to change, and a race with another agent is no
// error.
func TestRefused(t *testing.T) {
	services := schema.GroupResource{Group: "serving.knative.dev", Resource: "services"}
	for _, c := range []struct {
		err    error
		status int
		want   string
	}{
		{apierrors.NewForbidden(services, "chat", errors.New("exceeded quota: functions")), http.StatusServiceUnavailable, "the quota of its namespace"},
		{apierrors.NewForbidden(services, "chat", errors.New("no rights")), http.StatusForbidden, "accept.yaml"},
		{apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "chat", nil), http.StatusBadRequest, "does not accept"},
	} {
		a, client, _ := cluster(t)
		client.PrependReactor("create", "services", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.err })
		var e *api.Error
		if err := a.Apply(t.Context(), manifest("", ""), "x"); !errors.As(err, &e) || e.Status != c.status || !strings.Contains(e.Message, c.want) {
			t.Errorf("%v, want %d with %q", err, c.status, c.want)
		}
	}
	first, _, theirs := cluster(t)
	if err := first.Apply(t.Context(), manifest("", ""), "y"); err != nil {
		t.Fatal(err)
	}
	made := theirs()
	a, client, chat := cluster(t)
	raced := false
	client.PrependReactor("create", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
		if raced {
			return false, nil, nil
		}
		raced = true
		if err := client.Tracker().Add(made); err != nil {
			t.Error(err)
		}
		return true, nil, apierrors.NewAlreadyExists(services, "chat")
	})
	if err := a.Apply(t.Context(), manifest("", ""), "x"); err != nil || chat() == nil || !slices.Equal(a.Owners("default/chat"), []string{"y", "x"}) {
		t.Errorf("%v, it is there for %v", err, a.Owners("default/chat"))
	}
}

func TestAcceptConfig(t *testing.T) {
	if one, err := acceptNamespace([]string{"default/*", "default/chat-*"}); one != "default" || err != nil {
		t.Errorf("%q, %v", one, err)
	}
	for pattern, want := range map[string]string{"*/chat": "names no namespace", "chat": "names no namespace", "a/*,b/*": "want one"} {
		if _, err := acceptNamespace(strings.Split(pattern, ",")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", pattern, err, want)
		}
	}
	for kind, want := range map[string]string{"": "no runtime has an image", api.RuntimeCommand: "other than", "magic": "want RUNTIME=IMAGE"} {
		cfg := acceptConfig{Namespace: "default", Images: map[string]string{kind: "image"}}
		if kind == "" {
			cfg.Images = nil
		}
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", kind, err, want)
		}
	}
}
