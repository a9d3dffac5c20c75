package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/model"
	"github.com/rouse-dev/rouse/engine/tokenizer"
	"github.com/rouse-dev/rouse/engine/worker"
)

// watching is an engine of a model that reads images.
type watching struct {
	*engine.Engine
	t *testing.T
}

var watcher = infertest.Spec{Arch: "gemma3", Images: true, Untied: true} // else it repeats its last token

// watch starts an engine until the test ends.
func watch(t *testing.T, load worker.Load, launch worker.Launch, cfg engine.Config) *watching {
	t.Helper()
	tok, err := tokenizer.FromGGUF(infertest.Open(t, watcher))
	if err != nil {
		t.Fatal(err)
	}
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
	done := make(chan error, 1) // Run sends its end
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &watching{e, t}
}

// ask returns the tokens of each request's first text, and how many tokens of its prompt were cached.
func (w *watching) ask(requests ...engine.Request) (made [][]int32, cached []int) {
	w.t.Helper()
	s, err := w.Add(w.t.Context(), requests...)
	if err != nil {
		w.t.Fatal(err)
	}
	made, cached = make([][]int32, len(requests)), make([]int, len(requests))
	for ev, err := range s.All() {
		if err != nil {
			w.t.Fatal(err)
		}
		made[ev.Index] = append(made[ev.Index], ev.Token)
		cached[ev.Index] += ev.Cached
	}
	return made, cached
}

// seeing returns a request for 20 tokens about images, of which the last ends right before the last token.
func seeing(pictures ...int) engine.Request {
	r := engine.Request{Prompt: infertest.Tokens(50, 380, 3), MaxTokens: 20, IgnoreEnd: true}
	for i, p := range pictures {
		r.Images = append(r.Images, infer.Image{At: 45 - 20*(len(pictures)-1-i), Pixels: infertest.Picture(p)})
	}
	return r
}

// TestImagesWhateverTheSchedule: greedy tokens after images are the reference's, whatever the steps, the memory and the worker are. So
// they are beside texts, over preemptions and sleeps, and where a text goes on from some of them.
func TestImagesWhateverTheSchedule(t *testing.T) {
	path, projector := infertest.File(t, watcher), infertest.Projector(t, "f16")
	requests := []engine.Request{seeing(1, 2), seeing(), seeing(2, 1), seeing(1), seeing(1, 2), seeing(3, 4)}
	want := referenceTokens(t, requests)
	preempted := 0
	for name, c := range map[string]struct {
		load   worker.Load
		launch worker.Launch
		cfg    engine.Config
	}{
		"alone":         {worker.Load{Threads: 1}, nil, engine.Config{Seats: 1, Sync: true, NoPrefix: true}},
		"small steps":   {worker.Load{Threads: 3}, nil, engine.Config{Seats: 3, Budget: 3}},
		"little memory": {worker.Load{Threads: 2, Context: 144, Sequences: 1}, nil, engine.Config{Seats: 6, Budget: 33}},
		"guesses":       {worker.Load{Threads: 2, Context: 144, Sequences: 2}, nil, engine.Config{Seats: 6, Budget: 64, Draft: 4}},
		"process":       {worker.Load{Threads: 2}, worker.Process{}.Launch, engine.Config{}},
	} {
		t.Run(name, func(t *testing.T) {
			c.load.Model, c.load.Projector = path, projector
			w := watch(t, c.load, c.launch, c.cfg)
			got, _ := w.ask(requests...)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("other tokens (-reference +got):\n%s", diff)
			}
			rest := requests[0]
			rest.Resume = [][]int32{want[0][:5]}
			if got, _ := w.ask(rest); !slices.Equal(got[0], want[0]) {
				t.Errorf("gone on from 5 tokens: %v, want %v", got[0], want[0])
			}
			for _, level := range []int{1, 2} {
				if err := w.Sleep(t.Context(), level, engine.SleepWait); err != nil {
					t.Fatal(err)
				}
				if _, err := w.Wake(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got, _ := w.ask(requests[2]); !slices.Equal(got[0], want[2]) {
					t.Errorf("after a sleep of level %d: %v, want %v", level, got[0], want[2])
				}
			}
			preempted += w.Stats().Preemptions
		})
	}
	if preempted == 0 {
		t.Error("nobody was preempted: the test does not test what it says")
	}
}

