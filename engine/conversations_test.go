package engine_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/sample"
	"github.com/rouse-dev/rouse/engine/tokenizer"
	"github.com/rouse-dev/rouse/engine/worker"
)

// talk is an engine over a real forward pass, and a conversation with it.
type talk struct {
	t      *testing.T
	path   string
	launch worker.Launch
	load   worker.Load // what to set, besides the model
	cfg    engine.Config
	w      *worker.Supervisor
	e      *engine.Engine
	stop   func()
}

// begin starts the engine, and stops it first if it runs.
func (k *talk) begin() {
	k.t.Helper()
	k.end()
	f := infertest.Open(k.t, infertest.Spec{})
	tok, err := tokenizer.FromGGUF(f)
	if err != nil {
		k.t.Fatal(err)
	}
	launch := k.launch
	if launch == nil {
		launch = worker.InProcess(worker.Build(nil))
	}
	load := k.load
	if load.Model, load.Threads = k.path, 1; load.Sequences == 0 {
		load.Sequences = 2
	}
	k.w = worker.New(worker.Config{Launch: launch, Load: load, Discard: k.launch != nil})
	info, err := k.w.Start(k.t.Context())
	if err != nil {
		k.t.Fatal(err)
	}
	if k.e, err = engine.Over(k.w, info, tok, k.cfg); err != nil {
		k.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(k.t.Context())
	done := make(chan error, 1)
	go func() { done <- k.e.Run(ctx) }()
	k.stop = func() {
		cancel()
		if err := <-done; err != nil {
			k.t.Error(err)
		}
	}
}

func (k *talk) end() {
	if k.stop != nil {
		k.stop()
		k.stop = nil
	}
}

// history returns the tokens of a conversation so far.
func history(salt int) []int32 {
	h := make([]int32, 100)
	for i := range h {
		h[i] = int32(3 + (i*i*7+i+salt*13)%380)
	}
	return h
}

// turn generates greedily, and returns the tokens and the number of cached prompt tokens.
func (k *talk) turn(r engine.Request) (made []sample.Choice, cached int) {
	k.t.Helper()
	r.MaxTokens, r.IgnoreEnd, r.Sampling.Logprobs = 6, true, true
	s, err := k.e.Add(k.t.Context(), r)
	if err != nil {
		k.t.Fatal(err)
	}
	for ev, err := range s.All() {
		if err != nil {
			k.t.Fatal(err)
		}
		made, cached = append(made, ev.Choice), cached+ev.Cached
	}
	return made, cached
}

// sleep sleeps and wakes.
func (k *talk) sleep(level int) {
	k.t.Helper()
	if err := k.e.Sleep(k.t.Context(), level, engine.SleepWait); err != nil {
		k.t.Fatal(err)
	}
	if _, err := k.e.Wake(k.t.Context()); err != nil {
		k.t.Fatal(err)
	}
}

// whole is the number of a history's tokens that can be in the cache: 6 blocks of 16 tokens.
const whole = 96

// TestConversationsOutliveSleep checks that a conversation is found again after a sleep of each level and after a
// start if it is to be kept, and only then. The next answer is the same in all cases, to the last bit.
func TestConversationsOutliveSleep(t *testing.T) {
	apart := worker.Process{}.Launch
	path := infertest.File(t, infertest.Spec{})
	asked := engine.Request{Prompt: history(1)}
	var want []sample.Choice
	for _, test := range []struct {
		name                 string
		launch               worker.Launch
		memory, limit        int64
		level1, level2, anew int // tokens found after a sleep, and after a start
		noPrefix             bool
	}{
		{name: "nothing is kept"},
		{name: "memory", memory: 1 << 20, level1: whole},
		{name: "memory, in a process", launch: apart, memory: 1 << 20, level1: whole},
		{name: "memory, in two processes", launch: worker.Group(2, worker.Process{}), memory: 1 << 20, limit: 1 << 20, level1: whole},
		{name: "memory for two blocks", memory: 2*8192 + 100, level1: 32},
		{name: "files", limit: 1 << 20, level1: 0, level2: whole, anew: whole},
		{name: "memory and files", memory: 1 << 20, limit: 1 << 20, level1: whole, level2: whole, anew: whole},
		{name: "memory and files, in a process", launch: apart, memory: 1 << 20, limit: 1 << 20, level1: whole, level2: whole, anew: whole},
		{name: "files too small for one block", limit: 8000},
		{name: "files for three blocks", limit: 4096 + 3*8192, level2: 48, anew: 48},
		{name: "no prefix cache", memory: 1 << 20, limit: 1 << 20, noPrefix: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			model := [32]byte{1}
			k := &talk{t: t, path: path, launch: test.launch, cfg: engine.Config{
				NoPrefix: test.noPrefix, Keep: engine.Keep{Memory: test.memory, Dir: t.TempDir(), Limit: test.limit, Model: &model},
			}}
			k.begin()
			defer k.end()
			first, _ := k.turn(asked)
			if want == nil {
				want = first
			}
			expect := func(what string, tokens int) {
				t.Helper()
				made, cached := k.turn(asked)
				if diff := cmp.Diff(want, made); diff != "" {
					t.Errorf("%s (-never slept +now):\n%s", what, diff)
				}
				if cached != tokens {
					t.Errorf("%s: %d tokens were there, want %d", what, cached, tokens)
				}
			}
			k.sleep(1)
			expect("after level 1", test.level1)
			k.sleep(2)
			expect("after level 2", test.level2)
			if err := k.e.Sleep(t.Context(), 1, engine.SleepWait); err != nil {
				t.Fatal(err)
			}
			if got := k.e.Stats().KeptBytes; got > max(test.memory, 0) || (got > 0) != (test.level1 > 0) {
				t.Errorf("asleep at level 1 it keeps %d bytes, may keep %d", got, test.memory)
			}
			k.begin() // stopped asleep
			expect("after a start", test.anew)
			k.begin() // stopped awake
			expect("after another start", test.anew)
		})
	}
}

