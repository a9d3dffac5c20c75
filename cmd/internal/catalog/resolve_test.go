package catalog_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/cmd/internal/catalog"
	"github.com/rouse-dev/rouse/engine/pico"
)

func TestResolve(t *testing.T) {
	s := aStore(t)
	t.Chdir(t.TempDir())
	t.Setenv("PATH", t.TempDir()) // without Ollama
	if err := os.WriteFile("chat.gguf", pico.GGUF(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("models", 0o700); err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs("chat.gguf")
	if err != nil {
		t.Fatal(err)
	}
	blob := filepath.Join(s.Dir, "blobs", "sha256-")
	for _, tt := range []struct{ ref, name, kind, model string }{
		{"pico", "pico", api.RuntimeEngine, "pico"},
		{"chat.gguf", "chat", api.RuntimeEngine, here},
		{"mine=./chat.gguf", "mine", api.RuntimeEngine, here},
		{"qwen2.5=./chat.gguf", "qwen2-5", api.RuntimeEngine, here},
		{"qwen2.5:7b=ollama://qwen2.5:0.5b", "qwen2-5-7b", api.RuntimeEngine, blob},
		{"hf.co/org/name:Q8_0", "name", api.RuntimeEngine, "hf://org/name?quant=Q8_0"},
		{"qwen2.5:0.5b", "qwen2-5-0-5b", api.RuntimeEngine, blob},
		{"ollama://qwen2.5:0.5b", "qwen2-5-0-5b", api.RuntimeEngine, blob},
		{"small=ollama://qwen2.5:0.5b", "small", api.RuntimeEngine, blob},
		{"ollama://llama3.2", "llama3-2", api.RuntimeEngine, "ollama://llama3.2"},
	} {
		f, err := catalog.Resolve(tt.ref, "a test", s, nil)
		if err != nil || f.Name.Name() != tt.name || f.Runtime.Kind != tt.kind || !strings.HasPrefix(f.Runtime.Model, tt.model) {
			t.Errorf("%s: got %s, %s of %s, %v", tt.ref, f.Name, f.Runtime.Kind, f.Runtime.Model, err)
		}
	}
	if _, err := catalog.Resolve("pcio", "a test", nil, nil); err == nil || !strings.Contains(err.Error(), "did you mean pico, which ships with Rouse?") {
		t.Errorf("pcio: got %v, want pico", err)
	}
	for ref, want := range map[string]string{
		"chat":            "did you mean ./chat.gguf?",
		"models":          "a folder is no model: name a GGUF file in it, or serve all with --models-dir models",
		"qwen2.5":         "did you mean qwen2.5:0.5b?",
		"llama3.2:3b":     "did you mean ollama://llama3.2:3b?",
		"Qwen/Qwen3-0.6B": "did you mean hf.co/Qwen/Qwen3-0.6B",
		"<b>model</b>":    "want a GGUF file",
		"picco":           "did you mean pico:latest?",
		"a\x1b[31mb":      "control characters",
		"half":            "its manifest can't be read",
		"...=pico":        "no function's name can be made of",
		"nope=\u202eevil": "control characters",
	} {
		if _, err := catalog.Resolve(ref, "a test", s, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", ref, err, want)
		}
	}
}

// TestNamed: a model's name that no function can have is its function's in another form, and is answered to.
func TestNamed(t *testing.T) {
	s := aStore(t)
	for ref, want := range map[string][]api.ModelName{
		"qwen2.5=pico": {"qwen2-5", "qwen2.5"}, "Org_X:7B=pico": {"org-x-7b", "Org_X:7B"}, "mine=pico": {"mine"},
		"qwen2.5:7b=ollama://qwen2.5:0.5b": {"qwen2-5-7b", "qwen2.5:7b"},
	} {
		f, err := catalog.Resolve(ref, "a test", s, nil)
		if diff := cmp.Diff(want, f.Names()); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", ref, err, diff)
		}
	}
}

// TestOnGPU: where there is a GPU, model files go to what uses it, if that is installed; ours are left where nothing else can.
func TestOnGPU(t *testing.T) {
	s, dir := aStore(t), t.TempDir()
	write(t, nil, dir, "chat.gguf")
	t.Chdir(dir)
	nvidia := func() catalog.GPU { return catalog.GPU{Is: true, Devices: 1} }
	metal := func() catalog.GPU { return catalog.GPU{Is: true} }
	none := func() catalog.GPU { return catalog.GPU{} }
	for _, tc := range []struct {
		installed, ref string
		gpu            func() catalog.GPU
		kind           string
		devices        int
	}{
		{"llama-server ollama", "./chat.gguf", nvidia, api.RuntimeLlamaCpp, 1},
		{"ollama", "./chat.gguf", nvidia, api.RuntimeOllama, 1},
		{"ollama", "./chat.gguf", metal, api.RuntimeOllama, 0},
		{"", "./chat.gguf", nvidia, api.RuntimeEngine, 0},
		{"llama-server ollama", "./chat.gguf", none, api.RuntimeEngine, 0},
		{"llama-server ollama", "./chat.gguf", nil, api.RuntimeEngine, 0},
		{"llama-server ollama", "pico", nvidia, api.RuntimeEngine, 0},
		{"llama-server ollama", "qwen2.5:0.5b", nvidia, api.RuntimeOllama, 1},
		{"llama-server", "qwen2.5:0.5b", nvidia, api.RuntimeLlamaCpp, 1},
		{"", "qwen2.5:0.5b", nvidia, api.RuntimeEngine, 0},
		{"llama-server ollama", "ollama://llama3.2", nvidia, api.RuntimeOllama, 1},
		{"llama-server", "ollama://llama3.2", nvidia, api.RuntimeLlamaCpp, 1},
		{"", "ollama://llama3.2", nvidia, api.RuntimeEngine, 0},
	} {
		bin := t.TempDir()
		for _, program := range strings.Fields(tc.installed) {
			if err := os.WriteFile(filepath.Join(bin, program), []byte("#!/bin/sh\n"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("PATH", bin)
		f, err := catalog.Resolve(tc.ref, "a test", s, tc.gpu)
		if err != nil || f.Runtime.Kind != tc.kind || f.Memory.Devices != tc.devices {
			t.Errorf("%s with %q: %s on %d GPUs, %v; want %s on %d", tc.ref, tc.installed, f.Runtime.Kind, f.Memory.Devices, err, tc.kind, tc.devices)
		}
	}
}
