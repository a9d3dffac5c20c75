package engine_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/infer/cpu"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/sample"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// TestSameTextWhateverTheSchedule runs the same requests through the real forward
// pass, with much memory and little, in small steps and large, on one thread and
// several: tokens and log probabilities are the same to the last bit.
func TestSameTextWhateverTheSchedule(t *testing.T) {
	for _, arch := range []string{"llama", "qwen2"} {
		t.Run(arch, func(t *testing.T) {
			f := infertest.Open(t, infertest.Spec{Arch: arch})
			tok, err := tokenizer.FromGGUF(f)
			if err != nil {
				t.Fatal(err)
			}
			path := infertest.File(t, infertest.Spec{Arch: arch})
			var want [][]sample.Choice
			preempted := 0
			for i, test := range []struct {
				cpu    cpu.Config
				engine engine.Config
			}{
				{cpu.Config{Threads: 1}, engine.Config{Seats: 1}},
				{cpu.Config{Threads: 3}, engine.Config{Seats: 8, Budget: 8}},
				{cpu.Config{Threads: 2, Context: 96, Sequences: 1}, engine.Config{Seats: 6, Budget: 33}},
			} {
				r, err := cpu.Open(path, test.cpu)
				if err != nil {
					t.Fatal(err)
				}
				got, stats := generateAll(t, r, tok, test.engine)
				preempted += stats.Preemptions
				if err := r.Close(); err != nil {
					t.Error(err)
				}
				if i == 0 {
					want = got
				} else if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%+v, %+v (-alone +now):\n%s", test.cpu, test.engine, diff)
				}
			}
			if preempted == 0 {
				t.Error("nobody was preempted: the test does not test what it says")
			}
		})
	}
}

// generateAll runs ten requests at once, every other one sampled, and returns each one's choices.
func generateAll(t *testing.T, r *cpu.Runner, tok *tokenizer.Tokenizer, cfg engine.Config) ([][]sample.Choice, engine.Stats) {
	t.Helper()
	e, err := engine.New(r, tok, cfg)
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
