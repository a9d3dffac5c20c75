package infertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/lora"
	"github.com/rouse-dev/rouse/engine/model"
)

// Adapter makes a random adapter for a model of shape c. It changes every matrix in every other layer, and some in
// the others; its effect is large.
func Adapter(name string, c model.Config, rank int, seed uint64) *lora.Adapter {
	r := rand.New(rand.NewPCG(seed, 1))
	a := &lora.Adapter{Name: name, Rank: rank, Scale: 0.5 + float32(seed), Layers: make([][lora.NumTargets]*lora.Pair, c.Layers)}
	random := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64()) / 8
		}
		return x
	}
	for i := range a.Layers {
		for t := range lora.NumTargets {
			if t >= lora.Gate && c.Experts > 0 || i%2 == 1 && (int(t)+int(seed))%3 == 0 {
				continue
			}
			rows, cols := lora.Shape(c, t)
			a.Layers[i][t] = &lora.Pair{A: random(rank * cols), B: random(rows * rank)}
		}
	}
	return a
}

func adapters(t *testing.T, open func(*testing.T) infer.Inferencer) {
	r := open(t)
	c := r.Config()
	_, size := r.Blocks()
	for id, rank := range []int{4, 7} {
		if err := r.LoadAdapter(int32(id+1), Adapter(fmt.Sprint("adapter ", id), c, rank, uint64(id))); err != nil {
			t.Fatal(err)
		}
	}
	seq := Tokens(size+5, c.Vocab, 5)
	item := func(id int32) infer.Item {
		return infer.Item{Tokens: seq, Blocks: BlocksFrom(2*int(id), 2), Adapter: id, Want: infer.Last}
	}
	var alone [3][]float32
	for id := range alone {
		alone[id] = Forward(t, r, item(int32(id)))[0]
	}
	if slices.Equal(alone[0], alone[1]) {
		t.Error("an adapter changes nothing")
	}
	for _, order := range [][]int32{{0, 1, 2}, {2, 0, 1}, {1, 2}} {
		var items []infer.Item
		for _, id := range order {
			items = append(items, item(id))
		}
		for i, got := range Forward(t, r, items...) {
			if !slices.Equal(got, alone[order[i]]) {
				t.Errorf("adapter %d in a batch of %v: other bits than alone", order[i], order)
			}
		}
	}
	first, rest := item(2), item(2)
	first.Tokens, rest.Tokens, rest.Pos = seq[:3], seq[3:], 3
	Forward(t, r, first)
	if got := Forward(t, r, item(1), rest)[1]; !slices.Equal(got, alone[2]) {
		t.Error("in two chunks: other bits")
	}
	sleepWithAdapter(t, r, item(1), alone[1])
	loading(t, r, item(2))
}

func sleepWithAdapter(t *testing.T, r infer.Inferencer, it infer.Item, want []float32) {
	t.Helper()
	for _, level := range []int{1, 2} {
		if err := errors.Join(r.Sleep(level), r.Wake(t.Context())); err != nil {
			t.Fatal(err)
		}
		if got := Forward(t, r, it)[0]; !slices.Equal(got, want) {
			t.Errorf("after sleep %d: other bits", level)
		}
	}
}

func loading(t *testing.T, r infer.Inferencer, it infer.Item) {
	t.Helper()
	a := Adapter("again", r.Config(), 4, 3)
	for _, id := range []int32{-1, 0, 2} {
		if err := r.LoadAdapter(id, a); err == nil || !strings.Contains(err.Error(), "in use or not above 0") {
			t.Errorf("load as %d: got %v", id, err)
		}
	}
	if err := r.UnloadAdapter(2); err != nil {
		t.Error(err)
	}
	if err := r.UnloadAdapter(2); !errors.Is(err, infer.ErrNoAdapter) {
		t.Errorf("unload twice: got %v, want ErrNoAdapter", err)
	}
	if _, err := r.Forward(t.Context(), &infer.Batch{Items: []infer.Item{it}}); !errors.Is(err, infer.ErrNoAdapter) {
		t.Errorf("use after unload: got %v, want ErrNoAdapter", err)
	}
	if err := r.LoadAdapter(2, a); err != nil {
		t.Error(err)
	}
	Forward(t, r, it)
}
