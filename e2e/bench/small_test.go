package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

// bounds is how long one benchmark may take here; together they take a minute on two quiet cores.
const bounds = 10 * time.Minute

// small is a benchmark of the Makefile, and which results in docs/bench it makes.
type small struct {
	program string // the first argument of e2e/bench
	args    []string
	results []string
}

var smalls = []small{
	{program: "local", args: []string{"-rouse", "rouse", "-function", "rouse-function"}, results: []string{"local", "beside", "function", "wake-local", "door"}},
	{program: "plan", results: []string{"plan"}},
	{program: "proxy", results: []string{"proxy"}},
	{program: "record", results: []string{"record"}},
	{program: "engine", args: []string{"-rouse", "rouse", "-models", "models"}, results: []string{"engine"}},
	{program: "files", results: []string{"files"}},
	{program: "conversations", args: []string{"-rouse", "rouse", "-models", "models"}, results: []string{"conversations"}},
	{program: "conversations", args: []string{"-move", "-rouse", "rouse", "-models", "models"}, results: []string{"move"}},
	{program: "route", args: []string{"-rouse", "rouse"}, results: []string{"route"}},
	{program: "gateway", results: []string{"gateway"}},
	{program: "simulate", results: []string{"simulate"}},
}

// elsewhere are programs that other tests run: TestGPU in e2e, and measured, which measures nothing, its own.
var elsewhere = []string{"gpu", "measured"}

// TestSmall runs every benchmark of the Makefile with -small, and wants all rows that its results in docs/bench have. No time is
// judged. It builds a dozen programs, so it runs with ROUSE_BENCH_SMALL only (make deep PART=benchmarks).
func TestSmall(t *testing.T) {
	if os.Getenv("ROUSE_BENCH_SMALL") == "" {
		t.Skip("make deep PART=benchmarks runs it")
	}
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", dir+"/", "./cmd/rouse", "./cmd/rouse-function", "./e2e/bench")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, s := range smalls {
		t.Run(strings.Join(s.results, ","), func(t *testing.T) {
			s.run(t, dir)
		})
	}
}

const root = "../.."

func (s small) run(t *testing.T, dir string) {
	ctx, cancel := context.WithTimeout(t.Context(), bounds)
	defer cancel()
	path := filepath.Join(t.TempDir(), "report.json")
	args := []string{s.program, "-small", "-o", path}
	for _, a := range s.args {
		if !strings.HasPrefix(a, "-") {
			a = filepath.Join(dir, a)
		}
		args = append(args, a)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "bench"), args...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := read(t, path)
	if !got.Small || got.Command == "" || got.At.IsZero() || got.Machine.Cores < 1 || got.Machine.Go == "" || !got.AllHeld {
		t.Errorf("the report says %+v of itself", got)
	}
	for _, m := range got.Measurements {
		if fault := incomplete(m); fault != nil {
			t.Errorf("%s: %v: %+v", m.Name, fault, m)
		}
	}
	have := rows(got)
	for _, name := range s.results {
		whole := read(t, filepath.Join(root, "docs", "bench", name+".json"))
		if _, err := exec.LookPath("llama-swap"); err != nil {
			whole.Measurements = slices.DeleteFunc(whole.Measurements, func(m report.Measurement) bool { return strings.HasPrefix(m.Name, "llama-swap") })
		}
		for row, n := range rows(whole) {
			if have[row] < n {
				t.Errorf("docs/bench/%s.json has %d rows like %q, the small run %d", name, n, row, have[row])
			}
		}
	}
}

// incomplete returns an error for a row with a missing field.
func incomplete(m report.Measurement) error {
	switch {
	case m.Name == "" || m.What == "" || m.Unit == "" || m.N < 1:
		return errors.New("something of name, what, unit and n is missing")
	case (m.Against == "") != (m.Baseline == nil):
		return errors.New("it has a baseline without its name, or the name without a baseline")
	case m.Gate != "" || m.Held != nil:
		return errors.New("a small run judges nothing")
	}
	return nil
}

// read reads a report.
func read(t *testing.T, path string) (r report.Report) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dec := json.NewDecoder(f)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if len(r.Measurements) == 0 {
		t.Fatalf("%s has no rows", path)
	}
	return r
}

// number matches the numbers in the names of rows, which differ between a small run and a whole one.
var number = regexp.MustCompile(`\d[\d.,]*`)

// rows counts rows by their names without numbers.
func rows(r report.Report) map[string]int {
	n := map[string]int{}
	for _, m := range r.Measurements {
		n[number.ReplaceAllString(m.Name, "#")]++
	}
	return n
}

// TestSmallHasAll wants a benchmark that the Makefile runs to be one that TestSmall runs.
func TestSmallHasAll(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, s := range smalls {
		known = append(known, s.results...)
	}
	found := 0
	for line := range strings.Lines(string(raw)) {
		if !strings.Contains(line, "run ./e2e/bench") || strings.Contains(line, "bench cluster ") { // a cluster's needs a cluster
			continue
		}
		found++
		if m := regexp.MustCompile(`e2e/bench ([a-z]+)`).FindStringSubmatch(line); m != nil && slices.Contains(elsewhere, m[1]) {
			continue
		}
		if m := regexp.MustCompile(`docs/bench/([a-z-]+)\.json`).FindStringSubmatch(line); m == nil || !slices.Contains(known, m[1]) {
			t.Errorf("%s: no small run makes its results: add it to smalls", strings.TrimSpace(line))
		}
	}
	if found < len(smalls) {
		t.Errorf("the Makefile runs %d benchmarks, want %d at least", found, len(smalls))
	}
}
