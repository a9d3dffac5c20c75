package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
)

const plain = `apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: m}
spec:
  template:
    metadata:
      annotations:
        rouse.dev/model: pico
        autoscaling.knative.dev/target: "5"
    spec:
      timeoutSeconds: 300
      containers:
        - image: a
          env: [{name: A, value: b}]
          resources: {limits: {memory: 1Gi, nvidia.com/gpu: 1, hugepages-2Mi: 4Mi}}
          livenessProbe: {whatever: 1}
`

// TestMisspeltFields checks that fields which Knative would drop, or nothing reads, are errors with a suggestion.
func TestMisspeltFields(t *testing.T) {
	if _, err := config.Parse(strings.NewReader(plain), "m.yaml", "."); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ old, wrong, want string }{
		{"timeoutSeconds", "timeoutSecond", "m.yaml:11: unknown field spec.template.spec.timeoutSecond: did you mean timeoutSeconds?"},
		{"containers:", "containrs:", "unknown field spec.template.spec.containrs: did you mean containers?"},
		{"resources", "resource", "unknown field spec.template.spec.containers.resource: did you mean resources?"},
		{"limits", "limit", "unknown field spec.template.spec.containers.resources.limit: did you mean limits?"},
		{"value: b", "vlaue: b", "unknown field spec.template.spec.containers.env.vlaue: did you mean value?"},
		{"template:", "templte:", "unknown field spec.templte: did you mean template?"},
		{"      annotations", "      annotation", "unknown field spec.template.metadata.annotation: did you mean annotations?"},
		{"dev/target", "dev/traget", "m.yaml:9: unknown annotation autoscaling.knative.dev/traget: did you mean autoscaling.knative.dev/target?"},
		{"dev/target", "dev/minscale", "did you mean autoscaling.knative.dev/minScale?"},
		{"rouse.dev/model: pico", "rouse.dev/model: 'qwen:1b'\n        rouse.dev/runtime: ollama\n        rouse.dev/adapters: a=b", "annotation rouse.dev/adapters: ollama has no adapters at run time: set the path of a Modelfile"},
		{"metadata: {name: m}", "metadata: {name: m, annotations: {rouse.dev/adapters: a=b, rouse.dev/x: c}}", "unknown annotation rouse.dev/x"},
		{"metadata: {name: m}", "metadata: {name: m, annotations: {rouse.dev/conversation-memory: 1Gi}}", "is gone: give the engine the option --conversation-memory, "},
		{"metadata: {name: m}", "metadata: {name: m, annotations: {rouse.dev/target-queue: '5'}}", "rouse.dev/target-queue is gone"},
		{"memory: 1Gi", "memry: 1Gi", "unknown resource memry: did you mean memory?"},
		{"metadata: {name: m}", "metadata: {name: m, annotations: {rouse.dev/modelx: pico}}", "m.yaml:3: unknown annotation rouse.dev/modelx: did you mean rouse.dev/model?"},
		{"metadata: {name: m}", "metadata: {name: m, annotations: {rouse.dev/sleep-after: 5s}}", "m.yaml:3: the annotation rouse.dev/sleep-after stands at the Service, where nobody reads it: write it in spec.template.metadata.annotations"},
		{`target: "5"`, "target: 5", `m.yaml:9: annotation autoscaling.knative.dev/target: want a text, in quotes where it looks like a number or a truth value: "5"`},
		{`target: "5"`, "target: \"5\"\n        example.com/a: true", "m.yaml:10: annotation example.com/a: want a text"},
		{`target: "5"`, "target: \"5\"\n        example.com/a: [b]", "m.yaml:10: annotation example.com/a: want a text"},
		{`target: "5"`, "target: \"5\"\n        rouse.dev/model: other", "m.yaml:10: the annotation rouse.dev/model stands there twice"},
		{"metadata: {name: m}", "metadata: {name: m, annotations: {example.com/a: 1.5}}", "m.yaml:3: annotation example.com/a: want a text"},
		{"metadata: {name: m}", "metadata: {name: m, annotations: {a/b: c, a/b: d}}", "m.yaml:3: the annotation a/b stands there twice"},
		{"metadata: {name: m}", "metadata: {name: m, name: n}", "already defined at line 3"},
		{"metadata: {name: m}", "metadata: {name: m, annotations: {autoscaling.knative.dev/min-scale: '1'}}", "write it in spec.template.metadata.annotations"},
	} {
		_, err := config.Parse(strings.NewReader(strings.Replace(plain, tc.old, tc.wrong, 1)), "m.yaml", ".")
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s", tc.wrong, err, tc.want)
		}
	}
	_, err := config.Revision(config.RevisionSource{Namespace: "a", Name: "b", Annotations: map[string]string{"autoscaling.knative.dev/min-scael": "1"}, Spec: []byte(`{"containers":[{}]}`)})
	if err == nil || !strings.Contains(err.Error(), "did you mean autoscaling.knative.dev/min-scale?") {
		t.Errorf("a revision: got %v", err)
	}
}

// TestArgsBehindDashes checks that args after "--" mean the same as for the function program.
func TestArgsBehindDashes(t *testing.T) {
	for _, tc := range []struct {
		runtime, args string
		want          api.Runtime
	}{
		{"command", `["--", "/bin/server", "--port", "$(PORT)"]`, api.Runtime{Kind: api.RuntimeCommand, Command: []string{"/bin/server", "--port", "$(PORT)"}}},
		{"", `["--", "/bin/server", "--port", "$(PORT)"]`, api.Runtime{Kind: api.RuntimeCommand, Command: []string{"/bin/server", "--port", "$(PORT)"}}},
		{"vllm", `["--", "/opt/vllm", "serve", "--enforce-eager"]`, api.Runtime{Kind: api.RuntimeVLLM, Command: []string{"/opt/vllm", "serve"}, Args: []string{"--enforce-eager"}}},
		{"vllm", `["--", "--enforce-eager"]`, api.Runtime{Kind: api.RuntimeVLLM, Args: []string{"--enforce-eager"}}},
		{"engine", `["--", "--threads", "2"]`, api.Runtime{Kind: api.RuntimeEngine, Args: []string{"--threads", "2"}}},
	} {
		text := strings.Replace(plain, "- image: a", "- image: a\n          args: "+tc.args, 1)
		if tc.runtime != "" {
			text = strings.Replace(text, "rouse.dev/model: pico", "rouse.dev/model: pico\n        rouse.dev/runtime: "+tc.runtime, 1)
		}
		got, err := config.Parse(strings.NewReader(text), "m.yaml", ".")
		if err != nil {
			t.Errorf("%s %s: %v", tc.runtime, tc.args, err)
			continue
		}
		rt := got[0].Runtime
		rt.Env, rt.Model = nil, ""
		if len(rt.Args) == 0 {
			rt.Args = nil
		}
		if diff := cmp.Diff(tc.want, rt); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", tc.runtime, tc.args, diff)
		}
	}
}
