package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/pico"
	"github.com/rouse-dev/rouse/engine/sample"
	"github.com/rouse-dev/rouse/engine/tokenizer"
	"github.com/rouse-dev/rouse/engine/worker"
)

// TestCUDAWorker compares the worker in Python, on the processor, with the worker in Go. It runs alone and as two ranks,
// with sleeps of both levels. The models are pico with its adapters, models with windows, soft caps and norms, and models
// with one tensor for several matrices.
func TestCUDAWorker(t *testing.T) {
	python := torch(t)
	for _, s := range []struct {
		name   string
		spec   infertest.Spec
		shards []int
	}{
		{"pico", infertest.Spec{}, []int{2}},
		{"gemma2", infertest.Spec{Arch: "gemma2", KVHeads: 2}, []int{1, 2}},
		{"phi3", infertest.Spec{Arch: "phi3", Type: gguf.Q8_0, Dim: 256, KVHeads: 2}, []int{2}},
	} {
		t.Run(s.name, func(t *testing.T) {
			path, tok := pico.Name, (*tokenizer.Tokenizer)(nil)
			f, err := gguf.Parse(pico.GGUF())
			if s.name != pico.Name {
				path, f = infertest.File(t, s.spec), infertest.Open(t, s.spec)
			}
			if err == nil {
				tok, err = tokenizer.FromGGUF(f)
			}
			if err != nil {
				t.Fatal(err)
			}
			load := worker.Load{Model: path, Threads: 1, Context: 128, Sequences: 4}
			want := answers(t, worker.Options{Place: worker.Inside, Load: load}, tok)
			load.Options = json.RawMessage(`{"device":"cpu","dtype":"float32"}`)
			for _, n := range s.shards {
				got := answers(t, worker.Options{Device: worker.CUDA, Python: python, Shards: n, Load: load}, tok)
				near(t, n, got, want)
			}
		})
	}
}

// answers generates some greedy texts at once, with pico's adapters too, and with sleeps in between.
func answers(t *testing.T, o worker.Options, tok *tokenizer.Tokenizer) (all [][]sample.Choice) {
	t.Helper()
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	w := worker.Open(o)
	info, err := w.Start(t.Context())
	if err != nil {
		t.Fatal(errors.Join(err, w.Close()))
	}
	e, err := engine.Over(w, info, tok, engine.Config{Seats: 4})
	if err != nil {
		t.Fatal(errors.Join(err, w.Close()))
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1) // Run sends its end
	go func() { done <- e.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	adapters := []string{"", "", ""}
	if o.Load.Model == pico.Name {
		adapters = []string{"", "shout", "pirate"}
		for _, name := range adapters[1:] {
			if err := e.LoadAdapter(ctx, name, pico.Name+"/"+name); err != nil {
				t.Fatal(err)
			}
		}
	}
	for level := range 3 {
		if level > 0 {
			if err := e.Sleep(ctx, level, engine.SleepRefuse); err != nil {
				t.Fatal(err)
			}
			if _, err := e.Wake(ctx); err != nil {
				t.Fatal(err)
			}
		}
		var streams []*engine.Stream
		for k, a := range adapters {
			ids := tok.Encode(strings.Repeat("echo hello to the world ", 2+k), false)
			s, err := e.Add(ctx, engine.Request{Prompt: ids, MaxTokens: 7, IgnoreEnd: true, Adapter: a, Sampling: sample.Params{Logprobs: level > 0}}) // without, they go the quick way
			if err != nil {
				t.Fatal(err)
			}
			streams = append(streams, s)
		}
		for _, s := range streams {
			all = append(all, choices(t, s))
		}
	}
	return all
}

// choices reads a stream to its end.
func choices(t *testing.T, s *engine.Stream) (list []sample.Choice) {
	t.Helper()
	for {
		ev, err := s.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, ev.Choice)
	}
}

// near checks for the same tokens, and for log probabilities that differ no more than sums in another order do.
func near(t *testing.T, shards int, got, want [][]sample.Choice) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d shards: %d answers, want %d", shards, len(got), len(want))
	}
	for k := range want {
		if len(got[k]) != len(want[k]) || len(want[k]) == 0 {
			t.Fatalf("%d shards, answer %d: %d tokens, want %d", shards, k, len(got[k]), len(want[k]))
		}
		for i, w := range want[k] {
			if g := got[k][i]; g.Token != w.Token || math.Abs(float64(g.Logprob-w.Logprob)) > 0.05 {
				t.Errorf("%d shards, answer %d, token %d: %d with %.4f, want %d with %.4f", shards, k, i, g.Token, g.Logprob, w.Token, w.Logprob)
				break
			}
		}
	}
}

// torch returns a Python interpreter that has torch. It reads the worker's sources, so that go test does not use a
// cached result after they changed.
func torch(t *testing.T) string {
	t.Helper()
	sources, err := filepath.Glob("worker/cuda/*.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sources {
		if _, err := os.ReadFile(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if exec.CommandContext(t.Context(), name, "-c", "import torch, numpy").Run() == nil {
			return name
		}
	}
	t.Skip("no python3 has torch and numpy")
	return ""
}
