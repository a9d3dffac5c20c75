// The benchmark neon counts the instructions that the engine's kernels execute on arm64, by NEON and in plain Go:
//
//	go run ./e2e/bench neon -o docs/bench/neon.json
//
// No such processor is needed: the benchmark BenchmarkCount of engine/kernel runs in QEMU, of the package qemu-user-static.
//
//  1. It builds the package's tests for arm64 and asks them which works there are.
//  2. For each work and each set of instructions it runs that alone, twice and four times over. QEMU logs
//     each block of instructions that it translates, and each that it executes, of those in engine/kernel and of the
//     conversions of halves in engine/gguf, which plain Go calls.
//  3. The work's instructions are half the difference of the two runs: what makes the numbers to work on is in both.
//
// A count says nothing of how long an instruction takes: vector instructions take longer than others on some processors.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

const (
	qemu   = "qemu-aarch64-static"
	armCPU = "neoverse-n1" // as QEMU calls it: a processor with dot products
)

func runNeon(ctx context.Context, r *report.Run) error {
	if _, err := exec.LookPath(qemu); err != nil {
		return fmt.Errorf("%w: apt-get install --no-install-recommends qemu-user-static", err)
	}
	dir, err := os.MkdirTemp("", "rouse-neon-")
	if err != nil {
		return fmt.Errorf("make a place for the tests: %w", err)
	}
	defer os.RemoveAll(dir)
	e := emulator{tests: filepath.Join(dir, "kernel.test")}
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", e.tests, "./engine/kernel")
	build.Env = append(os.Environ(), "GOARCH=arm64", "GOOS=linux", "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the tests of engine/kernel: %w\n%s", err, text)
	}
	if e.filter, err = filter(e.tests); err != nil {
		return err
	}
	works, err := e.works(ctx)
	if err != nil {
		return err
	}
	for _, w := range works {
		if !r.Selects(w.name) || r.Small && !strings.Contains(w.name, "/Add") { // the quickest
			continue
		}
		m, err := e.compare(ctx, w)
		if err != nil {
			return err
		}
		r.Add(m)
	}
	return nil
}

// compare counts a work by NEON and in plain Go.
func (e *emulator) compare(ctx context.Context, w work) (report.Measurement, error) {
	var each [2][]float64
	for i, set := range []string{"dotprod", "generic"} {
		n, err := e.count(ctx, w, set)
		if err != nil {
			return report.Measurement{}, fmt.Errorf("%s by %s: %w", w.name, set, err)
		}
		each[i] = []float64{float64(n) / float64(w.items)}
	}
	m := report.Compare(report.Measurement{
		Name: w.name, What: "instructions that an emulated " + armCPU + " executes", Unit: "instructions a product or value", Against: "plain Go",
	}, each[0], each[1])
	return m.Gated(m.Ratio <= 0.25, "at most a quarter of plain Go's"), nil
}
