package cpu_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/infer/cpu"
	"github.com/rouse-dev/rouse/engine/infer/infertest"

	"github.com/rouse-dev/rouse/engine/lora"
	"github.com/rouse-dev/rouse/engine/model"
)

// group is an Inferencer of several ranks in one process. Their results must be equal.
type group struct{ ranks []*cpu.Runner }

// sharedFile returns empty memory that processes can share.
func sharedFile(t testing.TB) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("ranks", 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "ranks")
	t.Cleanup(func() { f.Close() })
	return f
}

func openGroup(t testing.TB, path string, of int, cfg cpu.Config) *group {
	t.Helper()
	g := &group{}
	f := sharedFile(t)
	for i := range of {
		cfg.Shard = cpu.Shard{Rank: i, Of: of, Memory: f}
		g.ranks = append(g.ranks, open(t, path, cfg))
	}
	return g
}

// each calls f for all ranks at once and joins their errors.
func (g *group) each(f func(r *cpu.Runner) error) error {
	errs := make([]error, len(g.ranks))
	var wg sync.WaitGroup
	for i, r := range g.ranks {
		wg.Go(func() { errs[i] = f(r) })
	}
	wg.Wait()
	for _, err := range errs[1:] {
		if (err == nil) != (errs[0] == nil) {
			return fmt.Errorf("ranks disagree: %v", errs)
		}
	}
	return errs[0]
}

func (g *group) Forward(ctx context.Context, b *infer.Batch) (infer.Result, error) {
	results := make([]infer.Result, len(g.ranks))
	err := g.each(func(r *cpu.Runner) error {
		out, err := r.Forward(ctx, b)
		results[slices.Index(g.ranks, r)] = out
		return err
	})
	for _, out := range results[1:] {
		for i := range out.Logits {
			if !slices.Equal(out.Logits[i], results[0].Logits[i]) || !slices.Equal(out.Hidden[i], results[0].Hidden[i]) {
				return infer.Result{}, errors.New("ranks have different results")
			}
		}
	}
	return results[0], err
}

func (g *group) LoadAdapter(id int32, a *lora.Adapter) error {
	return g.each(func(r *cpu.Runner) error { return r.LoadAdapter(id, a) })
}
func (g *group) UnloadAdapter(id int32) error {
	return g.each(func(r *cpu.Runner) error { return r.UnloadAdapter(id) })
}
func (g *group) Config() model.Config      { return g.ranks[0].Config() }
func (g *group) Blocks() (count, size int) { return g.ranks[0].Blocks() }
func (g *group) MemoryBytes() int64        { return g.ranks[0].MemoryBytes() }
func (g *group) Sleep(level int) error {
	return g.each(func(r *cpu.Runner) error { return r.Sleep(level) })
}
func (g *group) Wake(ctx context.Context) error {
	return g.each(func(r *cpu.Runner) error { return r.Wake(ctx) })
}
func (g *group) Close() error { return g.each((*cpu.Runner).Close) }

// rankSpecs are models whose sizes do and do not divide well.
var rankSpecs = map[string]infertest.Spec{
	"q8_0":  {Dim: 128, Type: gguf.Q8_0, Heads: 8, KVHeads: 2},
	"qwen2": {Type: gguf.F32, FFN: 300, Arch: "qwen2", Heads: 3, HeadDim: 24, Vocab: 403},
	"moe":   {Type: gguf.F16, Arch: "qwen3moe", Experts: 6, ExpertFFN: 80, KVHeads: 2},
	"gemma": {Arch: "gemma2", KVHeads: 1},
	"oss":   {Arch: "gpt-oss", Experts: 6, ExpertFFN: 80, KVHeads: 2},
	"glm":   {Arch: "glm4moe", Layers: 3, ExpertFFN: 80, KVHeads: 2},
}

// TestRanksSuite runs the suite of Inferencers on several ranks.
func TestRanksSuite(t *testing.T) {
	for name, s := range rankSpecs {
		t.Run(name, func(t *testing.T) {
			s.Context = 400
			path := infertest.File(t, s)
			n := 0
			infertest.Run(t, func(t *testing.T) infer.Inferencer {
				n++
				return openGroup(t, path, n%2+2, cpu.Config{Threads: n%2 + 1})
			})
		})
	}
}

// TestRanks checks that several ranks give the same bits as one, also for batches of more than one part.
func TestRanks(t *testing.T) {
	for name, s := range rankSpecs {
		t.Run(name, func(t *testing.T) {
			s.Context = 400
			path := infertest.File(t, s)
			b := bigBatch(s.Vocab)
			want := infertest.Step(t, open(t, path, cpu.Config{}), b)
			for _, of := range []int{2, 3, 5} {
				got := infertest.Step(t, openGroup(t, path, of, cpu.Config{Threads: 2}), b)
				for i := range b.Items {
					if !slices.Equal(got.Logits[i], want.Logits[i]) || !slices.Equal(got.Hidden[i], want.Hidden[i]) {
						t.Errorf("%d ranks, item %d: other bits than one", of, i)
					}
				}
			}
		})
	}
}