// TestConversationsAreNotOthers checks that a prompt with another salt or for another model finds no blocks of the first.
func TestConversationsAreNotOthers(t *testing.T) {
	model, another := [32]byte{1}, [32]byte{2}
	path := infertest.File(t, infertest.Spec{})
	for name, sleep := range map[string]func(*talk){
		"level 1": func(k *talk) { k.sleep(1) }, "level 2": func(k *talk) { k.sleep(2) }, "start": (*talk).begin,
	} {
		t.Run(name, func(t *testing.T) {
			k := &talk{t: t, path: path, cfg: engine.Config{Keep: engine.Keep{Memory: 1 << 20, Dir: t.TempDir(), Limit: 1 << 20, Model: &model}}}
			k.begin()
			defer k.end()
			mine := engine.Request{Prompt: history(1), Salt: "a"}
			k.turn(mine)
			sleep(k)
			for _, salt := range []string{"", "b"} {
				if _, cached := k.turn(engine.Request{Prompt: history(1), Salt: salt}); cached > 0 {
					t.Errorf("salt %q finds %d tokens of salt a", salt, cached)
				}
			}
			if _, cached := k.turn(mine); cached != whole {
				t.Errorf("salt a finds %d tokens of its own, want %d", cached, whole)
			}
			k.cfg.Keep.Model = &another
			k.begin()
			if _, cached := k.turn(mine); cached > 0 {
				t.Errorf("another model finds %d tokens", cached)
			}
		})
	}
}

// TestFilesRemovedMeanwhile checks that blocks of files that another process removed are written again.
func TestFilesRemovedMeanwhile(t *testing.T) {
	model := [32]byte{1}
	k := &talk{t: t, path: infertest.File(t, infertest.Spec{}), cfg: engine.Config{Keep: engine.Keep{Dir: t.TempDir(), Limit: 1 << 20, Model: &model}}}
	k.begin()
	defer k.end()
	want, _ := k.turn(engine.Request{Prompt: history(1)})
	for _, found := range []int{0, whole} {
		k.sleep(2)
		if found == 0 {
			for _, f := range files(t, k.cfg.Keep.Dir) {
				if err := os.Remove(f); err != nil {
					t.Fatal(err)
				}
			}
		}
		made, cached := k.turn(engine.Request{Prompt: history(1)})
		if diff := cmp.Diff(want, made); diff != "" || cached != found {
			t.Errorf("%d tokens are there, want %d (-before +now):\n%s", cached, found, diff)
		}
	}
}

