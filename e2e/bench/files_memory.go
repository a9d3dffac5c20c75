package main

import (
	"bufio"
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
	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/infer/cpu"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
)

// instances is how many processes hold the model at once.
const instances = 4

var spec = infertest.Spec{Arch: "qwen2", Dim: 896, Layers: 24, Heads: 14, KVHeads: 2, FFN: 4864, Vocab: 151936, Context: 32768, Std: 0.02, Type: gguf.Q8_0}

// memory compares what several instances of a model have in memory with one, and measures how soon a further one has the weights.
func memory(ctx context.Context, o fileOptions, add func(...report.Measurement)) error {
	path, err := Model(o.models, fmt.Sprintf("0.5b-q8_0-%d", spec.Context), spec, o.small)
	if err != nil {
		return err
	}
	var one, all, weightsOne, weightsAll, soon []float64
	for range o.reps + 1 {
		first, total, times, err := holders(ctx, o, path)
		if err != nil {
			return err
		}
		if one == nil { // the first round packs the model
			one = []float64{}
			continue
		}
		one, all = append(one, first.whole), append(all, total.whole)
		weightsOne, weightsAll = append(weightsOne, first.weights), append(weightsAll, total.weights)
		soon = append(soon, times[1:]...)
	}
	of := func(what string) string { return "0.5B Q8_0, " + what }
	m := report.Compare(report.Measurement{Name: of("weights in memory"), What: fmt.Sprintf("proportional set size of the weights' file, %d instances", instances), Unit: "MiB", Against: "one instance"}, weightsAll, weightsOne)
	add(m.Gated(m.Ratio <= 1.1, "at most 1.1 x of one"))
	m = report.Compare(report.Measurement{Name: of("processes in memory"), What: fmt.Sprintf("proportional set size of %d whole processes, after a prompt each", instances), Unit: "MiB", Against: "one process"}, all, one)
	add(m)
	s := report.Measurement{Name: of("a further instance has the weights"), What: "from the open of the model's file to all weights mapped, in a new process beside others", Unit: "ms", N: len(soon), Rouse: report.Summarise(soon)}
	add(s.Gated(s.Rouse.P50 <= 50, "at most 50 ms"))
	return nil
}

// size is MiB of memory.
type size struct{ whole, weights float64 }

// holders starts instances one after another. It returns what the first one held alone, what all hold together, and how long
// each took until it had the weights, in milliseconds.
func holders(ctx context.Context, o fileOptions, path string) (first, all size, times []float64, err error) {
	ctx, stop := context.WithCancel(ctx)
	var running []*exec.Cmd
	defer func() {
		stop()
		for _, c := range running {
			_ = c.Wait() // it was killed
		}
	}()
	for range instances {
		cmd := exec.CommandContext(ctx, os.Args[0], holdProgram, path, o.models)
		cmd.Stderr = os.Stderr
		in, e := cmd.StdinPipe()
		out, e2 := cmd.StdoutPipe()
		if err := errors.Join(e, e2); err != nil {
			return first, all, nil, err
		}
		defer in.Close()
		if err := cmd.Start(); err != nil {
			return first, all, nil, err
		}
		running = append(running, cmd)
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			return first, all, nil, fmt.Errorf("an instance has ended: %w", err)
		}
		ms, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
		if err != nil {
			return first, all, nil, err
		}
		times = append(times, ms)
		if len(running) == 1 {
			if first, err = held(cmd.Process.Pid); err != nil {
				return first, all, nil, err
			}
		}
	}
	for _, c := range running {
		one, err := held(c.Process.Pid)
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
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		return s, err
	}
	defer f.Close()
	weights := false
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		key, rest, _ := strings.Cut(line, ":")
		if strings.Contains(key, "-") {
			weights = strings.HasSuffix(line, ".tiles")
		}
		if key != "Pss" {
			continue
		}
		kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
		if err != nil {
			return s, err
		}
		s.whole += kib / 1024
		if weights {
			s.weights += kib / 1024
		}
	}
	return s, lines.Err()
}

// holdProgram as the first argument makes this program an instance that holds a model.
const holdProgram = "hold"

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
	fmt.Println(report.Millis(took))
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
