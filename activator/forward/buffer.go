package forward

import (
	"context"
	"sync"
)

// smallBuffer is what an answer is read into at first.
const smallBuffer = 16 << 10

// Buffers of that size are pooled; larger ones are left to the garbage collector.
var smallBuffers = sync.Pool{New: func() any { b := make([]byte, smallBuffer); return &b }}

func giveBack(b *[]byte) {
	if cap(*b) == smallBuffer {
		smallBuffers.Put(b)
	}
}

// held is the memory that an answer holds beyond its first buffer. It belongs to one goroutine at a time.
type held struct {
	ctx     context.Context
	account Memory // nil: nobody counts
	bytes   int64
	refused bool // there was none once
}

// charge charges n bytes.
func (h *held) charge(n int64) error {
	if h.account == nil {
		return nil
	}
	if err := h.account.Take(h.ctx, n); err != nil {
		h.refused = true
		return err
	}
	h.bytes += n
	return nil
}

// give takes n bytes off.
func (h *held) give(n int64) {
	if h.account != nil && n > 0 {
		h.account.Give(n)
		h.bytes -= n
	}
}

func (h *held) release() { h.give(h.bytes) }
