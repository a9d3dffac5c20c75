// Command neon counts the instructions that the engine's kernels execute on arm64, by NEON and in plain Go:
//
//	go run ./e2e/bench/neon -o docs/bench/neon.json
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
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "neon:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("neon", flag.ContinueOnError)
	out := flags.String("o", "", "`file` for the report")
	only := flags.String("run", "", "works whose name contains `text`; empty: all")
	small := report.SmallFlag(flags)
	qemu := flags.String("qemu", "qemu-aarch64-static", "the emulator")
	cpu := flags.String("cpu", "neoverse-n1", "the processor, as QEMU calls it: one with dot products")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *small && *only == "" {
		*only = "/Add" // the quickest
	}
	if _, err := exec.LookPath(*qemu); err != nil {
		return fmt.Errorf("%w: apt-get install --no-install-recommends qemu-user-static", err)
	}
	dir, err := os.MkdirTemp("", "rouse-neon-")
	if err != nil {
		return fmt.Errorf("make a place for the tests: %w", err)
	}
	defer os.RemoveAll(dir)
	e := emulator{qemu: *qemu, cpu: *cpu, tests: filepath.Join(dir, "kernel.test")}
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
	r := report.New("go run ./e2e/bench/neon -o docs/bench/neon.json")
	r.Small = *small
	for _, w := range works {
		if !strings.Contains(w.name, *only) {
			continue
		}
		m, err := e.compare(ctx, w)
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "%-22s %8.3f NEON %8.3f plain Go  %5.1fx\n", m.Name, m.Rouse.P50, m.Baseline.P50, m.Baseline.P50/m.Rouse.P50)
		r.Add(io.Discard, m)
	}
	if err := r.Finish(*out); err != nil {
		return err
	}
	if !r.AllHeld {
		return errors.New("a gate did not hold")
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
		Name: w.name, What: "instructions that an emulated " + e.cpu + " executes", Unit: "instructions a product or value", Against: "plain Go",
	}, each[0], each[1])
	return m.Gated(m.Ratio <= 0.25, "at most a quarter of plain Go's"), nil
}
