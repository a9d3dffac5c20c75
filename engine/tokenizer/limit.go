package tokenizer

import (
	"context"
	"fmt"
	"runtime"
)

// textBytes is the most memory per byte of a text's NFC form: the chain, the ids twice, and copies of the text.
const textBytes = placeBytes + 4 + 2 + 3

// composed is the most that NFC grows a text (UAX #15, section 9).
const composed = 3

// lanes bound how many texts of a size are encoded at once, in at most 450 MiB. A text never waits for a larger one.
var lanes = [...]struct{ bytes, texts int }{{64 << 10, 32}, {512 << 10, 4}, {4 << 20, 1}, {MaxText, 1}}

// MaxText bounds texts, by Bytes, for this memory: twice a context of two million tokens.
const MaxText = 16 << 20

type limiter [len(lanes)]chan struct{} // enter sends, leave receives

func newLimiter() *limiter {
	r := &limiter{}
	for i := range r {
		r[i] = make(chan struct{}, lanes[i].texts)
	}
	return r
}

func (r *limiter) enter(ctx context.Context, bytes int) (leave func(), err error) {
	i := 0
	for i < len(lanes)-1 && bytes > lanes[i].bytes {
		i++
	}
	select {
	case r[i] <- struct{}{}:
		if i == len(lanes)-1 {
			runtime.GC() // or the garbage of earlier texts stays
		}
		return func() { <-r[i] }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait to encode a text: %w", context.Cause(ctx))
	}
}
