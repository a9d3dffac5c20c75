package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
	if len(os.Args) > 1 && os.Args[1] == "parent" { // of TestDiesWithParent: it starts a worker, says its number, and waits
		r, err := worker.Process{}.Launch(context.Background())
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(r.PIDs()[0])
		select {}
	}
	os.Exit(m.Run())
}

// simulated returns the load of a simulated device.
func simulated(t testing.TB, c infer.SimulatedConfig) worker.Load {
	t.Helper()
	options, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return worker.Load{Device: "sim", Options: options}
}

// builder makes simulated devices, and adapters from their names only.
func builder() worker.Builder {
	b := worker.Build(nil)
	b.Adapter = func(path string, _ model.Config) (*lora.Adapter, error) {
		if path == "broken" {
			return nil, errors.New("no adapter")
		}
		return &lora.Adapter{Name: path}, nil
	}
	return b
}

// begin starts a supervisor until the test ends.
func begin(t testing.TB, cfg worker.Config) *worker.Supervisor {
	t.Helper()
	s := worker.New(cfg)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// next waits for an event.
func next(t testing.TB, s *worker.Supervisor) worker.Event {
	t.Helper()
	select {
	case e := <-s.Events():
		return e
	case <-time.After(20 * time.Second):
		t.Fatal("nothing happens")
		return worker.Event{}
	}
}

// step queues a batch and waits for its output.
func step(t testing.TB, s *worker.Supervisor, b *worker.Batch) *worker.Output {
	t.Helper()
	s.Queue(b)
	e := next(t, s)
	if e.Output == nil || e.Output.Step != b.Step {
		t.Fatalf("step %d: %+v", b.Step, e)
	}
	return e.Output
}

// run follows one sequence for some tokens, each in a step of its own, from the given step number on.
func run(t testing.TB, s *worker.Supervisor, id uint64, from uint64, prompt []int32, n int, spec string) []int32 {
	t.Helper()
	var made []int32
	for i := range n {
		it := worker.Item{ID: id, Pos: len(prompt) + i - 1, Count: 1, Sample: true}
		if i == 0 {
			it = worker.Item{ID: id, Count: len(prompt), Begin: true, Prompt: len(prompt), Tokens: prompt, Blocks: []int32{4, 2, 7}, Sample: true, Spec: json.RawMessage(spec)}
		}
		out := step(t, s, &worker.Batch{Step: from + uint64(i), Items: []worker.Item{it}})
		if len(out.Items) != 1 || len(out.Items[0].Tokens) != 1 {
			t.Fatalf("step %d: %+v", i, out)
		}
		made = append(made, out.Items[0].Tokens[0].Token)
	}
	return made
}

// twin computes the expected result of run on the device itself.
func twin(t testing.TB, prompt []int32, n int) []int32 {
	t.Helper()
	d, err := infer.NewSimulated(infer.SimulatedConfig{})
	if err != nil {
		t.Fatal(err)
	}
	seq := slices.Clone(prompt)
	for range n {
		out, err := d.Forward(t.Context(), &infer.Batch{Items: []infer.Item{{Tokens: seq, Blocks: []int32{0, 1, 2}, Want: infer.Last}}})
		if err != nil {
			t.Fatal(err)
		}
		c, err := sample.New(sample.Params{}, 0).Next(out.Logits[0], nil, nil, len(seq), nil)
		if err != nil {
			t.Fatal(err)
		}
		seq = append(seq, c.Token)
	}
	return seq[len(prompt):]
}

// kinds runs f with each way to run a worker.
func kinds(t *testing.T, f func(t *testing.T, launch worker.Launch)) {
	t.Run("in process", func(t *testing.T) { f(t, worker.InProcess(builder())) })
	t.Run("process", func(t *testing.T) { f(t, worker.Process{}.Launch) })
}

// TestSteps checks tokens, placeholders, scores, guesses, masks, vectors and errors.
func TestSteps(t *testing.T) {
	kinds(t, func(t *testing.T, launch worker.Launch) {
		s := begin(t, worker.Config{Launch: launch, Load: simulated(t, infer.SimulatedConfig{})})
		prompt := []int32{5, 6, 7, 8, 9}
		want := twin(t, prompt, 8)
		if got := run(t, s, 1, 1, prompt, 8, ""); !slices.Equal(got, want) {
			t.Errorf("made %v, want %v", got, want)
		}

		// Guesses: two right ones, one wrong.
		step(t, s, &worker.Batch{Step: 20, Items: []worker.Item{
			{ID: 2, Count: 5, Begin: true, Prompt: 5, Tokens: prompt, Blocks: []int32{9, 10}, Sample: true},
		}})
		out := step(t, s, &worker.Batch{Step: 21, Items: []worker.Item{
			{ID: 2, Pos: 5, Count: 4, Sample: true, Draft: []int32{want[1], want[2], (want[3] + 1) % 512}},
		}})
		if got := tokens(out.Items[0].Tokens); !slices.Equal(got, want[1:4]) {
			t.Errorf("guesses give %v, want %v", got, want[1:4])
		}
		out = step(t, s, &worker.Batch{Step: 22, Items: []worker.Item{{ID: 2, Pos: 8, Count: 1, Sample: true}}})
		if got := tokens(out.Items[0].Tokens); !slices.Equal(got, want[4:5]) {
			t.Errorf("after guesses %v, want %v", got, want[4:5])
		}

		// A mask with one token, a prompt in two pieces with scores, a vector, and two mistakes.
		mask := make([]uint64, 8)
		mask[3] = 1 << 9
		out = step(t, s, &worker.Batch{Step: 30, Ends: []uint64{1}, Items: []worker.Item{
			{ID: 2, Pos: 9, Count: 1, Sample: true, Mask: mask},
			{ID: 3, Count: 2, Begin: true, Prompt: 5, Tokens: prompt, Blocks: []int32{20}, Score: true, Spec: json.RawMessage(`{"top":1}`)},
			{ID: 4, Count: 5, Begin: true, Prompt: 5, Tokens: prompt, Blocks: []int32{21}, Pool: true, Spec: json.RawMessage(`{"pool":"last"}`)},
			{ID: 1, Pos: 13, Count: 1, Sample: true},
			{ID: 5, Count: 1, Begin: true, Prompt: 1, Tokens: prompt[:1], Blocks: []int32{22}, Sample: true, Spec: json.RawMessage(`{"top":`)},
		}})
		if got := tokens(out.Items[0].Tokens); !slices.Equal(got, []int32{3*64 + 9}) {
			t.Errorf("masked: %v", got)
		}
		if o := out.Items[1]; o.ScoresFrom != 1 || !slices.Equal(tokens(o.Scores), []int32{6, 7}) || len(o.Scores[0].Top) != 1 {
			t.Errorf("scores: %+v", o)
		}
		if o := out.Items[2]; len(o.Vector) != 1 || o.Vector[0] == 0 {
			t.Errorf("vector: %+v", o)
		}
		if o := out.Items[3]; !strings.Contains(o.Error, "has not begun") {
			t.Errorf("a forgotten sequence: %+v", o)
		}
		if o := out.Items[4]; !strings.Contains(o.Error, "parameters") {
			t.Errorf("a broken spec: %+v", o)
		}
		out = step(t, s, &worker.Batch{Step: 31, Items: []worker.Item{{ID: 3, Pos: 2, Count: 3, Score: true, Sample: true}}})
		if o := out.Items[0]; o.ScoresFrom != 3 || !slices.Equal(tokens(o.Scores), []int32{8, 9}) || !slices.Equal(tokens(o.Tokens), want[:1]) {
			t.Errorf("the rest of the scores: %+v, want the token %d", o, want[0])
		}

		// A step that fails as a whole: a block that is not there.
		out = step(t, s, &worker.Batch{Step: 40, Items: []worker.Item{{ID: 6, Count: 1, Begin: true, Prompt: 1, Tokens: prompt[:1], Blocks: []int32{1 << 20}, Sample: true}}})
		if !strings.Contains(out.Error, "block 1048576") {
			t.Errorf("a block that is not there: %+v", out)
		}
		if got := run(t, s, 7, 50, prompt, 2, ""); !slices.Equal(got, want[:2]) {
			t.Errorf("after a failed step %v, want %v", got, want[:2])
		}
	})
}

func tokens(choices []sample.Choice) (t []int32) {
	for _, c := range choices {
		t = append(t, c.Token)
	}
	return t
}

// TestSleep checks both levels, adapters that are kept, and the memory.
func TestSleep(t *testing.T) {
	for _, discard := range []bool{false, true} {
		t.Run(fmt.Sprint("discard ", discard), func(t *testing.T) {
			s := begin(t, worker.Config{Launch: worker.InProcess(builder()), Load: simulated(t, infer.SimulatedConfig{}), Discard: discard})
			ctx := t.Context()
			if err := s.LoadAdapter(ctx, worker.Adapter{ID: 3, Name: "a", Path: "a"}); err != nil {
				t.Fatal(err)
			}
			var refused *worker.OpError
			if err := s.LoadAdapter(ctx, worker.Adapter{ID: 4, Name: "b", Path: "broken"}); !errors.As(err, &refused) {
				t.Errorf("a broken adapter: %v", err)
			}
			prompt := []int32{1, 2, 3}
			want := run(t, s, 1, 1, prompt, 3, `{"adapter":3}`)
			if slices.Equal(want, twin(t, prompt, 3)) {
				t.Error("the adapter changes nothing")
			}
			for level := 1; level <= 2; level++ {
				if err := s.Sleep(ctx, level); err != nil {
					t.Fatal(err)
				}
				if n, err := s.Memory(ctx); err != nil || n != 0 {
					t.Errorf("asleep at level %d: %d bytes, %v", level, n, err)
				}
				if _, err := s.Wake(ctx); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, run(t, s, 1, uint64(10*level), prompt, 3, `{"adapter":3}`)); diff != "" {
					t.Errorf("after level %d (-before +after):\n%s", level, diff)
				}
			}
			if err := s.UnloadAdapter(ctx, 3); err != nil {
				t.Error(err)
			}
			if err := s.UnloadAdapter(ctx, 3); !errors.As(err, &refused) {
				t.Errorf("unloaded twice: %v", err)
			}
			if s.Restarts() != 0 {
				t.Errorf("%d restarts", s.Restarts())
			}
		})
	}
}

