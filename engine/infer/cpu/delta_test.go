package cpu_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/infer/cpu"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/lora"
)

// TestStates checks models with a delta net: the same bits in chunks, beside other sequences and with any number of threads.
func TestStates(t *testing.T) {
	for name, layers := range map[string]int{"attention last": 4, "delta net last": 6} {
		t.Run(name, func(t *testing.T) {
			path := infertest.File(t, infertest.Spec{Arch: "qwen35", Layers: layers, Context: 400})
			seq, other := tokens(300, 400, 5), tokens(300, 400, 6)
			one, vocab := open(t, path, cpu.Config{Threads: 1}), 400
			want := forward(t, one, infer.Item{Tokens: seq, Blocks: blocks(3, 19), Want: infer.All})[0]
			hidden := infertest.Step(t, one, &infer.Batch{Items: []infer.Item{{Tokens: seq, Blocks: blocks(3, 19), Want: infer.Hidden}}}).Hidden[0]
			for i, cut := range [][]int{{1, 2, 3, 4, 290}, {299, 1}, {256, 44}, {2, 2, 2, 2, 2, 290}} {
				r, pos := open(t, path, cpu.Config{Threads: i + 1}), 0
				mine, theirs := int32(i), int32(3-i)+4*int32(i/3)
				for _, n := range cut {
					items := []infer.Item{
						{Tokens: other[pos : pos+n], Pos: pos, Blocks: blocks(40, 19), State: theirs},
						{Tokens: seq[pos : pos+n], Pos: pos, Blocks: blocks(0, 19), State: mine, Want: infer.Last},
						{Tokens: other[n:], Blocks: blocks(60, 19), State: 9, Want: infer.Want(i)},
					}
					if got := forward(t, r, items...)[1]; !slices.Equal(got, want[(pos+n-1)*vocab:][:vocab]) {
						t.Fatalf("chunks %v, up to %d: other bits", cut, pos+n)
					}
					pos += n
				}
				got := infertest.Step(t, r, &infer.Batch{Items: []infer.Item{{Tokens: seq, Blocks: blocks(0, 19), State: 9, Want: infer.Hidden}}}).Hidden[0]
				if !slices.Equal(got, hidden) {
					t.Fatal("a used state, begun again: other bits")
				}
			}
		})
	}
}

// TestStateErrors checks that a sequence can't go on without its state, and what takes none.
func TestStateErrors(t *testing.T) {
	path := infertest.File(t, infertest.Spec{Arch: "qwen35"})
	r := open(t, path, cpu.Config{Threads: 1})
	seq := tokens(20, 400, 5)
	fails := func(want string, ctx context.Context, items ...infer.Item) {
		t.Helper()
		if _, err := r.Forward(ctx, &infer.Batch{Items: items}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	begin := infer.Item{Tokens: seq[:10], Blocks: blocks(0, 2), State: 1}
	next := infer.Item{Tokens: seq[10:], Pos: 10, Blocks: blocks(0, 2), State: 1, Want: infer.Last}
	small := r.MemoryBytes()
	forward(t, r, begin)
	if got := r.MemoryBytes() - small; got < 3*4*(3*128+8*8*8) {
		t.Errorf("a state takes %d bytes", got)
	}
	want := forward(t, r, next)[0]
	again := func() {
		t.Helper()
		forward(t, r, begin)
		if got := forward(t, r, next)[0]; !slices.Equal(got, want) {
			t.Fatal("begun again: other logits")
		}
	}
	again()
	another, negative := next, begin
	another.State, negative.State = 2, -1
	fails("position 10 of a sequence whose state is at 20: begin it again", t.Context(), next) // its blocks hold all earlier positions
	fails("whose state is at -1", t.Context(), another)
	fails("state -1 is negative", t.Context(), negative)
	fails("state 1 is negative, or another item's", t.Context(), begin, begin)
	again()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	forward(t, r, begin)
	fails("context canceled", ctx, next)
	fails("whose state is at -1", t.Context(), next)
	again()
	for level := 1; level <= 2; level++ {
		forward(t, r, begin)
		if err := errors.Join(r.SleepKeeping(begin.Blocks), r.Sleep(level), r.Wake(t.Context())); err != nil {
			t.Fatal(err)
		}
		fails("whose state is at -1", t.Context(), next)
		again()
	}

	if err := r.LoadAdapter(1, &lora.Adapter{Rank: 1, Layers: make([][lora.NumTargets]*lora.Pair, 4)}); err == nil || !strings.Contains(err.Error(), "qwen35 take no adapters") {
		t.Errorf("an adapter: %v", err)
	}
	if _, err := cpu.Open(path, cpu.Config{Shard: cpu.Shard{Of: 2, Memory: os.Stdin}}); err == nil || !strings.Contains(err.Error(), "leave out --shards") {
		t.Errorf("shards: %v", err)
	}
}
