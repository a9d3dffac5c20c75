package inject

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"
	"knative.dev/pkg/apis"
	knative "knative.dev/serving/pkg/apis/config"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	"knative.dev/serving/pkg/autoscaler/config/autoscalerconfig"
	"sigs.k8s.io/yaml"

	"github.com/rouse-dev/rouse/config"
)

// TestPublishedImages reads the examples of model servers' own images as Knative's webhook, as the autoscaler and as the injector do. Their images
// are not there: what they start is known without them.
func TestPublishedImages(t *testing.T) {
	const folder = "../../docs/examples/published"
	want := map[string][]string{ // the function's command line
		"vllm.yaml":      {"--runtime=vllm", "--", "--max-model-len", "8192", "--gpu-memory-utilization", "0.45"},
		"sglang.yaml":    {"--runtime=sglang", "--", "--context-length", "8192", "--mem-fraction-static", "0.4"},
		"ollama.yaml":    {"--runtime=ollama"},
		"llamacpp.yaml":  {"--runtime=llamacpp", "--", "/app/llama-server", "--ctx-size", "4096", "--n-gpu-layers", "99"},
		"ray-serve.yaml": {"--runtime=ray-serve"},
		"tei.yaml":       {"--runtime=command", "--", "text-embeddings-router", "--model-id", "BAAI/bge-small-en-v1.5", "--port", "$(PORT)"},
	}
	readme, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) != len(want) {
		t.Fatalf("%d files, want %d (%v)", len(files), len(want), err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		s := publishedService(t, file)
		s.SetDefaults(knativeContext())
		if err := s.Validate(knativeContext()).Filter(apis.ErrorLevel); err != nil {
			t.Errorf("%s: Knative refuses it: %v", name, err)
		}
		template := s.Spec.Template
		spec, err := json.Marshal(template.Spec)
		if err != nil {
			t.Fatal(err)
		}
		f, err := config.Revision(config.RevisionSource{Namespace: "default", Name: s.Name + "-00001", Service: s.Name, Annotations: template.Annotations, Spec: spec})
		if err != nil || template.Annotations[config.AnnotationClass] != config.Class {
			t.Errorf("%s: %v, of the class %q", name, err, template.Annotations[config.AnnotationClass])
		}
		if claims := template.Spec.Containers[0].Resources.Limits["nvidia.com/gpu"]; int64(f.Memory.Devices) != claims.Value() {
			t.Errorf("%s: %d GPUs, want %s", name, f.Memory.Devices, claims.String())
		}
		pod := &corev1.Pod{Spec: *template.Spec.PodSpec.DeepCopy()}
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: servingv1.UserPortName, ContainerPort: 8080}}
		v, err := decide(t.Context(), pod, template.Annotations, func(context.Context, string) (*v1.Config, error) {
			return nil, errors.New("no registry")
		})
		if err != nil || v.plan == nil {
			t.Errorf("%s: %v, %+v: want that it is wrapped", name, err, v)
			continue
		}
		line := v.plan.flags
		if len(v.plan.words) > 0 {
			line = append(append(line, "--"), v.plan.words...)
		}
		if diff := cmp.Diff(want[name], line); diff != "" {
			t.Errorf("%s: the function is started otherwise (-want +got):\n%s", name, diff)
		}
		if _, err := mutate(pod, v.plan, image{name: "dev.local/rouse-function:v1"}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if image := template.Spec.Containers[0].Image; !strings.Contains(string(readme), "["+name+"]") || !strings.Contains(string(readme), "`"+image+"`") {
			t.Errorf("the README does not name %s with %s", name, image)
		}
	}
}

// publishedService reads the Service of a file; unknown fields end the test.
func publishedService(t *testing.T, file string) *servingv1.Service {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var found *servingv1.Service
	for _, doc := range bytes.Split(raw, []byte("\n---\n")) {
		var kind struct{ Kind string }
		if err := yaml.Unmarshal(doc, &kind); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if kind.Kind != "Service" {
			continue
		}
		found = &servingv1.Service{}
		if err := yaml.UnmarshalStrict(doc, found); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	if found == nil {
		t.Fatalf("%s has no Service", file)
	}
	return found
}

// knativeContext is Knative's configuration with what Rouse sets in it.
func knativeContext() context.Context {
	return knative.ToContext(context.Background(), &knative.Config{Autoscaler: &autoscalerconfig.Config{AllowZeroInitialScale: true}})
}
