package infertest

import (
	"context"
	"fmt"
	"slices"

	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/model"
)

var _ infer.Inferencer = (*Fake)(nil)

// Fake is an infer.Inferencer without arithmetic. Its logits depend on the tokens in the Item's blocks and the
// adapter's name, so a caller that confuses blocks, positions or chunks gets different tokens. A position not written
// since the last Wake, or with another adapter, is an error.
//
// Set the fields before the first call. The zero value works.
type Fake struct {
	// Shape is the result of Config. Zero fields: a vocabulary of 400 tokens, a context of 256, hidden states of 8
	// values.
	Shape model.Config
	// Count and Size are the cache's geometry. 0: 64 blocks of 16.
	Count, Size int
	// Next chooses the token after a sequence, whose logit is 10; others are below 1. nil: a token that depends on
	// all tokens.
	Next func(sequence []int32) int32
	// Before runs at the start of each Forward, with the lock held; an error ends it.
	Before func(ctx context.Context, b *infer.Batch) error
	// Bytes is the result of MemoryBytes while awake.
	Bytes int64

	infer.State[position]
	steps []infer.Batch
}

type position struct {
	token   int32
	adapter int32
	written bool
}

// Steps returns a copy of all batches of Forward, including failed ones.
func (f *Fake) Steps() []infer.Batch {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	return slices.Clone(f.steps)
}

// Config implements infer.Inferencer.
func (f *Fake) Config() model.Config {
	c := f.Shape
	if c.Vocab == 0 {
		c.Vocab = 400
	}
	if c.Context == 0 {
		c.Context = 256
	}
	if c.Dim == 0 {
		c.Dim = 8
	}
	return c
}

// Blocks implements infer.Inferencer.
func (f *Fake) Blocks() (count, size int) {
	count, size = f.Count, f.Size
	if count == 0 {
		count = 64
	}
	if size == 0 {
		size = 16
	}
	return count, size
}

// MemoryBytes implements infer.Inferencer.
func (f *Fake) MemoryBytes() int64 {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	if f.Ready() != nil {
		return 0
	}
	return f.Bytes
}

// Forward implements infer.Inferencer.
func (f *Fake) Forward(ctx context.Context, b *infer.Batch) (infer.Result, error) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	if err := f.Ready(); err != nil {
		return infer.Result{}, err
	}
	f.record(b)
	if f.Before != nil {
		if err := f.Before(ctx, b); err != nil {
			return infer.Result{}, err
		}
	}
	if ctx.Err() != nil {
		return infer.Result{}, fmt.Errorf("forward pass: %w", context.Cause(ctx))
	}
	if err := f.check(b); err != nil {
		return infer.Result{}, err
	}
	count, size := f.Blocks()
	if f.Cache == nil {
		f.Cache = make([]position, count*size)
	}
	for _, p := range b.Copies {
		copy(f.Cache[int(p.To)*size:][:size], f.Cache[int(p.From)*size:][:size])
	}
	out := infer.Result{Logits: make([][]float32, len(b.Items)), Hidden: make([][]float32, len(b.Items))}
	for i := range b.Items {
		it := &b.Items[i]
		seq, err := f.write(it, size)
		if err != nil {
			return infer.Result{}, fmt.Errorf("batch item %d: %w", i, err)
		}
		out.Logits[i], out.Hidden[i] = f.answer(it, seq)
	}
	return out, nil
}

func (f *Fake) check(b *infer.Batch) error {
	count, size := f.Blocks()
	if err := b.Check(f.Config(), count, size); err != nil {
		return err
	}
	for i := range b.Items {
		if id := b.Items[i].Adapter; id != 0 && f.Adapters[id] == nil {
			return fmt.Errorf("batch item %d: adapter %d: %w", i, id, infer.ErrNoAdapter)
		}
	}
	return nil
}

func (f *Fake) record(b *infer.Batch) {
	items := make([]infer.Item, len(b.Items))
	for i, it := range b.Items {
		it.Tokens, it.Blocks = slices.Clone(it.Tokens), slices.Clone(it.Blocks)
		items[i] = it
	}
	f.steps = append(f.steps, infer.Batch{Items: items, Copies: slices.Clone(b.Copies)})
}

func (f *Fake) write(it *infer.Item, size int) ([]int32, error) {
	at := func(pos int) *position { return &f.Cache[int(it.Blocks[pos/size])*size+pos%size] }
	for j, t := range it.Tokens {
		*at(it.Pos + j) = position{token: t, adapter: it.Adapter, written: true}
	}
	seq := make([]int32, it.Pos+len(it.Tokens))
	for i := range seq {
		p := at(i)
		seq[i] = p.token
		switch {
		case !p.written:
			return nil, fmt.Errorf("position %d (block %d) was never computed", i, it.Blocks[i/size])
		case p.adapter != it.Adapter:
			return nil, fmt.Errorf("position %d (block %d) was computed with adapter %d, not %d", i, it.Blocks[i/size], p.adapter, it.Adapter)
		}
	}
	return seq, nil
}

func (f *Fake) answer(it *infer.Item, seq []int32) (logits, hidden []float32) {
	switch it.Want {
	case infer.Last:
		logits = f.logits(it.Adapter, seq)
	case infer.All:
		for n := it.Pos + 1; n <= len(seq); n++ {
			logits = append(logits, f.logits(it.Adapter, seq[:n])...)
		}
	case infer.Hidden:
		for n := it.Pos + 1; n <= len(seq); n++ {
			hidden = append(hidden, values(f.hash(it.Adapter, seq[:n]), f.Config().Dim)...)
		}
	}
	return logits, hidden
}

func (f *Fake) hash(adapter int32, seq []int32) uint32 {
	h := uint32(2166136261)
	if a := f.Adapters[adapter]; a != nil {
		for _, c := range a.Name {
			h = (h ^ uint32(c)) * 16777619
		}
	}
	for _, t := range seq {
		h = (h ^ uint32(t)) * 16777619
	}
	return h
}

func values(h uint32, n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		x := (h ^ uint32(i)) * 16777619
		out[i] = float32(x>>8) / (1 << 24)
	}
	return out
}

func (f *Fake) logits(adapter int32, seq []int32) []float32 {
	h := f.hash(adapter, seq)
	out := values(h, f.Config().Vocab)
	next := int32(h % uint32(len(out)))
	if f.Next != nil {
		next = f.Next(seq)
	}
	out[next] = 10
	return out
}