func referenceTokens(t *testing.T, requests []engine.Request) (want [][]int32) {
	t.Helper()
	m, err := model.Load(infertest.Open(t, watcher))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requests {
		var seen []infertest.Seen
		for _, x := range r.Images {
			picture := slices.IndexFunc([]int{0, 1, 2, 3, 4}, func(i int) bool { return slices.Equal(infertest.Picture(i), x.Pixels) })
			seen = append(seen, infertest.See(t, "f16", picture, x.At))
		}
		tokens := slices.Clone(r.Prompt)
		for range r.MaxTokens {
			all := infertest.Reference(m, tokens, seen...)
			last := all[len(all)-1]
			tokens = append(tokens, int32(slices.Index(last, slices.Max(last))))
		}
		want = append(want, tokens[len(r.Prompt):])
	}
	return want
}

// TestImagesInThePrefixCache: prompts of the same tokens share blocks only if all their images are the same, and at the same
// places, also after a sleep that kept them.
func TestImagesInThePrefixCache(t *testing.T) {
	w := watch(t, worker.Load{Model: infertest.File(t, watcher), Projector: infertest.Projector(t, "f16"), Threads: 1}, nil, engine.Config{Keep: engine.Keep{Memory: 1 << 20}})
	moved := seeing(1)
	moved.Images[0].At--
	other := seeing(1)
	other.Images[0].Pixels = slices.Clone(other.Images[0].Pixels)
	other.Images[0].Pixels[0] ^= 1
	salted := seeing(1)
	salted.Salt = "of another"
	first := map[string][]int32{}
	for _, c := range []struct {
		name    string
		request engine.Request
		cached  int
	}{
		{"an image", seeing(1), 0}, {"the image", seeing(1), 48}, {"another image", seeing(2), 0}, {"a pixel is another", other, 0}, {"elsewhere", moved, 0},
		{"a text", seeing(), 0}, {"the text", seeing(), 48}, {"two images", seeing(1, 2), 0}, {"the other way round", seeing(2, 1), 0}, {"two images", seeing(1, 2), 48},
		{"another salt", salted, 0}, {"asleep", engine.Request{}, 0}, {"the image", seeing(1), 48}, {"the text", seeing(), 48},
	} {
		if c.name == "asleep" {
			if err := w.Sleep(t.Context(), 1, engine.SleepWait); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Wake(t.Context()); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, cached := w.ask(c.request)
		if cached[0] != c.cached {
			t.Errorf("%s: %d tokens from the cache, want %d", c.name, cached[0], c.cached)
		}
		if was, again := first[c.name]; again && !slices.Equal(was, got[0]) {
			t.Errorf("%s: %v, then %v", c.name, was, got[0])
		}
		first[c.name] = got[0]
	}
	if slices.Equal(first["the image"], first["another image"]) || slices.Equal(first["the image"], first["the text"]) {
		t.Errorf("two images have the same answer: the test does not test what it says: %v", first)
	}
}

func TestImagesAreRefused(t *testing.T) {
	path := infertest.File(t, watcher)
	without := watch(t, worker.Load{Model: path, Threads: 1}, nil, engine.Config{})
	with := watch(t, worker.Load{Model: path, Projector: infertest.Projector(t, "f16"), Threads: 1}, nil, engine.Config{})
	scored, last, many, vector := seeing(1), seeing(1), seeing(1), seeing(1)
	scored.ScorePrompt = true
	last.Images[0].At = len(last.Prompt) - infertest.ImageTokens
	many.N = 65
	vector.Embed, vector.MaxTokens = engine.PoolLast, 0
	twice := seeing(1, 2)
	twice.Images[1].At = 26
	for _, c := range []struct {
		w       *watching
		request engine.Request
		want    string
	}{
		{without, seeing(1), "reads no images"}, {with, scored, "log probabilities of a prompt with images"}, {with, last, "has no place"},
		{with, twice, "has no place"}, {with, many, "1 images in each of 65 texts: want at most 64"}, {with, vector, "vectors of images"},
	} {
		var known *engine.RequestError
		if _, err := c.w.Add(t.Context(), c.request); !errors.As(err, &known) || !strings.Contains(known.Message, c.want) {
			t.Errorf("added: %v, want %q", err, c.want)
		}
	}
	// All images that wait go to the worker in one frame.
	crowd := seeing(1)
	crowd.N = 64
	crowd.Sampling.Temperature = 1
	s, err := with.Add(t.Context(), crowd)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := with.Add(t.Context(), seeing(2)); !errors.Is(err, engine.ErrFull) {
		t.Errorf("65 images: %v, want %v", err, engine.ErrFull)
	}
	for _, err := range s.All() {
		if err != nil {
			t.Fatal(err)
		}
	}
	with.ask(seeing(2))
}
