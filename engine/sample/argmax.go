package sample

import (
	"math/bits"

	"github.com/rouse-dev/rouse/engine/kernel"
)

// argmax returns the lowest token of the largest logit in mask (nil: all), or -1 if none is above -Inf. NaN is never
// the largest.
func argmax(logits []float32, mask []uint64) int32 {
	best, token := negInf, int32(-1)
	if mask == nil {
		if len(logits) == 0 {
			return -1
		}
		if t := kernel.ArgMax(logits); logits[t] > best {
			return int32(t)
		}
		return -1
	}
	for i, word := range mask {
		for ; word != 0; word &= word - 1 {
			t := i<<6 + bits.TrailingZeros64(word)
			if t >= len(logits) {
				return token
			}
			if l := logits[t]; l > best {
				best, token = l, int32(t)
			}
		}
	}
	return token
}