// noting says when its adapters are loaded.
type noting struct {
	infer.Inferencer
	loaded chan int32
}

func (n *noting) LoadAdapter(id int32, a *lora.Adapter) error {
	err := n.Inferencer.LoadAdapter(id, a)
	n.loaded <- id
	return err
}

// TestLoadAdapterCancelled checks that a worker does not keep an adapter for which nobody waits any more.
func TestLoadAdapterCancelled(t *testing.T) {
	loaded, reading, read := make(chan int32, 1), make(chan bool), make(chan bool)
	b := builder()
	build, adapter := b.Model, b.Adapter
	b.Model = func(ctx context.Context, l worker.Load) (infer.Inferencer, error) {
		inf, err := build(ctx, l)
		return &noting{inf, loaded}, err
	}
	b.Adapter = func(path string, c model.Config) (*lora.Adapter, error) {
		close(reading)
		<-read
		return adapter(path, c)
	}
	s := begin(t, worker.Config{Launch: worker.InProcess(b), Load: simulated(t, infer.SimulatedConfig{})})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.LoadAdapter(ctx, worker.Adapter{ID: 3, Name: "a", Path: "a"}) }()
	<-reading
	cancel()
	close(read)
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	<-loaded
	var refused *worker.OpError
	if err := s.UnloadAdapter(t.Context(), 3); !errors.As(err, &refused) {
		t.Errorf("the worker has the adapter: unloaded with %v", err)
	}
}

