package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/rouse-dev/rouse/engine/pico/corpus"
)

// withTorch finds a Python that has torch, or skips: it is two thirds of a gigabyte, and nothing else here needs it.
func withTorch(t *testing.T) string {
	t.Helper()
	said := "there is no python3"
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		out, err := exec.Command(path, "-c", "import torch, numpy").CombinedOutput()
		if err == nil {
			return path
		}
		said = fmt.Sprintf("%s can't import torch and numpy: %s", path, strings.TrimSpace(string(out)))
	}
	t.Skip(said)
	return ""
}

// TestEngineCUDAWorker has the worker for CUDA devices compute, on the processor
// where there is none, with frames as ever: what pico is certain of it says too.
func TestEngineCUDAWorker(t *testing.T) {
	t.Parallel()
	python := withTorch(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	e := newEngine(t, "--model", "pico", "--device", "cuda", "--python", python, "--threads", "1")
	g := corpus.New(20, corpus.HeldOut)
	var prompts []string
	for i := range 20 {
		prompts = append(prompts, g.SampleOf([]corpus.Skill{corpus.Echo, corpus.Upper, corpus.Reverse, corpus.Count}[i%4]).Prompt())
	}
	cpu := newEngine(t, "--model", "pico")
	want := cpu.greedy(ctx, t, prompts)
	right := 0
	for i, prompt := range prompts {
		if corpus.Check(prompt, want[i]) == nil {
			right++
		}
	}
	if right < 18 {
		t.Errorf("pico is right about %d of 20 prompts: they are not what it is certain of", right)
	}
	for _, when := range []string{"at first", "from the prefix cache", "with another process"} {
		if when == "with another process" {
			if err := e.killWorker("worker.py", 1, 0); err != nil {
				t.Fatal(err)
			}
			e.becomes(t, "rouse_engine_worker_restarts_total", 1)
		}
		got := e.greedy(ctx, t, prompts)
		for i := range prompts {
			if got[i] != want[i] {
				t.Errorf("%s: %s: in torch %q, in Go %q", when, prompts[i], got[i], want[i])
			}
		}
	}
	e.idle(t)

	// Synchronous or one batch ahead: the same tokens, drawn ones too.
	bodies := longTexts(6, 20)
	ahead := e.streams(ctx, t, bodies, func() {})
	e.stop(t)
	sync := newEngine(t, "--model", "pico", "--device", "cuda", "--python", python, "--threads", "1", "--sync").streams(ctx, t, bodies, func() {})
	for i := range bodies {
		if ahead[i] != sync[i] {
			t.Errorf("%s: one batch ahead %q, synchronous %q", bodies[i], ahead[i], sync[i])
		}
	}
}

// greedy asks all prompts at once.
func (e *engineServer) greedy(ctx context.Context, t *testing.T, prompts []string) []string {
	t.Helper()
	texts := make([]string, len(prompts))
	var all sync.WaitGroup
	for i, prompt := range prompts {
		all.Go(func() {
			_, raw, err := e.post(ctx, "/v1/chat/completions", question("pico", prompt, `"temperature":0`))
			if err == nil {
				texts[i], err = answerOf(raw)
			}
			if err != nil {
				t.Errorf("%s: %v", prompt, err)
			}
		})
	}
	all.Wait()
	return texts
}
