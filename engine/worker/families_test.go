package worker_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/infer/cpu"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/kernel"
)

// familyCase is a model, and the results of the worker in Go: the logits after prompt, and after each of more except
// the last.
type familyCase struct {
	Name    string      `json:"name"`
	Model   string      `json:"model"`
	Context int         `json:"context"`
	Prompt  []int32     `json:"prompt"`
	More    []int32     `json:"more"`
	Logits  [][]float32 `json:"logits"`
}

// lacks are the architectures that the worker refuses by name.
var lacks = []string{"gemma4", "glm4", "glm4moe", "gpt-oss", "qwen35"}

// TestFamilies has Python compute models of every family that the engine supports, alone and as two ranks, and
// compare with the worker in Go.
func TestFamilies(t *testing.T) {
	python := torch(t)
	dir := t.TempDir()
	var all []familyCase
	known := map[string]bool{}
	for _, g := range infertest.GoldenSpecs() {
		if g.Spec.Type != gguf.F32 || len(g.Spec.Mix) > 0 || slices.Contains(lacks, g.Spec.Arch) {
			continue // a test of package engine shows that the others are read
		}
		known[g.Spec.Arch] = true
		all = append(all, family(t, dir, g))
	}
	refuses := []string{"-B", "-c", `import sys, gguf, shapes
for path in sys.argv[1:]:
    try: print(shapes.read_shape(gguf.File(path)))
    except Exception as e: print(e)`}
	for _, arch := range lacks {
		refuses = append(refuses, infertest.File(t, infertest.Spec{Arch: arch}))
	}
	read := exec.CommandContext(t.Context(), python, refuses...)
	read.Dir = "cuda"
	out, err := read.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, arch := range lacks { // the worker in Python says so
		if want := "architecture '" + arch + "' is not supported by the CUDA worker; supported are gemma"; !strings.Contains(string(out), want) {
			t.Errorf("%s: %s, want %q", arch, out, want)
		}
	}
	if len(known) < 7 {
		t.Fatalf("models of %v only", known)
	}
	raw, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cases.json"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	sources, err := filepath.Glob("cuda/*.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sources { // so that go test does not use a cached result after they changed
		if _, err := os.ReadFile(s); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), python, "-B", "-m", "unittest", "test_families")
	cmd.Dir = "cuda"
	cmd.Env = append(os.Environ(), "ROUSE_TEST_FAMILIES="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// family writes a golden's model and computes its logits.
func family(t *testing.T, dir string, g infertest.Golden) familyCase {
	t.Helper()
	c := familyCase{Name: g.Name, Model: strings.ReplaceAll(g.Name, "/", "-") + ".gguf", Context: g.Spec.Context}
	path := filepath.Join(dir, c.Model)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := infertest.Write(f, g.Spec); err != nil {
		t.Fatal(err)
	}
	r, err := cpu.Open(path, cpu.Config{Threads: 1, TileDir: filepath.Join(dir, "tiles")})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	prompts := infertest.GoldenPrompts(r.Config().Vocab)
	c.Prompt = prompts[len(prompts)-1]
	const more = 6
	it := infer.Item{Tokens: c.Prompt, Want: infer.Last}
	for range (len(c.Prompt)+more)/16 + 1 {
		it.Blocks = append(it.Blocks, int32(len(it.Blocks)))
	}
	for range more {
		out, err := r.Forward(t.Context(), &infer.Batch{Items: []infer.Item{it}})
		if err != nil {
			t.Fatal(err)
		}
		logits := append([]float32(nil), out.Logits[0]...)
		next := int32(kernel.ArgMax(logits))
		c.Logits, c.More = append(c.Logits, logits), append(c.More, next)
		it.Pos += len(it.Tokens)
		it.Tokens = []int32{next}
	}
	return c
}

// torch returns a Python interpreter that has torch.
func torch(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if exec.CommandContext(t.Context(), name, "-c", "import torch, numpy").Run() == nil {
			return name
		}
	}
	t.Skip("no python3 has torch and numpy")
	return ""
}
