package sample

import (
	"math"
	"math/bits"
)

// argmax returns the lowest token with the largest logit among those that mask
// holds, -1 if there is none above -Inf. A nil mask holds all. NaN is never the largest.
func argmax(logits []float32, mask []uint64) int32 {
	best, token := negInf, int32(-1)
	if mask == nil {
		for t, l := range logits {
			if l > best {
				best, token = l, int32(t)
			}
		}
		return token
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

// Steps of 2^(1/64), for exp.
const expSteps = 64

var expTable = func() (t [expSteps]uint64) {
	for i := range t {
		t[i] = math.Float64bits(math.Exp2(float64(i) / expSteps))
	}
	return t
}()

// exp is math.Exp for arguments from -700 to 0, to 13 digits and three times as
// fast: a large vocabulary takes a hundred thousand of them for one token. NaN stays NaN.
func exp(x float64) float64 {
	if !(x > -700) {
		return math.Exp(x)
	}
	n := x * (expSteps / math.Ln2)
	k := int64(n - 0.5) // rounds to the nearest: n is not positive
	r := x - float64(k)*(math.Ln2/expSteps)
	// |r| ≤ ln 2 / 128, where the fifth term of the series is below 1e-13.
	p := 1 + r*(1+r*(1./2+r*(1./6+r*(1./24))))
	return math.Float64frombits(expTable[k&(expSteps-1)]+uint64(k>>6)<<52) * p
}
