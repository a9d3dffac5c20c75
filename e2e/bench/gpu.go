// The benchmark gpu makes the measurements that need a CUDA device:
//
//	make gpu
//	make gpu ARGS=--small     # the same code on the processor, in a minute
//
// Notes in the report say which part was skipped, or failed, and why:
//
//  1. vectors: the tests of the engine's CUDA worker, and pico's answers.
//  2. decode: tokens a second of random weights, 1 to 128 sequences at once, async or sync, beside the memory's
//     bandwidth.
//  3. naps: sleep and wake of 8 and 30 GB of weights, beside the bus.
//  4. ledger: what `rouse up` says is held of a device, beside nvidia-smi.
//  5. vllm: vLLM through `rouse up`: sleeps at both levels, wake and first token.
//
// Limits are measured by the same run (probe.py). With --small, the processor and the simulator replace the device,
// vLLM and nvidia-smi.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

//go:embed probe.py
var probe string

func runGPU() {
	b := &gpuBench{device: "cuda", sizes: []float64{8e9, 30e9}}
	flag.StringVar(&b.rouse, "rouse", "bin/rouse", "the `program`")
	flag.StringVar(&b.sim, "sim", "", "the simulator of vLLM, a `program` (default: built)")
	flag.StringVar(&b.python, "python", "", "Python `interpreter` that has torch (default: the first of python3 and /usr/bin/python3 that does)")
	flag.Float64Var(&b.weights, "weights", 40e9, "most `bytes` of the weights of the part decode; it takes half of the device's free memory at most")
	flag.Float64Var(&b.fileWeights, "file-weights", 8e9, "`bytes` of the model file of level 2, which is generated; 0: none")
	flag.StringVar(&b.vllmModel, "vllm-model", "", "`model` that vLLM serves, a folder or a name (default: one of random weights is generated)")
	flag.StringVar(&b.models, "models", Models(), "`folder` for generated models")
	report.Main(func(ctx context.Context, r *report.Run) (err error) {
		if b.small = r.Small; b.small {
			b.device, b.weights, b.fileWeights, b.sizes = "cpu", 4e6, 4e6, []float64{4e6}
		}
		if b.rouse, err = filepath.Abs(b.rouse); err != nil {
			return err
		}
		if _, err := os.Stat(b.rouse); err != nil {
			return fmt.Errorf("%w: run make build", err)
		}
		if b.dir, err = os.MkdirTemp("", "gpu-"); err != nil {
			return err
		}
		defer os.RemoveAll(b.dir)
		if err := b.look(ctx); err != nil {
			return err
		}
		r.On(b.facts)
		for _, n := range b.notes {
			r.Note(n)
		}
		return b.parts(ctx, r)
	})
}

type gpuBench struct {
	rouse, sim, python, device string
	small                      bool
	weights, fileWeights       float64
	sizes                      []float64
	vllmModel, models, dir     string
	facts                      Device
	noTorch                    error // nil if torch works
	notes                      []string
}

const partLimit = time.Hour

// One part that fails does not end the run.
func (b *gpuBench) parts(ctx context.Context, r *report.Run) (failed error) {
	for _, p := range []struct {
		name, what string
		run        func(context.Context, *gpuPart) error
	}{
		{"vectors", "the tests of the engine's CUDA worker on the device, and what pico and its adapters answer by it and by the worker in Go", b.vectors},
		{"decode", "random weights, prompts of 16 tokens: tokens a second of 1 to 128 sequences at once, the time of a step, and the share of it in which the device has nothing to do", b.decode},
		{"naps", "seconds of a sleep and of a wake with its first token, of weights of so many bytes", b.naps},
		{"ledger", "what rouse up says is held of the device, beside nvidia-smi", b.ledger},
		{"vllm", "vLLM through rouse up: seconds of sleeps, and from a request to its first byte", b.vllm},
	} {
		if !r.Selects(p.name) || ctx.Err() != nil {
			continue
		}
		fmt.Println(p.name + ": " + p.what)
		part := &gpuPart{name: p.name, what: p.what, row: r.Add, say: r.Note}
		limited, stop := context.WithTimeoutCause(ctx, partLimit, fmt.Errorf("it has taken longer than %s", partLimit))
		err := p.run(limited, part)
		if err != nil && limited.Err() != nil {
			err = errors.Join(context.Cause(limited), err)
		}
		failed = errors.Join(failed, part.end(err))
		stop()
	}
	return errors.Join(failed, context.Cause(ctx))
}

func (b *gpuBench) look(ctx context.Context) error {
	size := 1 << 30
	if b.small {
		size = 16 << 20
	}
	names := []string{"python3", "/usr/bin/python3"}
	if b.python != "" {
		names = []string{b.python}
	}
	for _, name := range names {
		cmd := exec.CommandContext(ctx, name, "-c", probe, b.device, fmt.Sprint(size))
		out, err := cmd.Output()
		if err == nil {
			err = json.Unmarshal(out, &b.facts)
		}
		if err == nil {
			b.python = name
			b.noTorch = nil
			break
		}
		if exit, is := errors.AsType[*exec.ExitError](err); is {
			err = errors.New(lastLine(string(exit.Stderr)))
		}
		b.noTorch = errors.Join(b.noTorch, fmt.Errorf("%s: %w", name, err))
	}
	if b.small {
		return nil
	}
	if b.noTorch != nil {
		return fmt.Errorf("torch can't be used: %w; name an interpreter that has it with --python, or run with --small", b.noTorch)
	}
	if b.facts.HasCUDA {
		b.others(ctx)
		return nil
	}
	why := fmt.Errorf("torch %s of %s finds no CUDA device: %s", b.facts.Torch, b.python, b.facts.NoCUDA)
	if _, err := smi(ctx, nil); err != nil {
		return fmt.Errorf("%w; %w: run with --small", why, err)
	}
	b.noTorch = why
	return nil
}

func (b *gpuBench) others(ctx context.Context) {
	ask := func(field string) string {
		out, err := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu="+field, "--format=csv,noheader", "-i", "0").Output()
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(out))
	}
	b.facts.Driver = ask("driver_version")
	if mode := ask("mig.mode.current"); mode == "Enabled" {
		b.notes = append(b.notes, "MIG mode is on: the device is a part of a GPU, and nvidia-smi may not say what is used of it")
	}
	if used := b.facts.Total - b.facts.Free; used > 1<<30 {
		b.notes = append(b.notes, fmt.Sprintf("%s of the device were in use before anything ran: others are on it, so figures are lower, and the ledger's part may take their memory for ours", gigabytes(float64(used))))
	}
	if b.facts.Unpinned != "" {
		b.notes = append(b.notes, b.facts.Unpinned)
	}
}

func (b *gpuBench) torch() error {
	if b.noTorch == nil {
		return nil
	}
	return lacks("torch can't be used: %s", strings.ReplaceAll(b.noTorch.Error(), "\n", "; "))
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
