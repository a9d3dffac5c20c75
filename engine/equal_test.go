package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/constrain"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/lora"
	"github.com/rouse-dev/rouse/engine/model"
	"github.com/rouse-dev/rouse/engine/sample"
	"github.com/rouse-dev/rouse/engine/worker"
)

// TestMain is also the worker's process of these tests.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "engine" && os.Args[2] == "worker" {
		if err := worker.Main(context.Background(), worker.Build(nil)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// setup is one way to run the same requests.
type setup struct {
	sim    infer.SimulatedConfig
	engine engine.Config
	worker worker.Config // Launch nil: in process
	launch func(worker.Launch) worker.Launch
}

// load returns the simulated device of all setups, with the memory and speed of s.
func (s setup) load(t testing.TB) worker.Load {
	t.Helper()
	c := s.sim
	c.Vocab, c.Context, c.End, c.EndEvery = vocabSize, 256, eos, 60
	options, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return worker.Load{Device: "sim", Options: options}
}

// inside launches simulated devices in this process. Adapters are names only.
func inside() worker.Launch {
	b := worker.Build(nil)
	b.Adapter = func(path string, _ model.Config) (*lora.Adapter, error) { return &lora.Adapter{Name: path}, nil }
	return worker.InProcess(b)
}

// open runs an engine until the test ends.
func open(t testing.TB, s setup) *engine.Engine {
	t.Helper()
	cfg := s.worker
	cfg.Load = s.load(t)
	if cfg.Launch == nil {
		cfg.Launch = inside()
	}
	if s.launch != nil {
		cfg.Launch = s.launch(cfg.Launch)
	}
	w := worker.New(cfg)
	info, err := w.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Over(w, info, byteTokenizer(t), s.engine)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return e
}

// even is a grammar: tokens with an even number, at least five of them, and then an end token is allowed.
type even struct{}

func (even) Matcher() constrain.Matcher { return &evenMatcher{} }

type evenMatcher struct{ n int }

func (m *evenMatcher) Mask(dst []uint64) {
	for i := range dst {
		dst[i] = 0x5555555555555555
	}
	if m.n < 5 {
		for t := vocabSize - 2; t < 64*len(dst); t++ {
			dst[t>>6] &^= 1 << (t & 63)
		}
		return
	}
	clear(dst[4:])
	dst[eos>>6] |= 1 << (eos & 63)
}

func (m *evenMatcher) Accept(token int32) error {
	if token%2 != 0 && token != eos {
		return constrain.ErrForbidden
	}
	m.n++
	return nil
}

func (m *evenMatcher) Done() bool { return m.n == 9 }

// requests returns requests of every kind. Some have a common beginning.
func requests() []engine.Request {
	seed := int64(5)
	long := prompt("the same beginning of several requests, which is longer than a block or two of them")
	text := func(i int) []int32 { return append(slices.Clone(long), prompt(fmt.Sprint("request ", i))...) }
	repeats := prompt("abcabcabcabcabcabcabcabcabcabc")
	return []engine.Request{
		{Prompt: text(0), MaxTokens: 30},
		{Prompt: text(1), MaxTokens: 30, IgnoreEnd: true, Sampling: sample.Params{Temperature: 1, Seed: &seed}},
		{Prompt: text(0), MaxTokens: 25, N: 3, IgnoreEnd: true, Sampling: sample.Params{Temperature: 3, TopK: 40, Seed: &seed, RepetitionPenalty: 1.2, FrequencyPenalty: 0.5}},
		{Prompt: long, MaxTokens: 20, MinTokens: 10, Sampling: sample.Params{Logprobs: true, Top: 3}},
		{Prompt: prompt("score me"), MaxTokens: 5, ScorePrompt: true, Sampling: sample.Params{Logprobs: true, Top: 2}, N: 2},
		{Prompt: prompt("only the prompt"), ScorePrompt: true, NoTokens: true},
		{Prompt: text(2), MaxTokens: 20, Grammar: even{}, IgnoreEnd: true, Sampling: sample.Params{Temperature: 2, Seed: &seed}},
		{Prompt: text(3), MaxTokens: 8, Grammar: even{}},
		{Prompt: repeats, MaxTokens: 40, IgnoreEnd: true, Sampling: sample.Params{LogitBias: map[int32]float32{'a': 100}}},
		{Prompt: prompt("stop"), MaxTokens: 60, IgnoreEnd: true, Stop: []string{"\x12", "\x31", "B"}},
		{Prompt: text(4), Embed: engine.PoolMean},
		{Prompt: text(4), Embed: engine.PoolLast},
		{Prompt: text(5), Embed: engine.PoolFirst},
		{Prompt: []int32{bos}, MaxTokens: 3, IgnoreEnd: true},
		{Prompt: text(6), MaxTokens: 50, IgnoreEnd: true, Priority: -1, Tenant: "a", Salt: "b"},
	}
}

// all runs the requests at once and returns the events of each sequence.
func all(t testing.TB, e *engine.Engine, requests []engine.Request) [][]engine.Event {
	t.Helper()
	s, err := e.Add(t.Context(), requests...)
	if err != nil {
		t.Fatal(err)
	}
	var out [][]engine.Event
	for ev, err := range s.All() {
		if err != nil {
			t.Fatal(err)
		}
		for len(out) <= ev.Index {
			out = append(out, nil)
		}
		out[ev.Index] = append(out[ev.Index], ev)
	}
	return out
}

// TestSameWhatever runs the same requests in every setup and checks that all events are the same.
func TestSameWhatever(t *testing.T) {
	want := all(t, open(t, setup{engine: engine.Config{Sync: true, Seats: 1, NoPrefix: true}}), requests())
	if len(want) != 18 || len(want[4]) == 0 || len(want[4][0].Prompt) != 0 || len(want[6][0].Prompt) != len(prompt("score me"))-1 {
		t.Fatalf("the answers are not what was asked for: %d of them", len(want))
	}
	small := infer.SimulatedConfig{Blocks: 20} // just enough for the longest: 20 blocks of 16
	for name, s := range map[string]setup{
		"sync":                    {engine: engine.Config{Sync: true}},
		"async":                   {},
		"async, no prefix cache":  {engine: engine.Config{NoPrefix: true}},
		"async, chunks of 5":      {engine: engine.Config{Budget: 5, Seats: 5}},
		"async, little memory":    {sim: small},
		"sync, little memory":     {sim: small, engine: engine.Config{Sync: true, NoPrefix: true}},
		"async, chunks, memory":   {sim: small, engine: engine.Config{Budget: 17, Seats: 9}},
		"small blocks":            {sim: infer.SimulatedConfig{Blocks: 90, BlockSize: 3}},
		"guesses":                 {engine: engine.Config{Draft: 6}},
		"guesses, memory, chunks": {sim: small, engine: engine.Config{Draft: 4, Budget: 24, Seats: 8}},
		"process":                 {worker: worker.Config{Launch: worker.Process{}.Launch}},
		"process, sync, memory":   {sim: small, worker: worker.Config{Launch: worker.Process{}.Launch}, engine: engine.Config{Sync: true}},
		"two processes":           {worker: worker.Config{Launch: worker.Group(2, worker.Process{})}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := open(t, s)
			for round := range 2 { // the second one finds the first one's prefixes
				if diff := cmp.Diff(want, all(t, e, requests()), cmpopts.IgnoreFields(engine.Event{}, "Cached")); diff != "" {
					t.Errorf("round %d (-alone +now):\n%s", round, diff)
				}
			}
			stats := settled(t, e)
			if s.sim.Blocks == 20 && stats.Preemptions == 0 {
				t.Error("nobody was preempted: the test does not test what it says")
			}
			if s.engine.Draft > 0 && stats.Accepted == 0 {
				t.Error("nothing was guessed right: the test does not test what it says")
			}
			if !s.engine.NoPrefix && s.sim.Blocks == 0 && stats.PrefixFound == 0 {
				t.Error("nothing was found in the prefix cache: the test does not test what it says")
			}
			if stats.BlocksUsed != 0 || stats.Open != 0 || stats.Restarts != 0 {
				t.Errorf("afterwards: %+v", stats)
			}
		})
	}
}

// idle waits at most some seconds until an engine has nothing left to do, and puts it to sleep.
func idle(t testing.TB, e *engine.Engine) engine.Stats {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := e.Sleep(ctx, 1, engine.SleepWait); err != nil {
		t.Fatal(err)
	}
	return e.Stats()
}
