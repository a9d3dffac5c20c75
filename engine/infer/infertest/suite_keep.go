package infertest

import (
	"errors"
	"slices"
	"testing"

	"github.com/rouse-dev/rouse/engine/infer"
)

func keeping(t *testing.T, open func(*testing.T) infer.Inferencer) {
	r := open(t)
	k, ok := r.(infer.Keeper)
	if !ok {
		t.Skip("its cache does not outlive a sleep")
	}
	_, size := r.Blocks()
	n := 3 * size
	seq := Tokens(n+1, r.Config().Vocab, 5)
	blocks := []int32{6, 2, 9, 4}
	Forward(t, r, infer.Item{Tokens: seq[:n], Blocks: blocks})
	Forward(t, r, infer.Item{Tokens: seq[:n], Blocks: []int32{0, 1, 3}})
	last := infer.Item{Tokens: seq[n:], Pos: n, Blocks: blocks, Want: infer.Last}
	want := Forward(t, r, last)[0]
	copies := make([][]byte, 3)
	for i := range copies {
		copies[i] = make([]byte, k.BlockBytes())
		if err := k.Export(blocks[i], copies[i]); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := k.SleepKeeping(blocks[:3]); err != nil {
			t.Fatal(err)
		}
	}
	again := make([]byte, k.BlockBytes())
	if err := k.Export(blocks[1], again); err != nil || !slices.Equal(again, copies[1]) {
		t.Fatalf("a kept block, asleep: %v, or other contents", err)
	}
	if err := k.Export(0, again); err == nil {
		t.Error("a block that was not kept is there")
	}
	if err := r.Wake(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := Forward(t, r, last)[0]; !slices.Equal(got, want) {
		t.Fatal("after a sleep that kept its blocks: other logits")
	}

	o := open(t)
	other := o.(infer.Keeper)
	for i, to := range []int32{1, 8, 0} {
		if err := other.Import(to, copies[i]); err != nil {
			t.Fatal(err)
		}
	}
	last.Blocks = []int32{1, 8, 0, 3}
	if got := Forward(t, o, last)[0]; !slices.Equal(got, want) {
		t.Fatal("in another one: other logits")
	}
	keepingRefuses(t, r, blocks[0])
}

func keepingRefuses(t *testing.T, r infer.Inferencer, block int32) {
	k := r.(infer.Keeper)
	again := make([]byte, k.BlockBytes())
	if err := k.Export(0, again[1:]); err == nil {
		t.Error("export to a buffer that is too short: no error")
	}
	if err := k.Import(-1, again); err == nil {
		t.Error("import to block -1: no error")
	}
	if err := r.Sleep(2); err != nil {
		t.Fatal(err)
	}
	if err := k.Import(0, again); !errors.Is(err, infer.ErrAsleep) {
		t.Errorf("import asleep: %v", err)
	}
	if err := k.Export(block, again); !errors.Is(err, infer.ErrAsleep) {
		t.Errorf("export from level 2: %v", err)
	}
}
