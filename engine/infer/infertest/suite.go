package infertest

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/infer"
)

// Run tests the Inferencers that open makes: awake, of the same model, with a context of at least 300 positions and a
// cache of at least 400. They may differ in settings that must not change a result, such as threads. open arranges
// for Close.
func Run(t *testing.T, open func(t *testing.T) infer.Inferencer) {
	for _, tt := range []struct {
		name string
		run  func(*testing.T, func(*testing.T) infer.Inferencer)
	}{
		{"same bits however a sequence is cut", bits},
		{"same bits in any blocks", places},
		{"logits only where asked", asked},
		{"all logits", all},
		{"hidden states", hidden},
		{"copied blocks", copies},
		{"adapters", adapters},
		{"bad batch", bad},
		{"cancel", cancel},
		{"sleep and wake", sleep},
		{"keeping blocks", keeping},
		{"closed", closed},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, open) })
	}
}

// Tokens returns a sequence of n tokens that depends on seed.
func Tokens(n, vocab, seed int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32((i*37 + seed*101 + i*i*seed) % vocab)
	}
	return out
}

// BlocksFrom returns n neighbouring blocks.
func BlocksFrom(from, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(from + i)
	}
	return out
}

// Forward runs a step that must succeed and returns a copy of its logits.
func Forward(t testing.TB, r infer.Inferencer, items ...infer.Item) [][]float32 {
	t.Helper()
	return Step(t, r, &infer.Batch{Items: items}).Logits
}

// Step runs a step that must succeed and returns a copy of its result.
func Step(t testing.TB, r infer.Inferencer, b *infer.Batch) infer.Result {
	t.Helper()
	out, err := r.Forward(context.Background(), b)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Logits) != len(b.Items) || len(out.Hidden) != len(b.Items) {
		t.Fatalf("%d logits and %d hidden states for %d items", len(out.Logits), len(out.Hidden), len(b.Items))
	}
	cp := infer.Result{Logits: slices.Clone(out.Logits), Hidden: slices.Clone(out.Hidden)}
	for i := range b.Items {
		cp.Logits[i], cp.Hidden[i] = slices.Clone(cp.Logits[i]), slices.Clone(cp.Hidden[i])
	}
	return cp
}

func bits(t *testing.T, open func(*testing.T) infer.Inferencer) {
	var want []float32
	for _, cut := range [][]int{{280, 1}, {281}, {1, 2, 20, 250, 7, 1}, {16, 16, 200, 49}} {
		r := open(t)
		vocab := r.Config().Vocab
		_, size := r.Blocks()
		need := (281 + size - 1) / size
		seq := Tokens(281, vocab, 7)
		for _, others := range []int{0, 1, 3} {
			var got []float32
			pos := 0
			for _, n := range cut {
				items := []infer.Item{{Tokens: seq[pos : pos+n], Pos: pos, Blocks: BlocksFrom(8, need), Want: infer.Last}}
				at := 0
				for o := range others {
					it := infer.Item{Tokens: Tokens(min(o*5+1, size), vocab, o), Blocks: BlocksFrom(o, 1), Want: infer.Want(o % 4)}
					items = slices.Insert(items, o%2*len(items), it)
					at += 1 - o%2
				}
				got = Forward(t, r, items...)[at]
				pos += n
			}
			if want == nil {
				want = got
			}
			if !slices.Equal(got, want) {
				t.Fatalf("chunks %v beside %d others: other bits", cut, others)
			}
		}
	}
}

func places(t *testing.T, open func(*testing.T) infer.Inferencer) {
	r := open(t)
	_, size := r.Blocks()
	n := 3*size - 1
	seq := Tokens(n, r.Config().Vocab, 3)
	var want []float32
	for _, b := range [][]int32{{0, 1, 2}, {5, 3, 4}, {2, 1, 0}, {7, 6, 5, 4}} {
		got := Forward(t, r, infer.Item{Tokens: seq, Blocks: b, Want: infer.Last})[0]
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Fatalf("blocks %v: other bits", b)
		}
	}
	other := Forward(t, r, infer.Item{Tokens: Tokens(n, r.Config().Vocab, 4), Blocks: []int32{0, 1, 2}, Want: infer.Last})[0]
	if slices.Equal(other, want) {
		t.Fatal("another sequence has the same logits")
	}
	if got := Forward(t, r, infer.Item{Tokens: seq, Blocks: []int32{0, 1, 2}, Want: infer.Last})[0]; !slices.Equal(got, want) {
		t.Fatal("used blocks: other bits")
	}
}

