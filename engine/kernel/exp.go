package kernel

import "math"

// The constants of Exp, in the order of the vector code's table.
const (
	expLow    = -87
	expHigh   = 88
	log2e     = 0x1.715476p0
	expMagic  = 0x1.8p23    // leaves the nearest integer in a float32's low bits
	ln2Large  = 0x1.62e4p-1 // ln 2 in two parts; the first times a small integer is exact
	ln2Small  = 0x1.7f7d1cp-20
	geluCubic = 0.044715
	geluScale = -2 * 0.7978845608028654 // √(2/π)
)

// Exp returns e^x with a relative error below 2e-7: x = n·ln 2 + r, Taylor's polynomial for e^r up to r^7, and n
// added to the exponent. Below -87 it returns 0, above 88 infinity.
func Exp(x float32) float32 {
	switch {
	case x != x:
		return x
	case x < expLow:
		return 0
	case x > expHigh:
		return float32(math.Inf(1))
	}
	t := fma(x, log2e, expMagic)
	n := t - expMagic
	r := fma(n, -ln2Small, fma(n, -ln2Large, x))
	p := fma(r, 1.0/5040, 1.0/720)
	p = fma(p, r, 1.0/120)
	p = fma(p, r, 1.0/24)
	p = fma(p, r, 1.0/6)
	p = fma(p, r, 0.5)
	p = fma(p, r, 1)
	p = fma(p, r, 1)
	return math.Float32frombits(math.Float32bits(p) + math.Float32bits(t)<<23)
}

// SiLUMul writes gate·sigmoid(gate)·up to gate.
func SiLUMul(gate, up []float32) {
	up = up[:len(gate)]
	n := siluVector(gate, up)
	for i := n; i < len(gate); i++ {
		g := gate[i]
		gate[i] = float32(g/(1+Exp(-g))) * up[i]
	}
}

// ClampedMul writes g·sigmoid(1.702·g)·(u+1) to gate, where g is at most 7 and u, of up, from -7 to 7: gpt-oss's
// SwiGLU.
func ClampedMul(gate, up []float32) {
	up = up[:len(gate)]
	for i, g := range gate {
		g = min(g, 7)
		gate[i] = float32(g/(1+Exp(float32(g*-1.702)))) * (max(-7, min(up[i], 7)) + 1)
	}
}

// GELUMul writes gelu(gate)·up to gate, in its tanh form: x·sigmoid(2·√(2/π)·(x + 0.044715·x³)). (Hendrycks and
// Gimpel, arXiv:1606.08415.)
func GELUMul(gate, up []float32) {
	up = up[:len(gate)]
	n := geluVector(gate, up)
	for i := n; i < len(gate); i++ {
		g := gate[i]
		u := float32(g*geluScale) * fma(float32(g*g), geluCubic, 1)
		gate[i] = float32(g/(1+Exp(u))) * up[i]
	}
}

// GELU replaces x by its exact form, x·(1+erf(x/√2))/2. The error function has an absolute error below 1e-6 (Eigen's
// generic_fast_erf_float).
func GELU(x []float32) {
	for i, v := range x {
		z := max(-4, min(4, float32(v*0.70710678)))
		s := float32(z * z)
		p := float32(s*-2.72614225801306e-10) + 2.77068142495902e-08
		p = float32(p*s) - 2.10102402082508e-06
		p = float32(p*s) - 5.69250639462346e-05
		p = float32(p*s) - 7.34990630326855e-04
		p = float32(p*s) - 2.95459980854025e-03
		p = float32(p*s) - 1.60960333262415e-02
		q := float32(s*-1.45660718464996e-05) - 2.13374055278905e-04
		q = float32(q*s) - 1.68282697438203e-03
		q = float32(q*s) - 7.37332916720468e-03
		q = float32(q*s) - 1.42647390514189e-02
		x[i] = float32(v*0.5) * (1 + float32(z*p)/q)
	}
}

// Softcap replaces x by limit·tanh(x/limit).
func Softcap(x []float32, limit float32) {
	inv := 2 / limit
	n := softcapVector(x, limit, inv)
	for i := n; i < len(x); i++ {
		x[i] = limit * (1 - 2/(Exp(x[i]*inv)+1))
	}
}

// lanes16 are the partial sums of a reduction: element i goes to lane i mod 16.
type lanes16 [16]float32

func (l *lanes16) sum() float32 {
	for w := 8; w > 0; w /= 2 {
		for i := range w {
			l[i] += l[i+w]
		}
	}
	return l[0]
}

// ExpSum replaces x by e^(x-top) and returns the sum.
func ExpSum(x []float32, top float32) float32 {
	var l lanes16
	n := expSumVector(&l, x, top)
	for i := n; i < len(x); i++ {
		x[i] = Exp(x[i] - top)
		l[i%16] += x[i]
	}
	return l.sum()
}

// larger returns top if v is NaN.
func larger(v, top float32) float32 {
	if v > top {
		return v
	}
	return top
}

// maximum returns -Inf if there is no number.
func maximum(x []float32) float32 {
	top := float32(math.Inf(-1))
	n := maximumVector(x, &top)
	for _, v := range x[n:] {
		top = larger(v, top)
	}
	return top
}

// ArgMax returns the index of the largest number, the first of equals. Without any number it returns 0.
func ArgMax(x []float32) int {
	const chunk = 1024
	top, from := float32(math.Inf(-1)), 0 // from is the first chunk with the largest number
	for i := 0; i < len(x); i += chunk {
		if m := maximum(x[i:min(i+chunk, len(x))]); m > top {
			top, from = m, i
		}
	}
	for i, v := range x[from:] {
		if v == top {
			return from + i
		}
	}
	return 0
}
