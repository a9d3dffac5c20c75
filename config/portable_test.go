package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
)

// TestPortable checks that a manifest stored elsewhere declares the same function.
func TestPortable(t *testing.T) {
	dir, kept := t.TempDir(), t.TempDir()
	text := `# mine
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: chat}
spec:
  template:
    metadata:
      annotations:
        rouse.dev/model: models/chat.gguf # beside this file
        rouse.dev/adapter-root: ./loras
    spec:
      containers: [{image: a}]
---
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: code}
spec:
  template:
    spec:
      containers:
        - image: a
          env:
            - {name: ROUSE_MODEL, value: ./code.gguf}
            - {name: SECRET, value: "1"}
---
`
	path := filepath.Join(dir, "functions.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := config.Portable(path)
	if err != nil || len(all) != 2 {
		t.Fatalf("got %d functions, %v", len(all), err)
	}
	if !strings.Contains(string(all[0].YAML), "# beside this file") {
		t.Errorf("a comment is lost:\n%s", all[0].YAML)
	}
	for _, m := range all {
		again := reread(t, kept, m)
		if diff := cmp.Diff(m.Function, again); diff != "" {
			t.Errorf("%s is another one elsewhere (-want +got):\n%s", m.Function.Name, diff)
		}
		if !strings.HasPrefix(again.Runtime.Model, dir) {
			t.Errorf("%s has the model %s", m.Function.Name, again.Runtime.Model)
		}
	}
	if _, err := config.Portable(filepath.Join(dir, "none.yaml")); err == nil {
		t.Error("a file that is not there is read")
	}
}

// reread writes a manifest to a folder and loads it.
func reread(t *testing.T, dir string, m config.Manifest) api.Function {
	t.Helper()
	path := filepath.Join(dir, m.Function.Name.Name()+".yaml")
	if err := os.WriteFile(path, m.YAML, 0o600); err != nil {
		t.Fatal(err)
	}
	fs, err := config.Load(path)
	if err != nil {
		t.Fatalf("%v:\n%s", err, m.YAML)
	}
	fs[0].Origin = m.Function.Origin
	return fs[0]
}

func TestManifestOf(t *testing.T) {
	for _, ref := range []string{"pico", "/models/My Model.gguf", "hf.co/org/name:Q8_0", "ollama://qwen2.5:0.5b", "mine=/a b/c.gguf"} {
		f, err := config.ForModel(ref, "a test")
		if err != nil {
			t.Fatal(err)
		}
		f.Runtime.Env = []string{"OLLAMA_MODELS=/a=b"}
		m, err := config.ManifestOf(f)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(f, reread(t, t.TempDir(), m)); diff != "" {
			t.Errorf("%s (-want +got):\n%s\n%s", ref, diff, m.YAML)
		}
	}
	f, err := config.Named(api.Function{
		Runtime: api.Runtime{Kind: api.RuntimeCommand, Command: []string{"serve", "--port", "$(PORT)", "a b", "1"}, Model: "org/name", Env: []string{"A=1"}},
		Memory:  api.Memory{Devices: 2}, Concurrency: 3, MinScale: 1, StartTimeout: time.Minute, FirstByteTimeout: time.Second, UnloadAfter: config.DefaultUnloadAfter, Origin: "a test",
	}, "Org/Name:7b")
	if err != nil {
		t.Fatal(err)
	}
	m, err := config.ManifestOf(f)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(f, reread(t, t.TempDir(), m)); diff != "" {
		t.Errorf("a command (-want +got):\n%s\n%s", diff, m.YAML)
	}
}

// TestManifestOfEachKey checks that each annotation is still there in the manifest of the function that it declares.
func TestManifestOfEachKey(t *testing.T) {
	values := map[string]string{
		"rouse.dev/runtime": "vllm", "rouse.dev/model": "/m/other.gguf", "rouse.dev/runtime-endpoint": "http://127.0.0.1:11434", "rouse.dev/adapters": "a=/a, b=/b", "rouse.dev/adapter-root": "/loras",
		"rouse.dev/handler": `["a b", "c"]`, "rouse.dev/served-model-name": "org/name", "rouse.dev/aliases": "x, y:1", "rouse.dev/memory": "1000001", "rouse.dev/device-memory": "20Gi",
		"rouse.dev/sleep-after": "0", "rouse.dev/sleep-level": "2", "rouse.dev/suspend": "off", "rouse.dev/unload-after": "1h30m", "rouse.dev/prewake": "false", "rouse.dev/rehearse": "never",
		"rouse.dev/runtime-sleeps": "true", "rouse.dev/reuse-connections": "false", "rouse.dev/hold-capacity": "7", "rouse.dev/hold-memory": "1Ki", "rouse.dev/hold-timeout": "90s",
		"rouse.dev/snapshot": "auto", "rouse.dev/evict-sheddable": "true", "rouse.dev/start-timeout": "1m", "rouse.dev/wake-timeout": "2m", "rouse.dev/request-timeout": "3m", "rouse.dev/first-byte-timeout": "4m",
		"rouse.dev/idle-timeout": "5m", "rouse.dev/priority": "-3", "rouse.dev/target-ttft": "250ms", "rouse.dev/cost": "2.5", "rouse.dev/variant-of": "big", "rouse.dev/canary-tokens": "0",
		"rouse.dev/client-credentials": "pass", "rouse.dev/media-hosts": "a.example, b.example:8443", "rouse.dev/prefix-cache": "shared", "rouse.dev/dual-pods": "true",
		"rouse.dev/provider-patch": `{"spec":{}}`, "rouse.dev/remove-after": "2h", "rouse.dev/regions": "eu, us", "rouse.dev/fallback": "small, org/name",
		"autoscaling.knative.dev/min-scale": "1", "autoscaling.knative.dev/max-scale": "0", "autoscaling.knative.dev/activation-scale": "2",
	}
	with := map[string]string{"rouse.dev/runtime-endpoint": "rouse.dev/runtime", "rouse.dev/provider-patch": "rouse.dev/dual-pods", "rouse.dev/adapters": "rouse.dev/runtime", "autoscaling.knative.dev/activation-scale": "autoscaling.knative.dev/max-scale"}
	for _, k := range config.Keys(&api.Function{}) {
		_, is := values[k.Name]
		if k.Name == config.AnnotationInject || k.Name == config.AnnotationClusters { // of no function here
			continue
		}
		if !is {
			t.Errorf("this test has no value for %s", k.Name)
			continue
		}
		text := "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: chat, namespace: team}\nspec:\n  template:\n    metadata:\n      annotations:\n        rouse.dev/model: /m/chat.gguf\n"
		text = strings.Replace(text, "        rouse.dev/model: /m/chat.gguf\n", "", strings.Count(k.Name, "rouse.dev/model"))
		for _, key := range []string{k.Name, with[k.Name]} {
			if key != "" {
				text += "        " + key + ": '" + values[key] + "'\n"
			}
		}
		for _, container := range []string{"", ", args: ['--', --a, b]", ", command: [run, --x], args: [c]"} {
			functions, err := config.Parse(strings.NewReader(text+"    spec:\n      containers: [{image: i"+container+", resources: {limits: {nvidia.com/gpu: 2}}}]\n"), "a test", "/")
			if err != nil {
				t.Fatalf("%s: %v", k.Name, err)
			}
			m, err := config.ManifestOf(functions[0])
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(functions[0], reread(t, t.TempDir(), m)); diff != "" || !strings.Contains(string(m.YAML), k.Name+":") {
				t.Errorf("%s%s (-want +got):\n%s\n%s", k.Name, container, diff, m.YAML)
			}
		}
	}
	for _, credentials := range []string{"pass", "drop"} { // whose default depends on the runtime
		functions, err := config.Parse(strings.NewReader("apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: web}\nspec:\n  template:\n    metadata:\n      annotations: {rouse.dev/runtime: http, rouse.dev/client-credentials: "+credentials+"}\n    spec:\n      containers: [{image: i, command: [serve]}]\n"), "a test", "/")
		if err != nil {
			t.Fatal(err)
		}
		m, err := config.ManifestOf(functions[0])
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(functions[0], reread(t, t.TempDir(), m)); diff != "" {
			t.Errorf("%s (-want +got):\n%s\n%s", credentials, diff, m.YAML)
		}
	}
}