// TestLoadAdapterReplaced replaces a worker that has just loaded an adapter, before it is noted for its replacement.
func TestLoadAdapterReplaced(t *testing.T) {
	cfg := worker.Config{Launch: worker.InProcess(builder()), Load: simulated(t, infer.SimulatedConfig{}), Backoff: time.Millisecond}
	var s *worker.Supervisor
	cfg.Adapter = func(a worker.Adapter, _ model.Config) (worker.Adapter, func(), error) {
		return a, func() {
			s.Fail(errors.New("it is replaced"))
			for !next(t, s).Up {
				continue
			}
		}, nil
	}
	s = begin(t, cfg)
	if err := s.LoadAdapter(t.Context(), worker.Adapter{ID: 3, Name: "a", Path: "a"}); !errors.Is(err, worker.ErrDown) {
		t.Errorf("the new worker lacks the adapter: loaded with %v", err)
	}
}

// TestNoHello checks the error for a peer that speaks before its hello.
func TestNoHello(t *testing.T) {
	here, there := worker.Pipe()
	if err := worker.SendJSON(here, worker.KindOp, worker.Op{ID: 1, Verb: worker.OpStats}); err != nil {
		t.Fatal(err)
	}
	if err := worker.Serve(t.Context(), there, builder()); err == nil || err.Error() != "the engine's first frame, of kind 4, is no hello" {
		t.Errorf("got %v", err)
	}
}

// TestNoAdapters checks that models that take no adapters say so before a file is read.
func TestNoAdapters(t *testing.T) {
	c := model.Config{Arch: "qwen35", DeltaHeads: 8}
	if _, err := worker.OpenAdapter("pico/shout", c); err == nil || !strings.HasSuffix(err.Error(), "models of the architecture qwen35 take no adapters") {
		t.Error(err)
	}
}
