package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGPU runs `make gpu` in small, so that it works the first time somebody has a GPU: each part ran, or says what is missing.
func TestGPU(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*patience)
	defer cancel()
	program := filepath.Join(t.TempDir(), "gpu")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "./bench").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	type report struct {
		Small   bool
		Command string
		Device  struct{ Torch string }
		Parts   []struct {
			Name, What, Status, Why string
			Figures                 []struct {
				Name, Unit, Of string
				Value, Limit   float64
			}
			Notes []string
		}
	}
	models := t.TempDir()
	measure := func(t *testing.T, args ...string) (r report, out string) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "gpu.json")
		cmd := exec.CommandContext(ctx, program, append([]string{"gpu", "--small", "-rouse", filepath.Join(bin, "rouse"), "-sim", filepath.Join(bin, "vllmsim"), "-models", models, "-o", path}, args...)...)
		cmd.Dir = ".." // the tests of the worker are sources
		said, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		dec := json.NewDecoder(bytes.NewReader(raw))
		if err := dec.Decode(&r); err != nil {
			t.Fatal(err)
		}
		return r, string(said)
	}
	t.Run("all", func(t *testing.T) {
		if os.Getenv("ROUSE_BENCH_SMALL") == "" {
			t.Skip("make deep PART=benchmarks runs it")
		}
		r, said := measure(t)
		if !r.Small || !strings.Contains(r.Command, "--small") {
			t.Errorf("small: %t by %q: want that it says that it is no measurement", r.Small, r.Command)
		}
		want := map[string]struct {
			figures int
			torch   bool
		}{"vectors": {3, true}, "decode": {18, true}, "naps": {16, true}, "ledger": {8, false}, "vllm": {44, false}}
		for _, p := range r.Parts {
			w, known := want[p.Name]
			delete(want, p.Name)
			if !known || p.What == "" {
				t.Errorf("part %q: %q", p.Name, p.What)
			}
			if w.torch && r.Device.Torch == "" {
				if p.Status != "skipped" || !strings.Contains(p.Why, "torch") {
					t.Errorf("%s without torch: %s, %q", p.Name, p.Status, p.Why)
				}
				continue
			}
			if p.Status != "ran" || len(p.Figures) < w.figures {
				t.Errorf("%s: %s, %q, %d figures; want that it ran and %d\n%s", p.Name, p.Status, p.Why, len(p.Figures), w.figures, said)
			}
			for _, f := range p.Figures {
				if f.Name == "" || f.Unit == "" || f.Value < 0 || f.Limit < 0 {
					t.Errorf("%s: figure %+v", p.Name, f)
				}
			}
		}
		for name := range want {
			t.Errorf("there is no part %s", name)
		}
	})
	t.Run("without torch", func(t *testing.T) {
		r, _ := measure(t, "-python", "/nowhere/python3", "-only", "vectors,decode,naps")
		if len(r.Parts) != 3 {
			t.Errorf("%d parts, want 3", len(r.Parts))
		}
		for _, p := range r.Parts {
			if p.Status != "skipped" || !strings.Contains(p.Why, "/nowhere/python3") {
				t.Errorf("%s: %s, %q: want that it says what is missing", p.Name, p.Status, p.Why)
			}
		}
	})
	t.Run("without a device", func(t *testing.T) {
		cmd := exec.CommandContext(ctx, program, "gpu", "-rouse", filepath.Join(bin, "rouse"), "-python", "/nowhere/python3", "-o", filepath.Join(t.TempDir(), "gpu.json"))
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "--small") {
			t.Errorf("%v: %s; want an error that names --small", err, out)
		}
	})
}
