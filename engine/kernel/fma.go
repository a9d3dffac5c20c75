//go:build !arm64

package kernel

import "math"

// fma returns x·y + z, rounded once to float32. The product is exact in float64. The sum is rounded twice, which
// matters only if the first rounding ends half-way between two float32.
func fma(x, y, z float32) float32 {
	s := float64(x)*float64(y) + float64(z)
	b := math.Float64bits(s)
	if b&(1<<29-1) == 1<<28 || b>>52&0x7ff < 1023-126 {
		return slowFMA(x, y, z)
	}
	return float32(s)
}

// slowFMA rounds the sum to odd first, so that it is never half-way (Boldo and Melquiond, 2008).
func slowFMA(x, y, z float32) float32 {
	p, c := float64(x)*float64(y), float64(z)
	s := p + c
	v := s - p
	rest := (p - (s - v)) + (c - v) // what the sum lost, exactly
	if b := math.Float64bits(s); rest != 0 && b&1 == 0 && !math.IsInf(s, 0) {
		if (rest > 0) == (s > 0) {
			s = math.Float64frombits(b + 1)
		} else {
			s = math.Float64frombits(b - 1)
		}
	}
	return float32(s)
}
