package runtime

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestModelfile(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"x.gguf", "vision.gguf", "lora.gguf"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("GGUF"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text := "\uFEFF# a comment\r\nfrom x.gguf\r\n" + `
FROM ` + dir + `/vision.gguf
ADAPTER ./lora.gguf
TEMPLATE """{{ .System }}
{{ .Prompt }}"""
SYSTEM "be ""kind"""
PARAMETER temperature 0.5
PARAMETER num_ctx 4096
PARAMETER	use_mmap   true
PARAMETER stop "<|end|>"
PARAMETER stop 5
MESSAGE user """
What is it?
"""
MESSAGE assistant It is.
LICENSE MIT
PARSER qwen3
`
	got, err := parseModelfile(text, dir)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"template":   "{{ .System }}\n{{ .Prompt }}",
		"system":     `be ""kind""`,
		"parameters": map[string]any{"temperature": 0.5, "num_ctx": int64(4096), "use_mmap": true, "stop": []string{"<|end|>", "5"}},
		"messages":   []map[string]string{{"role": "user", "content": "What is it?\n"}, {"role": "assistant", "content": "It is."}},
		"license":    []string{"MIT"}, "parser": "qwen3",
	}
	if diff := cmp.Diff(want, got.fields); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	files := map[string]string{"model-0.gguf": filepath.Join(dir, "x.gguf"), "model-1.gguf": filepath.Join(dir, "vision.gguf")}
	if !maps.Equal(files, got.files) || got.adapters["adapter.gguf"] != filepath.Join(dir, "lora.gguf") {
		t.Errorf("files are %v and %v", got.files, got.adapters)
	}
	if got, err := parseModelfile("FROM qwen2.5:0.5b\nSYSTEM \"\"\"one line\"\"\" and rubbish\nPARAMETER seed 1", dir); err != nil || got.from != "qwen2.5:0.5b" || got.fields["system"] != "one line" || got.fields["parameters"] == nil {
		t.Errorf("from a name: %+v, %v", got, err)
	}
}

func TestModelfileRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "weights"), []byte("not so"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"":                                    "no line FROM",
		"SYSTEM x":                            "no line FROM",
		"\nRUN x":                             `line 2: no instruction is called "RUN"`,
		"FROM":                                "line 1: FROM has no value",
		"FROM x\nPARAMETER seed":              "line 2: PARAMETER has no value",
		"FROM x\nFROM y":                      "names a model",
		"FROM ./absent.gguf":                  "GGUF file",
		"FROM absent.gguf":                    "GGUF file",
		"FROM weights":                        "no GGUF file",
		"FROM x\nADAPTER absent":              "ADAPTER",
		"FROM x\nSYSTEM \"\"\"no end":         "line 2: SYSTEM: it begins with",
		"FROM x\nMESSAGE god let it be":       "the role",
		"GARBAGE" + strings.Repeat("x", 1000): "no instruction",
	} {
		if _, err := parseModelfile(text, dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %s", text, err, want)
		}
	}
}

// Bad input never panics, and accepted input has a model.
func FuzzModelfile(f *testing.F) {
	for _, s := range []string{"FROM x\nSYSTEM \"\"\"a\nb\"\"\"\nPARAMETER stop \"x\"\n", "MESSAGE user", `"""`, "FROM \"\"\"\n", "PARAMETER a"} {
		f.Add(s)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, s string) {
		r, err := parseModelfile(s, dir)
		if err == nil && r.from == "" && len(r.files) == 0 {
			t.Errorf("%q has no model", s)
		}
	})
}

func TestCanonical(t *testing.T) {
	for name, want := range map[string]string{
		"qwen":                             "registry.ollama.ai/library/qwen/latest",
		"Qwen:0.5B":                        "registry.ollama.ai/library/qwen/0.5b",
		"me/qwen:1":                        "registry.ollama.ai/me/qwen/1",
		"hf.co/org/x:Q4":                   "hf.co/org/x/q4",
		"localhost:5000/me/x":              "localhost:5000/me/x/latest",
		"registry.ollama.ai/library/qwen:": "registry.ollama.ai/library/qwen",
	} {
		if got := canonical(name); got != want {
			t.Errorf("canonical(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestSharedMemory(t *testing.T) {
	if got := sharedMemoryEnv(64<<20, true); len(got) != 1 || got[0] != "NCCL_SHM_DISABLE=1" {
		t.Errorf("64 MiB: %v, want NCCL told", got)
	}
	if got := append(sharedMemoryEnv(1<<30, true), sharedMemoryEnv(0, false)...); len(got) != 0 {
		t.Errorf("1 GiB, or not known: %v, want nothing", got)
	}
}
