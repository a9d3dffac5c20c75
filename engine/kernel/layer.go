package kernel

import "math"

// RMSNorm writes x / sqrt(mean(x²)+eps) · w to out, which may be x itself. The mean is
// taken in double precision, as in ggml.
func RMSNorm(out, x, w []float32, eps float32) {
	var sum float64
	for _, v := range x {
		sum += float64(float64(v) * float64(v))
	}
	scale := float32(1 / math.Sqrt(sum/float64(len(x))+float64(eps)))
	out, w = out[:len(x)], w[:len(x)]
	for i, v := range x {
		out[i] = float32(v*scale) * w[i]
	}
}

// RopeAngles fills cos and sin of the rotations at one position: pair i turns by
// pos / scale · base^(-2i/dim) / factors[i], where dim = 2·len(cos) and factors may be nil.
// (Su et al., RoFormer, arXiv:2104.09864.)
func RopeAngles(cos, sin []float32, pos int, base, scale float64, factors []float32) {
	step := math.Log(base) / float64(len(cos))
	for i := range cos {
		a := float64(pos) / scale * math.Exp(-float64(i)*step)
		if factors != nil {
			a /= float64(factors[i])
		}
		s, c := math.Sincos(a)
		cos[i], sin[i] = float32(c), float32(s)
	}
}

// Rope rotates the first 2·len(cos) values of one head in place. Pairs are (2i, 2i+1),
// with neox (i, i+len(cos)).
func Rope(v, cos, sin []float32, neox bool) {
	n := len(cos)
	sin = sin[:n]
	if neox {
		a, b := v[:n], v[n:2*n]
		for i, c := range cos {
			x, y, s := a[i], b[i], sin[i]
			a[i] = float32(x*c) - float32(y*s)
			b[i] = float32(x*s) + float32(y*c)
		}
		return
	}
	v = v[:2*n]
	for i, c := range cos {
		x, y, s := v[2*i], v[2*i+1], sin[i]
		v[2*i] = float32(x*c) - float32(y*s)
		v[2*i+1] = float32(x*s) + float32(y*c)
	}
}

// Softmax replaces x by exp(scale·x) normalised to a sum of 1.
func Softmax(x []float32, scale float32) {
	top := float32(math.Inf(-1))
	for i, v := range x {
		v *= scale
		x[i] = v
		if v > top {
			top = v
		}
	}
	var sum float32
	for i, v := range x {
		v = Exp(v - top)
		x[i] = v
		sum += v
	}
	inv := 1 / sum
	for i := range x {
		x[i] *= inv
	}
}

// SiLUMul writes gate·sigmoid(gate)·up to gate.
func SiLUMul(gate, up []float32) {
	up = up[:len(gate)]
	for i, g := range gate {
		gate[i] = float32(g/(1+Exp(-g))) * up[i]
	}
}

// Exp is e^x with a relative error below 2e-7: x = n·ln 2 + r with |r| ≤ ln 2 / 2, a
// polynomial for e^r, and n added to the exponent. Below -87 it is 0, above 88 infinite.
func Exp(x float32) float32 {
	switch {
	case x != x:
		return x
	case x < -87:
		return 0
	case x > 88:
		return float32(math.Inf(1))
	}
	const magic = 0x1.8p23               // rounds to an integer, as in quantize
	t := float32(x*0x1.715476p0) + magic // log2 e
	n := t - magic
	r := x - float32(n*0x1.62e4p-1) // ln 2 in two parts; the first times n is exact
	r -= float32(n * 0x1.7f7d1cp-20)
	p := float32(r*(1.0/5040)) + 1.0/720 // Taylor up to r^7: the rest is below 6e-9
	p = float32(p*r) + 1.0/120
	p = float32(p*r) + 1.0/24
	p = float32(p*r) + 1.0/6
	p = float32(p*r) + 0.5
	p = float32(float32(p*r)*r) + r + 1
	e := (math.Float32bits(t) - 0x4b400000 + 127) << 23 // 2^n
	return p * math.Float32frombits(e)
}
