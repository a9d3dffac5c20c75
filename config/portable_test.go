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
		Memory:  api.Memory{Devices: 2}, Concurrency: 3, MinScale: 1, StartTimeout: time.Minute, FirstByteTimeout: time.Second, UnloadAfter: api.DefaultUnloadAfter, Origin: "a test",
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