// bigBatch returns a batch of more than 256 tokens with all outputs.
func bigBatch(vocab int) *infer.Batch {
	vocab = max(vocab, 400)
	b := &infer.Batch{}
	for i, n := range []int{200, 1, 90, 17} {
		want := []infer.Want{infer.Last, infer.All, infer.Hidden, infer.All}[i]
		b.Items = append(b.Items, infer.Item{Tokens: tokens(n, vocab, i), Blocks: blocks(20*i, 13), Want: want})
	}
	return b
}

// TestRanksApart checks that ranks with different batches, and one that is left alone, end with an
// error, and that later steps fail too.
func TestRanksApart(t *testing.T) {
	path := infertest.File(t, infertest.Spec{})
	g := openGroup(t, path, 2, cpu.Config{Threads: 1})
	err := g.each(func(r *cpu.Runner) error {
		b := &infer.Batch{Items: []infer.Item{{Tokens: []int32{int32(slices.Index(g.ranks, r))}, Blocks: blocks(0, 1)}}}
		_, err := r.Forward(t.Context(), b)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "restart them all") {
		t.Errorf("different batches: got %v", err)
	}
	lonely := openGroup(t, path, 2, cpu.Config{Threads: 1})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	start := time.Now()
	if _, err := lonely.ranks[0].Forward(ctx, &infer.Batch{}); err == nil || !strings.Contains(err.Error(), "restart them all") {
		t.Errorf("alone: got %v", err)
	}
	if d := time.Since(start); d > 20*time.Second {
		t.Errorf("alone: it took %v to notice", d)
	}
	if err := lonely.each(func(r *cpu.Runner) error { _, err := r.Forward(t.Context(), &infer.Batch{}); return err }); err == nil {
		t.Error("a group that broke up goes on")
	}
}

// TestRanksCancel checks that all ranks end a step after the same layer, and can go on.
func TestRanksCancel(t *testing.T) {
	path := infertest.File(t, infertest.Spec{Layers: 40})
	g := openGroup(t, path, 3, cpu.Config{Threads: 1})
	it := infer.Item{Tokens: tokens(100, 400, 1), Blocks: blocks(0, 7), Want: infer.Last}
	want := forward(t, g, it)[0]
	cause := errors.New("enough")
	ended := 0
	for d := 10 * time.Microsecond; d < 20*time.Millisecond; d *= 2 {
		ctx, stop := context.WithTimeoutCause(t.Context(), d, cause)
		out, err := g.Forward(ctx, &infer.Batch{Items: []infer.Item{it}})
		stop()
		switch {
		case err != nil:
			ended++
		case !slices.Equal(out.Logits[0], want):
			t.Fatalf("after %v: other logits", d)
		}
	}
	if ended == 0 {
		t.Error("no step was cancelled")
	}
	if !slices.Equal(forward(t, g, it)[0], want) {
		t.Error("repeated: other logits")
	}
}

// TestRanksAsProcesses checks that ranks in processes of their own give the same bits as one.
func TestRanksAsProcesses(t *testing.T) {
	if os.Getenv("CPU_TEST_RANK") != "" {
		beRank(t)
		return
	}
	path := infertest.File(t, rankSpecs["q8_0"])
	b := bigBatch(0)
	b.Items = b.Items[1:]
	want := infertest.Step(t, open(t, path, cpu.Config{}), b)
	f := sharedFile(t)
	other := exec.CommandContext(t.Context(), os.Args[0], "-test.run=TestRanksAsProcesses", "-test.v")
	other.Env = append(os.Environ(), "CPU_TEST_RANK=1", "CPU_TEST_MODEL="+path)
	other.ExtraFiles = []*os.File{f}
	var said strings.Builder
	other.Stdout, other.Stderr = &said, &said
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	got := infertest.Step(t, open(t, path, cpu.Config{Threads: 1, Shard: cpu.Shard{Rank: 0, Of: 2, Memory: f}}), b)
	if err := other.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	for i := range b.Items {
		if !slices.Equal(got.Logits[i], want.Logits[i]) || !slices.Equal(got.Hidden[i], want.Hidden[i]) {
			t.Errorf("item %d: other bits than alone", i)
		}
	}
}

// beRank is the other process.
func beRank(t *testing.T) {
	r := open(t, os.Getenv("CPU_TEST_MODEL"), cpu.Config{Threads: 1, Shard: cpu.Shard{Rank: 1, Of: 2, Memory: os.NewFile(3, "ranks")}})
	b := bigBatch(0)
	b.Items = b.Items[1:]
	infertest.Step(t, r, b)
}
