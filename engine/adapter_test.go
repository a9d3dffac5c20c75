package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/worker"
)

// TestAdapters loads, mixes and unloads adapters while requests run. An adapter's text depends on its file.
func TestAdapters(t *testing.T) {
	e := open(t, setup{sim: infer.SimulatedConfig{Step: time.Millisecond}, worker: worker.Config{Discard: true}})
	long := prompt("a prompt that is longer than a block, so that the prefix cache has something to mix up")
	ask := func(adapter string) engine.Request {
		return engine.Request{Prompt: long, MaxTokens: 12, IgnoreEnd: true, Adapter: adapter}
	}
	if _, err := e.Add(t.Context(), ask("one")); !refused(err, "model") {
		t.Errorf("an adapter that is not loaded: %v", err)
	}
	for name, path := range map[string]string{"one": "file 1", "two": "file 2"} {
		if err := e.LoadAdapter(t.Context(), name, path); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.LoadAdapter(t.Context(), "one", "file 3"); !errors.Is(err, engine.ErrAdapterLoaded) {
		t.Errorf("a name that is taken: %v", err)
	}
	if diff := cmp.Diff([]engine.Adapter{{Name: "one", Path: "file 1"}, {Name: "two", Path: "file 2"}}, e.Adapters()); diff != "" {
		t.Errorf("adapters (-want +got):\n%s", diff)
	}
	want := all(t, e, []engine.Request{ask(""), ask("one"), ask("two")})
	for i, j := range []int{1, 2, 0} {
		if cmp.Equal(want[i], want[j], cmpopts.IgnoreFields(engine.Event{}, "Index", "Cached")) {
			t.Errorf("request %d says what request %d says", i, j)
		}
	}

	// Unloading waits for running requests, and refuses others meanwhile.
	s, err := e.Add(t.Context(), engine.Request{Prompt: long, MaxTokens: 60, IgnoreEnd: true, Adapter: "two"})
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if err := e.UnloadAdapter(short, "two"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("unload an adapter in use, for a moment: %v", err)
	}
	if len(e.Adapters()) != 2 {
		t.Error("an unloading that was given up unloads")
	}
	unloaded := make(chan error, 1)
	go func() { unloaded <- e.UnloadAdapter(t.Context(), "two") }()
	for len(e.Adapters()) == 2 {
		time.Sleep(time.Millisecond) // the other goroutine's turn
	}
	if _, err := e.Add(t.Context(), ask("two")); !refused(err, "model") {
		t.Errorf("an adapter that is about to go: %v", err)
	}
	if texts, err := read(s); err != nil || !strings.HasSuffix(texts[0], "|length") {
		t.Errorf("who used it: %q, %v", texts, err)
	}
	if err := <-unloaded; err != nil {
		t.Error(err)
	}
	if err := e.UnloadAdapter(t.Context(), "two"); !errors.Is(err, engine.ErrNoAdapter) {
		t.Errorf("unloaded twice: %v", err)
	}

	// A deep sleep keeps the others. Another file of the same name is another adapter.
	if err := e.Sleep(t.Context(), 2, engine.SleepWait); err != nil {
		t.Fatal(err)
	}
	if err := e.LoadAdapter(t.Context(), "two", "file 3"); !errors.Is(err, engine.ErrAsleep) {
		t.Errorf("load while asleep: %v", err)
	}
	if _, err := e.Wake(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := e.LoadAdapter(t.Context(), "two", "file 3"); err != nil {
		t.Fatal(err)
	}
	got := all(t, e, []engine.Request{ask(""), ask("one"), ask("two")})
	if diff := cmp.Diff(want[:2], got[:2], cmpopts.IgnoreFields(engine.Event{}, "Cached")); diff != "" {
		t.Errorf("after a sleep (-before +after):\n%s", diff)
	}
	if cmp.Equal(want[2], got[2], cmpopts.IgnoreFields(engine.Event{}, "Cached")) {
		t.Error("another file says the same")
	}
}

func refused(err error, param string) bool {
	var bad *engine.RequestError
	return errors.As(err, &bad) && bad.Param == param
}

// TestEmbedRefused checks the options that exclude a vector.
func TestEmbedRefused(t *testing.T) {
	e := open(t, setup{})
	for name, r := range map[string]engine.Request{
		"an unknown pooling": {Prompt: prompt("x"), Embed: "median"},
		"a text too":         {Prompt: prompt("x"), Embed: engine.PoolMean, MaxTokens: 1},
		"several":            {Prompt: prompt("x"), Embed: engine.PoolMean, N: 2},
		"nothing":            {Embed: engine.PoolMean},
		"too long":           {Prompt: make([]int32, 257), Embed: engine.PoolMean},
	} {
		if _, err := e.Add(t.Context(), r); !refused(err, "input") && !refused(err, "pooling") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := all(t, e, []engine.Request{{Prompt: make([]int32, 256), Embed: engine.PoolLast}}); len(got[0]) != 1 || len(got[0][0].Embedding) != 1 {
		t.Errorf("a vector of the longest text: %+v", got)
	}
}

// TestMemoryTooSmall checks that a request that does not fit in the whole memory is refused with that reason.
func TestMemoryTooSmall(t *testing.T) {
	e := open(t, setup{sim: infer.SimulatedConfig{Blocks: 4}}) // 64 positions of a context of 256
	if got := e.Context(); got != 64 {
		t.Errorf("the context is %d, the memory holds 64", got)
	}
	if _, err := e.Add(t.Context(), engine.Request{Prompt: make([]int32, 60), MaxTokens: 5}); !refused(err, "prompt") {
		t.Errorf("a request that is too long: %v", err)
	}
	if got := all(t, e, []engine.Request{{Prompt: make([]int32, 60), MaxTokens: 4, IgnoreEnd: true, N: 2}}); len(got[0]) != 4 || len(got[1]) != 4 {
		t.Errorf("a request that just fits: %+v", got)
	}
}