func asked(t *testing.T, open func(*testing.T) infer.Inferencer) {
	r := open(t)
	out := Forward(t, r,
		infer.Item{Tokens: []int32{1, 2}, Blocks: []int32{0}},
		infer.Item{Tokens: []int32{1, 2}, Blocks: []int32{1}, Want: infer.Last},
		infer.Item{Tokens: []int32{3}, Blocks: []int32{2}})
	if out[0] != nil || out[2] != nil || len(out[1]) != r.Config().Vocab {
		t.Errorf("got logits of lengths %d %d %d, want 0 %d 0", len(out[0]), len(out[1]), len(out[2]), r.Config().Vocab)
	}
	Forward(t, r)
}

func all(t *testing.T, open func(*testing.T) infer.Inferencer) {
	r := open(t)
	vocab := r.Config().Vocab
	_, size := r.Blocks()
	seq := Tokens(2*size+3, vocab, 6)
	whole := Forward(t, r, infer.Item{Tokens: seq, Blocks: BlocksFrom(0, 3), Want: infer.All})[0]
	if len(whole) != len(seq)*vocab {
		t.Fatalf("%d logits for %d tokens, want %d each", len(whole), len(seq), vocab)
	}
	first := Forward(t, r, infer.Item{Tokens: seq[:5], Blocks: BlocksFrom(3, 3), Want: infer.All})[0]
	rest := Forward(t, r, infer.Item{Tokens: seq[5:], Pos: 5, Blocks: BlocksFrom(3, 3), Want: infer.All})[0]
	if !slices.Equal(slices.Concat(first, rest), whole) {
		t.Error("in two chunks: other bits")
	}
	for _, n := range []int{1, 2, size, size + 1, len(seq)} {
		got := Forward(t, r, infer.Item{Tokens: seq[:n], Blocks: BlocksFrom(6, 3), Want: infer.Last})[0]
		if !slices.Equal(got, whole[(n-1)*vocab:n*vocab]) {
			t.Errorf("after %d tokens: other bits than alone", n)
		}
	}
}

func hidden(t *testing.T, open func(*testing.T) infer.Inferencer) {
	r := open(t)
	dim := r.Config().Dim
	_, size := r.Blocks()
	seq := Tokens(size+3, r.Config().Vocab, 6)
	run := func(from, to int) []float32 {
		it := infer.Item{Tokens: seq[from:to], Pos: from, Blocks: BlocksFrom(1, 2), Want: infer.Hidden}
		other := infer.Item{Tokens: seq[:2], Blocks: BlocksFrom(0, 1), Want: infer.All}
		return Step(t, r, &infer.Batch{Items: []infer.Item{other, it}}).Hidden[1]
	}
	whole := run(0, len(seq))
	if len(whole) != len(seq)*dim || slices.Equal(whole[:dim], whole[dim:2*dim]) {
		t.Fatalf("%d values for %d tokens, want %d each, and different", len(whole), len(seq), dim)
	}
	if !slices.Equal(slices.Concat(run(0, 4), run(4, len(seq))), whole) {
		t.Error("in two chunks: other bits")
	}
}

// copies checks that a copied block is equivalent to the block itself, and that copies are done in order, before
// anything is computed.
func copies(t *testing.T, open func(*testing.T) infer.Inferencer) {
	r := open(t)
	_, size := r.Blocks()
	vocab := r.Config().Vocab
	seq := Tokens(size+3, vocab, 9)
	Forward(t, r, infer.Item{Tokens: seq[:size+2], Blocks: BlocksFrom(0, 2)})
	last := infer.Item{Tokens: seq[size+2:], Pos: size + 2, Blocks: BlocksFrom(0, 2), Want: infer.Last}
	want := Forward(t, r, last)[0]
	forked, other := last, last
	forked.Blocks, other.Blocks = []int32{0, 4}, []int32{0, 1}
	other.Tokens = []int32{(seq[size+2] + 1) % int32(vocab)}
	out := Step(t, r, &infer.Batch{Items: []infer.Item{other, forked}, Copies: []infer.Copy{{From: 1, To: 5}, {From: 5, To: 4}}})
	if !slices.Equal(out.Logits[1], want) || slices.Equal(out.Logits[0], want) {
		t.Error("the copy gives other logits, or another token the same")
	}
	count, _ := r.Blocks()
	for _, c := range []infer.Copy{{From: -1, To: 0}, {From: 0, To: int32(count)}} {
		if _, err := r.Forward(t.Context(), &infer.Batch{Copies: []infer.Copy{c}}); err == nil || !strings.Contains(err.Error(), "outside the cache") {
			t.Errorf("copy %v: got %v", c, err)
		}
	}
}

