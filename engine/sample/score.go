package sample

import (
	"math"
	"slices"

	"github.com/rouse-dev/rouse/engine/kernel"
)

// Score returns token with its log probability and the top most probable tokens, of equals the lower first.
func Score(logits []float32, token int32, top int) Choice {
	norm := logSumExp(logits)
	logprob := func(l float32) float32 {
		if p := float32(float64(l) - norm); p == p {
			return p
		}
		return negInf
	}
	c := Choice{Token: token, Logprob: negInf}
	if token >= 0 && int(token) < len(logits) {
		c.Logprob = logprob(logits[token])
	}
	for t, l := range logits {
		n := len(c.Top)
		if l != l || n == top && (n == 0 || l <= c.Top[n-1].Logprob) {
			continue
		}
		at := n
		for at > 0 && c.Top[at-1].Logprob < l {
			at--
		}
		c.Top = slices.Insert(c.Top, at, Alternative{int32(t), l}) // a logit until the end
		c.Top = c.Top[:min(top, n+1)]
	}
	for i := range c.Top {
		c.Top[i].Logprob = logprob(c.Top[i].Logprob)
	}
	return c
}

// logSumExp is log Σ exp(logits).
func logSumExp(logits []float32) float64 {
	top := argmax(logits, nil)
	if top < 0 {
		return 0
	}
	largest, sum := logits[top], 0.0
	var part [span]float32
	for lo := 0; lo < len(logits); lo += span {
		n := copy(part[:], logits[lo:])
		for i, l := range part[:n] {
			if l != l {
				part[i] = negInf
			}
		}
		sum += float64(kernel.ExpSum(part[:n], largest))
	}
	return float64(largest) + math.Log(sum)
}
