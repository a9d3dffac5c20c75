package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/e2e/bench/report"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/infer/cpu"
)

// instances is how many processes hold the model at once.
const instances = 4

// memory compares what several instances of a model have in memory with one, and measures how soon a further one has the weights.
func (o fileOptions) memory(ctx context.Context) ([]report.Measurement, error) {
	path, err := Model(o.models, fmt.Sprintf("0.5b-q8_0-%d", half.spec.Context), half.spec, o.small)
	if err != nil {
		return nil, err
	}
	var one, all, weightsOne, weightsAll, soon []float64
	for rep := range o.reps + 1 {
		first, total, times, err := holders(ctx, o, path)
		if err != nil {
			return nil, err
		}
		if rep == 0 { // it packs the model
			continue
		}
		one, all = append(one, first.whole), append(all, total.whole)
		weightsOne, weightsAll = append(weightsOne, first.weights), append(weightsAll, total.weights)
		soon = append(soon, times[1:]...)
	}
	of := func(what string) string { return half.name + ", " + what }
	m := report.Compare(report.Measurement{Name: of("weights in memory"), What: fmt.Sprintf("proportional set size of the weights' file, %d instances", instances), Unit: "MiB", Against: "one instance"}, weightsAll, weightsOne)
	p := report.Compare(report.Measurement{Name: of("processes in memory"), What: fmt.Sprintf("proportional set size of %d whole processes, after a prompt each", instances), Unit: "MiB", Against: "one process"}, all, one)
	s := report.Of(report.Measurement{Name: of("a further instance has the weights"), What: "from the open of the model's file to all weights mapped, in a new process beside others", Unit: "ms"}, soon...)
	return []report.Measurement{m.Gated(m.Ratio <= 1.1, "at most 1.1 x of one"), p, s.Gated(s.Rouse.P50 <= 50, "at most 50 ms")}, nil
}

// size is MiB of memory.
type size struct{ whole, weights float64 }

// holders starts instances one after another. It returns what the first one held alone, what all hold together, and how long
// each took until it had the weights, in milliseconds.
func holders(ctx context.Context, o fileOptions, path string) (first, all size, times []float64, err error) {
	var running []*Process
	defer func() {
		for _, p := range running {
			p.Kill()
		}
	}()
	for range instances {
		cmd := exec.CommandContext(ctx, os.Args[0], holdProgram, path, o.models)
		in, err := cmd.StdinPipe()
		if err != nil {
			return first, all, nil, err
		}
		defer in.Close()
		p, line, err := Start(cmd, saysHolds)
		if err != nil {
			return first, all, nil, err
		}
		running = append(running, p)
		ms, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimPrefix(line, saysHolds)), 64)
		if err != nil {
			return first, all, nil, err
		}
		times = append(times, ms)
		if len(running) == 1 {
			if first, err = held(p.PID()); err != nil {
				return first, all, nil, err
			}
		}
	}
	for _, c := range running {
		one, err := held(c.PID())
		if err != nil {
			return first, all, nil, err
		}
		all.whole += one.whole
		all.weights += one.weights
	}
	return first, all, times, nil
}

// held reads what a process has in memory, each page divided by those who map it.
func held(pid int) (s size, err error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	weights := false
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		switch {
		case strings.Contains(f[0], "-"): // the addresses of a mapping
			weights = strings.HasSuffix(f[len(f)-1], ".tiles")
		case f[0] == "Pss:":
			kib, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				return s, err
			}
			s.whole += kib / 1024
			if weights {
				s.weights += kib / 1024
			}
		}
	}
	return s, err
}

// holdProgram as the first argument makes this program an instance that holds a model.
const (
	holdProgram = "hold"
	saysHolds   = "it holds the model after ms: "
)

// hold is an instance: it opens the model, says how long that took, and computes once.
func hold(args []string) error {
	if len(args) != 2 {
		return errors.New("want a model's path and the folder of models")
	}
	path, models := args[0], args[1]
	began := time.Now()
	r, err := cpu.Open(path, cpu.Config{Threads: 1, Context: 2048, Sequences: 1, TileDir: filepath.Join(models, "tiles"), TileFrom: 1})
	if err != nil {
		return err
	}
	took := time.Since(began)
	defer r.Close()
	if _, err := r.Forward(context.Background(), &infer.Batch{Items: []infer.Item{{Tokens: []int32{1, 2, 3}, Blocks: []int32{0}, Want: infer.Last}}}); err != nil {
		return err
	}
	fmt.Println(saysHolds, report.Millis(took))
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
