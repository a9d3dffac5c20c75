package cpu

import (
	"context"
	"fmt"
	"hash/fnv"
	"runtime/debug"
	"unsafe"

	"github.com/rouse-dev/rouse/engine/infer"
)

// Forward implements infer.Inferencer.
func (r *Runner) Forward(ctx context.Context, b *infer.Batch) (infer.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return infer.Result{}, infer.ErrClosed
	case r.level > 0:
		return infer.Result{}, infer.ErrAsleep
	}
	if err := r.check(b); err != nil {
		return infer.Result{}, err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // this goroutine computes too
	r.exchange.ctx = ctx
	if err := r.exchange.begin(r.hash(b)); err != nil {
		return infer.Result{}, fmt.Errorf("forward pass: %w", err)
	}
	for _, p := range b.Copies {
		r.cache.copy(p)
	}
	r.prepare(b)
	if err := r.states.begin(b.Items); err != nil {
		return infer.Result{}, err
	}
	if err := r.compute(ctx, b); err != nil {
		return infer.Result{}, err
	}
	r.states.end(b.Items)
	return r.out, nil
}

func (r *Runner) compute(ctx context.Context, b *infer.Batch) error {
	s := r.step
	s.begin()
	for i := range b.Items {
		it := &b.Items[i]
		if r.conf.Encoder { // its tokens see one another after each layer
			if len(s.tokens)+len(it.Tokens) > maxStep {
				if err := s.compute(ctx); err != nil {
					return err
				}
				s.begin()
			}
			s.add(it, 0, len(it.Tokens), nil)
			continue
		}
		for lo := 0; lo < len(it.Tokens); {
			room := min(len(it.Tokens), lo+maxStep-len(s.tokens))
			hi := it.Whole(room)
			if hi > lo {
				s.add(it, lo, hi, r.adapters[it.Adapter])
				if err := r.show(ctx, it, lo, hi); err != nil {
					return err
				}
			}
			if lo = hi; hi == room && len(s.tokens) < maxStep {
				continue
			}
			if err := s.compute(ctx); err != nil {
				return err
			}
			s.begin()
		}
	}
	return s.compute(ctx)
}

func (r *Runner) check(b *infer.Batch) error {
	count, size := r.Blocks()
	if err := b.Check(r.conf, count, size); err != nil {
		return err
	}
	wanted := 0
	for i := range b.Items {
		it := &b.Items[i]
		if it.Adapter != 0 && r.adapters[it.Adapter] == nil {
			return fmt.Errorf("batch item %d: adapter %d: %w", i, it.Adapter, infer.ErrNoAdapter)
		}
		switch it.Want {
		case infer.Last:
			wanted++
		case infer.All:
			wanted += len(it.Tokens)
		}
	}
	if err := r.states.check(b.Items); err != nil {
		return err
	}
	if r.share.of > 1 && wanted > SharedLogits {
		return fmt.Errorf("the batch wants logits of %d tokens: several ranks give at most %d a step", wanted, SharedLogits)
	}
	return nil
}

func (r *Runner) hash(b *infer.Batch) uint64 {
	if r.share.of == 1 {
		return 0
	}
	h := fnv.New64a()
	ints := func(x []int32) {
		h.Write(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x)))
	}
	for i := range b.Items {
		it := &b.Items[i]
		ints([]int32{int32(len(it.Tokens)), int32(it.Pos), int32(len(it.Blocks)), it.Adapter, int32(it.Want)})
		ints(it.Tokens)
		ints(it.Blocks)
	}
	for _, c := range b.Copies {
		ints([]int32{c.From, c.To})
	}
	return h.Sum64()
}

// keptLogits is the most logits whose memory is kept: those of a long prompt are rarely wanted.
const keptLogits = 16 << 20

func (r *Runner) prepare(b *infer.Batch) {
	logits, hidden := 0, 0
	for i := range b.Items {
		l, h := r.wanted(&b.Items[i])
		logits, hidden = logits+l, hidden+h
	}
	s := r.step
	if cap(s.logits) > keptLogits && logits < cap(s.logits)/4 {
		s.logits = nil
	}
	s.logits = r.exchange.resize(&r.exchange.logits, s.logits, logits)
	s.hidden = resize(s.hidden, hidden)
	r.out = infer.Result{Logits: r.out.Logits[:0], Hidden: r.out.Hidden[:0]}
	logits, hidden = 0, 0
	for i := range b.Items {
		l, h := r.wanted(&b.Items[i])
		r.out.Logits = append(r.out.Logits, slice(s.logits, logits, l))
		r.out.Hidden = append(r.out.Hidden, slice(s.hidden, hidden, h))
		logits, hidden = logits+l, hidden+h
	}
	s.sent, s.sentHidden = 0, 0
}

func (r *Runner) wanted(it *infer.Item) (logits, hidden int) {
	switch it.Want {
	case infer.Last:
		return r.conf.Vocab, 0
	case infer.All:
		return len(it.Tokens) * r.conf.Vocab, 0
	case infer.Hidden:
		return 0, len(it.Tokens) * r.conf.Dim
	case infer.Rank:
		return 0, 1
	}
	return 0, 0
}

func slice(x []float32, at, n int) []float32 {
	if n == 0 {
		return nil
	}
	return x[at : at+n : at+n]
}
