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

	"github.com/rouse-dev/rouse/e2e/bench/report"
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
	models := t.TempDir()
	measure := func(t *testing.T, args ...string) (r report.Report, out string) {
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
		rows := map[string]int{}
		for _, m := range r.Measurements {
			part, _, _ := strings.Cut(m.Name, ": ")
			rows[part]++
			if m.What == "" || m.Unit == "" || m.Rouse.P50 < 0 || (m.Baseline == nil) != (m.Against == "") {
				t.Errorf("%+v", m)
			}
		}
		notes := strings.Join(r.Notes, "\n")
		torch := !strings.Contains(notes, "vectors: skipped: torch")
		for part, want := range map[string]struct {
			rows  int
			torch bool
		}{"vectors": {3, true}, "decode": {18, true}, "naps": {16, true}, "ledger": {8, false}, "vllm": {44, false}} {
			if want.torch && !torch {
				if !strings.Contains(notes, part+": skipped: torch") || rows[part] > 0 {
					t.Errorf("%s without torch: %d rows, %s", part, rows[part], notes)
				}
			} else if rows[part] < want.rows {
				t.Errorf("%s: %d rows, want %d; %s\n%s", part, rows[part], want.rows, notes, said)
			}
		}
	})
	t.Run("without torch", func(t *testing.T) {
		r, _ := measure(t, "-python", "/nowhere/python3", "-only", "vectors|decode|naps")
		for _, part := range []string{"vectors", "decode", "naps"} {
			if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes, part+": skipped: ") || !strings.Contains(notes, "/nowhere/python3") {
				t.Errorf("%s: %s: want that it says what is missing", part, notes)
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
