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
	ctx, cancel := context.WithTimeout(t.Context(), 20*patience)
	defer cancel()
	adapters := []string{"--model", "pico", "--lora", "shout=pico/shout", "--lora", "pirate=pico/pirate"}
	e := newEngine(t, append(adapters, "--device", "cuda", "--python", python, "--threads", "1")...)
	g := corpus.New(20, corpus.HeldOut)
	var prompts []string
	for i := range 20 {
		prompts = append(prompts, g.SampleOf([]corpus.Skill{corpus.Echo, corpus.Upper, corpus.Reverse, corpus.Count}[i%4]).Prompt())
	}
	cpu := newEngine(t, adapters...)
	want := cpu.greedy(ctx, t, prompts)
	right := 0
	for i, prompt := range prompts {
		switch is := corpus.Check(prompt, want[i]); {
		case i%3 == 0 && is == nil, i%3 == 1 && want[i] == strings.ToUpper(want[i]), i%3 == 2 && strings.Contains(want[i], "arr"):
			right++
		}
	}
	if right < 18 {
		t.Errorf("pico and its adapters are right about %d of 20 prompts: they are not what they are certain of: %q", right, want)
	}
	for _, when := range []string{"at first", "from the prefix cache", "with another process", "after level 1", "after level 2"} {
		if when == "with another process" {
			if err := e.killWorker("worker.py", 1, 0); err != nil {
				t.Fatal(err)
			}
			e.becomes(t, "rouse_engine_worker_restarts_total", 1)
		}
		if level, found := strings.CutPrefix(when, "after level "); found {
			for _, path := range []string{"/sleep?level=" + level, "/wake_up"} {
				if status, raw, err := e.post(ctx, path, ""); err != nil || status != 200 {
					t.Fatalf("%s: status %d, %v: %s", path, status, err, raw)
				}
			}
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

// greedy asks all prompts at once, a third of them each with pico, and with pico's two adapters.
func (e *engineServer) greedy(ctx context.Context, t *testing.T, prompts []string) []string {
	t.Helper()
	texts := make([]string, len(prompts))
	var all sync.WaitGroup
	for i, prompt := range prompts {
		all.Go(func() {
			_, raw, err := e.post(ctx, "/v1/chat/completions", question([]string{"pico", "shout", "pirate"}[i%3], prompt, `"temperature":0`))
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
