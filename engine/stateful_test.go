package engine_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/infer/cpu"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/sample"
	"github.com/rouse-dev/rouse/engine/tokenizer"
	"github.com/rouse-dev/rouse/engine/worker"
)

// statefuls are requests of every kind to a model that is Stateful, with common beginnings and with repetitions to guess from.
func statefuls() []engine.Request {
	seed := int64(5)
	hot := sample.Params{Temperature: 1, Seed: &seed, Logprobs: true, Top: 2}
	return []engine.Request{
		{Prompt: history(0)[:70], MaxTokens: 12, IgnoreEnd: true, N: 3, Sampling: hot},
		{Prompt: history(0)[:70], MaxTokens: 30, IgnoreEnd: true, Sampling: sample.Params{LogitBias: map[int32]float32{7: 100}}},
		{Prompt: history(0)[:64], MaxTokens: 12, IgnoreEnd: true, Sampling: hot},
		{Prompt: history(1)[:20], MaxTokens: 5, IgnoreEnd: true, ScorePrompt: true, Sampling: hot, N: 2},
		{Prompt: history(2)[:40], Embed: engine.PoolMean},
		{Prompt: history(3)[:50], MaxTokens: 20, IgnoreEnd: true, Resume: [][]int32{{5, 6, 7}}, Sampling: hot},
		{Prompt: history(4)[:5], MaxTokens: 80, IgnoreEnd: true, Sampling: hot, Priority: -1, Tenant: "a"},
		{Prompt: history(5)[:5], MaxTokens: 80, IgnoreEnd: true, Sampling: hot, Tenant: "a"},
	}
}

// TestStatefulModel checks that a sequence of a model with a state has the same events, to the last bit, whatever the schedule.
// It runs beside others, in chunks, after preemptions and sleeps, and where guesses and a prefix cache are asked for.
func TestStatefulModel(t *testing.T) {
	path := infertest.File(t, infertest.Spec{Arch: "qwen35"})
	model := [32]byte{1}
	alone := &talk{t: t, path: path, cfg: engine.Config{Sync: true, Seats: 1, Budget: 300}}
	alone.begin()
	want := all(t, alone.e, statefuls())
	alone.end()
	for name, test := range map[string]struct {
		launch worker.Launch
		load   worker.Load
		cfg    engine.Config
	}{
		"together":      {},
		"chunks":        {cfg: engine.Config{Budget: 7, Seats: 7}},
		"few at once":   {cfg: engine.Config{Budget: 30, Seats: 2}},
		"little memory": {load: worker.Load{Context: 128, Sequences: 1}, cfg: engine.Config{Budget: 40, Seats: 6}},
		"guesses, sync": {load: worker.Load{Context: 128, Sequences: 2}, cfg: engine.Config{Draft: 4, Sync: true}},
		"guesses":       {cfg: engine.Config{Draft: 4, Keep: engine.Keep{Memory: 1 << 20, Dir: t.TempDir(), Limit: 1 << 20, Model: &model}}},
		"in a process":  {launch: worker.Process{}.Launch},
	} {
		t.Run(name, func(t *testing.T) {
			k := &talk{t: t, path: path, launch: test.launch, load: test.load, cfg: test.cfg}
			k.begin()
			defer k.end()
			for level := range 3 {
				if level > 0 {
					k.sleep(level)
				}
				if diff := cmp.Diff(want, all(t, k.e, statefuls())); diff != "" {
					t.Fatalf("after sleep %d (-alone +now):\n%s", level, diff)
				}
			}
			stats := settled(t, k.e)
			if test.load.Sequences == 1 && stats.Preemptions == 0 {
				t.Error("nobody was preempted: the test does not test what it says")
			}
			if stats.PrefixFound+stats.Drafted+stats.BlocksCached+stats.BlocksUsed+stats.Recalled > 0 || stats.KeptBytes > 0 {
				t.Errorf("something was found, guessed or kept: %+v", stats)
			}
		})
	}
}

// watched remembers the highest number of a state.
type watched struct {
	*cpu.Runner
	most int32
}

func (w *watched) Forward(ctx context.Context, b *infer.Batch) (infer.Result, error) {
	for i := range b.Items {
		w.most = max(w.most, b.Items[i].State)
	}
	return w.Runner.Forward(ctx, b)
}

// TestStatesAreFew checks that there are no more states than seats, also where sequences are preempted.
func TestStatesAreFew(t *testing.T) {
	f := infertest.Open(t, infertest.Spec{Arch: "qwen35"})
	tok, err := tokenizer.FromGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	r, err := cpu.New(f, cpu.Config{Threads: 1, Context: 128, Sequences: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w := &watched{Runner: r}
	e, err := infertest.Engine(w, tok, engine.Config{Budget: 40, Seats: 3})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	all(t, e, statefuls())
	stats := settled(t, e)
	cancel()
	if err := <-done; err != nil || stats.Preemptions == 0 || w.most > 2 {
		t.Errorf("%v, %d preemptions, the highest state is %d of 3 seats", err, stats.Preemptions, w.most)
	}
}

// TestStatefulMoves moves a generation of such a model to another engine, after each of the first tokens.
func TestStatefulMoves(t *testing.T) {
	path := infertest.File(t, infertest.Spec{Arch: "qwen35"})
	model := [32]byte{1}
	cfg := engine.Config{Keep: engine.Keep{Dir: t.TempDir(), Limit: 64 << 20, Model: &model}}
	from, to := &talk{t: t, path: path, cfg: cfg}, &talk{t: t, path: path, cfg: cfg}
	from.begin()
	defer from.end()
	to.begin()
	defer to.end()
	moved := 0
	for n := 1; n <= 8; n++ {
		r := engine.Request{Prompt: history(n), MaxTokens: 60, IgnoreEnd: true}
		begun, cut := from.part(r, n)
		want, _ := from.part(r, 60)
		if !cut {
			continue
		}
		moved++
		r.Resume = [][]int32{begun}
		rest, _ := to.part(r, 60)
		if diff := cmp.Diff(fmt.Sprint(want), fmt.Sprint(rest)); diff != "" {
			t.Fatalf("moved behind token %d (-whole +moved):\n%s", len(begun), diff)
		}
	}
	if moved < 3 {
		t.Errorf("%d of 8 answers were moved: the others had ended", moved)
	}
}