func bad(t *testing.T, open func(*testing.T) infer.Inferencer) {
	r := open(t)
	count, size := r.Blocks()
	c := r.Config()
	all := BlocksFrom(0, count)
	for want, it := range map[string]infer.Item{
		"no tokens":                  {},
		"position -1 is negative":    {Tokens: []int32{1}, Pos: -1, Blocks: all},
		"reach beyond the context":   {Tokens: make([]int32, c.Context+1), Blocks: all},
		"reach beyond the context o": {Tokens: []int32{1}, Pos: math.MaxInt, Blocks: all},
		"need 2 blocks":              {Tokens: make([]int32, size+1), Blocks: []int32{0}},
		"is outside the vocabulary":  {Tokens: []int32{int32(c.Vocab)}, Blocks: all},
		"token -1 is outside":        {Tokens: []int32{-1}, Blocks: all},
		"is outside the cache":       {Tokens: []int32{1}, Blocks: []int32{int32(count)}},
		"block -1 is outside":        {Tokens: []int32{1}, Blocks: []int32{-1}},
		"want 9 is unknown":          {Tokens: []int32{1}, Blocks: all, Want: 9},
		"adapter is not loaded":      {Tokens: []int32{1}, Blocks: all, Adapter: 3},
		"adapter -1":                 {Tokens: []int32{1}, Blocks: all, Adapter: -1},
	} {
		good := infer.Item{Tokens: []int32{1}, Blocks: []int32{0}}
		_, err := r.Forward(t.Context(), &infer.Batch{Items: []infer.Item{good, it}})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "batch item 1") {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

func cancel(t *testing.T, open func(*testing.T) infer.Inferencer) {
	r := open(t)
	cause := errors.New("the client left")
	ctx, stop := context.WithCancelCause(t.Context())
	stop(cause)
	it := infer.Item{Tokens: []int32{1}, Blocks: []int32{0}, Want: infer.Last}
	if _, err := r.Forward(ctx, &infer.Batch{Items: []infer.Item{it}}); !errors.Is(err, cause) {
		t.Errorf("forward: got %v, want the cause", err)
	}
	Forward(t, r, it)
	if err := r.Sleep(1); err != nil {
		t.Fatal(err)
	}
	if err := r.Wake(ctx); !errors.Is(err, cause) {
		t.Errorf("wake: got %v, want the cause", err)
	}
}

func sleep(t *testing.T, open func(*testing.T) infer.Inferencer) {
	r := open(t)
	shape := r.Config()
	count, size := r.Blocks()
	it := infer.Item{Tokens: Tokens(50, shape.Vocab, 2), Blocks: BlocksFrom(0, 50/size+1), Want: infer.Last}
	want := Forward(t, r, it)[0]
	for _, levels := range [][]int{{1}, {2}, {1, 1, 2, 2, 1}} {
		for _, l := range levels {
			if err := r.Sleep(l); err != nil {
				t.Fatalf("sleep %d: %v", l, err)
			}
			if got := r.MemoryBytes(); got != 0 {
				t.Errorf("asleep at level %d: %d bytes", l, got)
			}
		}
		for _, l := range []int{-1, 0, 3} {
			if err := r.Sleep(l); err == nil {
				t.Errorf("sleep %d: no error", l)
			}
		}
		if _, err := r.Forward(t.Context(), &infer.Batch{Items: []infer.Item{it}}); !errors.Is(err, infer.ErrAsleep) {
			t.Fatalf("forward asleep: got %v, want ErrAsleep", err)
		}
		for range 2 {
			if err := r.Wake(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := Forward(t, r, it)[0]; !slices.Equal(got, want) {
			t.Fatalf("after sleep %v: other logits", levels)
		}
		if c, s := r.Blocks(); r.Config() != shape || c != count || s != size {
			t.Errorf("after sleep %v: another shape", levels)
		}
	}
}

func closed(t *testing.T, open func(*testing.T) infer.Inferencer) {
	for level := range 3 {
		r := open(t)
		if level > 0 {
			if err := r.Sleep(level); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
		_, ferr := r.Forward(t.Context(), &infer.Batch{})
		for what, err := range map[string]error{"forward": ferr, "sleep": r.Sleep(1), "wake": r.Wake(t.Context())} {
			if !errors.Is(err, infer.ErrClosed) {
				t.Errorf("%s: got %v, want ErrClosed", what, err)
			}
		}
		if r.MemoryBytes() != 0 {
			t.Error("closed, and memory in use")
		}
	}
}
