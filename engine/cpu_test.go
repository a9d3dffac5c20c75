package engine_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/sample"
	"github.com/rouse-dev/rouse/engine/tokenizer"
	"github.com/rouse-dev/rouse/engine/worker"
)

// TestSameTextWhateverTheSchedule runs the same requests through the real forward pass: with much memory and little,
// in small steps and large, on one thread and several, and in one process and several. Tokens and log probabilities
// are the same to the last bit.
func TestSameTextWhateverTheSchedule(t *testing.T) {
	apart, shards := worker.Process{}.Launch, worker.Group(2, worker.Process{})
	for name, spec := range map[string]infertest.Spec{
		"llama":    {},
		"qwen2":    {Arch: "qwen2", KVHeads: 2},
		"qwen3moe": {Arch: "qwen3moe", KVHeads: 2},
		"gemma2":   {Arch: "gemma2"},
		"q4_k":     {Type: gguf.Q4_K},
		"q8_0":     {Type: gguf.Q8_0},
	} {
		t.Run(name, func(t *testing.T) {
			f := infertest.Open(t, spec)
			tok, err := tokenizer.FromGGUF(f)
			if err != nil {
				t.Fatal(err)
			}
			path := infertest.File(t, spec)
			var want [][]sample.Choice
			preempted := 0
			for i, test := range []struct {
				what   string
				load   worker.Load
				launch worker.Launch
				engine engine.Config
			}{
				{"alone", worker.Load{Threads: 1}, nil, engine.Config{Seats: 1, Sync: true, NoPrefix: true}},
				{"threads", worker.Load{Threads: 3}, nil, engine.Config{Seats: 8, Budget: 8}},
				{"little memory", worker.Load{Threads: 2, Context: 96, Sequences: 1}, nil, engine.Config{Seats: 6, Budget: 33}},
				{"sync, guesses", worker.Load{Threads: 2, Context: 96, Sequences: 2}, nil, engine.Config{Seats: 6, Budget: 64, Sync: true, Draft: 4}},
				{"process", worker.Load{Threads: 2, Context: 96, Sequences: 2}, apart, engine.Config{}},
				{"two processes", worker.Load{Threads: 1, Context: 96, Sequences: 2}, shards, engine.Config{}},
				{"two processes, little memory", worker.Load{Threads: 2, Context: 96, Sequences: 1}, shards, engine.Config{Seats: 5, Budget: 40}},
			} {
				test.load.Model = path
				got, stats := generateAll(t, test.launch, test.load, tok, test.engine)
				preempted += stats.Preemptions
				if i == 0 {
					want = got
				} else if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-alone +now):\n%s", test.what, diff)
				}
			}
			if preempted == 0 {
				t.Error("nobody was preempted: the test does not test what it says")
			}
		})
	}
}

// generateAll runs ten requests at once, every other one sampled, and returns each one's choices.
func generateAll(t *testing.T, launch worker.Launch, load worker.Load, tok *tokenizer.Tokenizer, cfg engine.Config) ([][]sample.Choice, engine.Stats) {
	t.Helper()
	if launch == nil {
		launch = worker.InProcess(worker.Build(nil))
	}
	w := worker.New(worker.Config{Launch: launch, Load: load})
	info, err := w.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Over(w, info, tok, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	var requests []engine.Request
	for i := range 10 {
		seed := int64(i)
		requests = append(requests, engine.Request{
			Prompt:    tok.Encode(fmt.Sprint("the first request wakes ", slices.Repeat([]string{"a model "}, i)), false),
			MaxTokens: 12, IgnoreEnd: true,
			Sampling: sample.Params{Temperature: float64(i % 2), TopP: 0.9, Seed: &seed, RepetitionPenalty: 1.1, Logprobs: true, Top: 1},
		})
	}
	choices := make([][]sample.Choice, len(requests))
	s, err := e.Add(ctx, requests...) // in one go, so that they run together however busy the machine is
	if err != nil {
		t.Fatal(err)
	}
	for ev, err := range s.All() {
		if err != nil {
			t.Fatal(err)
		}
		choices[ev.Index] = append(choices[ev.Index], ev.Choice)
	}
	stats := settled(t, e)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	return choices, stats
}