// files lists the files of a folder of conversations.
func files(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "conversations", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestFailedWakeKeepsNothing checks that a failed wake drops the blocks that the sleep kept.
func TestFailedWakeKeepsNothing(t *testing.T) {
	m := newEcho(8, 4, 32)
	e := start(t, m, engine.Config{Keep: engine.Keep{Memory: 1 << 20}})
	long := engine.Request{Prompt: prompt("say it again"), MaxTokens: 12}
	turn := func() (text string, cached int) {
		t.Helper()
		s, err := e.Add(t.Context(), long)
		if err != nil {
			t.Fatal(err)
		}
		for ev, err := range s.All() {
			if err != nil {
				t.Fatal(err)
			}
			text, cached = text+ev.Text, cached+ev.Cached
		}
		return text, cached
	}
	want, _ := turn()
	for _, failure := range []error{nil, errors.New("the file is gone"), nil} {
		if err := e.Sleep(t.Context(), 1, engine.SleepWait); err != nil {
			t.Fatal(err)
		}
		if failure != nil {
			m.failNext(failure)
			if _, err := e.Wake(t.Context()); err == nil {
				t.Fatal("the wake did not fail")
			}
		}
		if _, err := e.Wake(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, cached := turn(); got != want || cached > 0 != (failure == nil) {
			t.Errorf("after a wake with the failure %v: %q, %d tokens were there; want %q", failure, got, cached, want)
		}
	}
}

// TestDigestComesLater checks that files are used once the model's digest is computed, and that a digest that fails
// costs nothing else.
func TestDigestComesLater(t *testing.T) {
	release := make(chan struct{})
	k := &talk{t: t, path: infertest.File(t, infertest.Spec{}), cfg: engine.Config{Keep: engine.Keep{
		Dir: t.TempDir(), Limit: 1 << 20,
		Digest: func(ctx context.Context) ([32]byte, error) {
			select {
			case <-release:
				return [32]byte{7}, nil
			case <-ctx.Done():
				return [32]byte{}, context.Cause(ctx)
			}
		},
	}}}
	k.begin()
	defer k.end()
	k.turn(engine.Request{Prompt: history(1)})
	k.begin() // stopped before it is there
	if got := files(t, k.cfg.Keep.Dir); len(got) > 0 {
		t.Errorf("without a digest %q are written", got)
	}
	k.turn(engine.Request{Prompt: history(1)})
	close(release)
	for len(files(t, k.cfg.Keep.Dir)) == 0 { // until the digest is there
		k.turn(engine.Request{Prompt: history(1)})
		k.sleep(2)
	}
	k.cfg.Keep.Digest = func(context.Context) ([32]byte, error) { return [32]byte{}, errors.New("no such file") }
	k.begin()
	if _, cached := k.turn(engine.Request{Prompt: history(1)}); cached > 0 {
		t.Errorf("without a digest %d tokens are there", cached)
	}
}

// TestOldestConversationsGo checks that with memory for few blocks the most recently used are kept, and of a
// conversation its beginning.
func TestOldestConversationsGo(t *testing.T) {
	k := &talk{t: t, path: infertest.File(t, infertest.Spec{}), cfg: engine.Config{Keep: engine.Keep{Memory: 8 * 8192}}}
	k.begin()
	defer k.end()
	for i := range 3 {
		k.turn(engine.Request{Prompt: history(i)})
	}
	k.sleep(1)
	var found []int
	for i := range 3 {
		_, cached := k.turn(engine.Request{Prompt: history(2 - i)})
		found = append(found, cached)
	}
	if !slices.Equal(found, []int{whole, 0, 0}) && !slices.Equal(found, []int{whole, 32, 0}) {
		t.Errorf("of the last, the one before and the first %d tokens are there", found)
	}
}
