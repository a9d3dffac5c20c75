package infertest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/model"
)

var _ infer.Inferencer = (*Fake)(nil)

// Fake is an infer.Inferencer without arithmetic. It keeps token numbers where a real
// one keeps keys and values, and computes logits from the tokens that it finds in the
// Item's blocks: a caller that mixes up blocks, positions or chunks gets different
// tokens, or an error when a position was never written since the last Wake.
//
// Set the fields before the first call. The zero value works.
type Fake struct {
	// Shape is what Config returns. Zero fields: 400 tokens of vocabulary, a context of 256.
	Shape model.Config
	// Count and Size are the cache's geometry. 0: 64 blocks of 16.
	Count, Size int
	// Next chooses the token after a sequence: its logit is 10. The others' lie between
	// 0 and 1 and depend on all tokens. nil: a token that depends on all tokens.
	Next func(sequence []int32) int32
	// Before runs at the start of each Forward, with the lock held; an error ends it.
	// It may wait, count, or fail on purpose.
	Before func(ctx context.Context, b *infer.Batch) error
	// Bytes is what MemoryBytes returns while awake.
	Bytes int64

	mu     sync.Mutex
	cache  []int32 // token of each cache position, -1 where nothing was written
	level  int
	closed bool
	steps  []infer.Batch
}

// Steps is a copy of all batches that Forward got, those included that failed.
func (f *Fake) Steps() []infer.Batch {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.steps)
}

// Level is 0 when awake, else the level of sleep.
func (f *Fake) Level() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.level
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
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.level > 0 {
		return 0
	}
	return f.Bytes
}

// Forward implements infer.Inferencer.
func (f *Fake) Forward(ctx context.Context, b *infer.Batch) ([][]float32, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return nil, infer.ErrClosed
	case f.level > 0:
		return nil, infer.ErrAsleep
	}
	f.record(b)
	if f.Before != nil {
		if err := f.Before(ctx, b); err != nil {
			return nil, err
		}
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("forward pass: %w", context.Cause(ctx))
	}
	count, size := f.Blocks()
	if err := b.Check(f.Config(), count, size); err != nil {
		return nil, err
	}
	if f.cache == nil {
		f.cache = slices.Repeat([]int32{-1}, count*size)
	}
	out := make([][]float32, len(b.Items))
	for i := range b.Items {
		seq, err := f.write(&b.Items[i], size)
		if err != nil {
			return nil, fmt.Errorf("batch item %d: %w", i, err)
		}
		if b.Items[i].Logits {
			out[i] = f.logits(seq)
		}
	}
	return out, nil
}

func (f *Fake) record(b *infer.Batch) {
	items := make([]infer.Item, len(b.Items))
	for i, it := range b.Items {
		it.Tokens, it.Blocks = slices.Clone(it.Tokens), slices.Clone(it.Blocks)
		items[i] = it
	}
	f.steps = append(f.steps, infer.Batch{Items: items})
}

// write stores an Item's tokens and reads its whole sequence back.
func (f *Fake) write(it *infer.Item, size int) ([]int32, error) {
	at := func(pos int) *int32 { return &f.cache[int(it.Blocks[pos/size])*size+pos%size] }
	for j, t := range it.Tokens {
		*at(it.Pos + j) = t
	}
	seq := make([]int32, it.Pos+len(it.Tokens))
	for p := range seq {
		if seq[p] = *at(p); seq[p] < 0 {
			return nil, fmt.Errorf("position %d (block %d) was never computed", p, it.Blocks[p/size])
		}
	}
	return seq, nil
}

func (f *Fake) logits(seq []int32) []float32 {
	out := make([]float32, f.Config().Vocab)
	h := uint32(2166136261) // FNV-1a
	for _, t := range seq {
		h = (h ^ uint32(t)) * 16777619
	}
	for i := range out {
		x := (h ^ uint32(i)) * 16777619
		out[i] = float32(x>>8) / (1 << 24)
	}
	next := int32(h % uint32(len(out)))
	if f.Next != nil {
		next = f.Next(seq)
	}
	out[next] = 10
	return out
}

// Sleep implements infer.Inferencer.
func (f *Fake) Sleep(level int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return infer.ErrClosed
	case level != 1 && level != 2:
		return fmt.Errorf("sleep level %d is unknown: want 1 or 2", level)
	}
	f.level = max(f.level, level)
	f.cache = nil
	return nil
}

// Wake implements infer.Inferencer.
func (f *Fake) Wake(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return infer.ErrClosed
	case f.level > 0 && ctx.Err() != nil:
		return fmt.Errorf("wake: %w", context.Cause(ctx))
	}
	f.level = 0
	return nil
}

// Close implements infer.Inferencer.
func (f *Fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed, f.cache = true, nil
	return nil
}
