package kernel

import "math"

// RMSNorm writes x / sqrt(mean(x²)+eps) · w to out, which may be x itself. The mean is taken in double precision.
func RMSNorm(out, x, w []float32, eps float32) {
	scale := float32(1 / math.Sqrt(squares(x)/float64(len(x))+float64(eps)))
	out, w = out[:len(x)], w[:len(x)]
	n := normVector(out, x, w, scale)
	for i := n; i < len(x); i++ {
		out[i] = float32(x[i]*scale) * w[i]
	}
}

// LayerNorm writes (x-mean) / sqrt(variance+eps) · w + b to out, which may be x itself. Mean and variance are sums in
// double precision.
func LayerNorm(out, x, w, b []float32, eps float32) {
	sum := 0.0
	for _, v := range x {
		sum += float64(v)
	}
	mean := float32(sum / float64(len(x)))
	out, w, b = out[:len(x)], w[:len(x)], b[:len(x)]
	for i, v := range x {
		out[i] = v - mean
	}
	scale := float32(1 / math.Sqrt(squares(out)/float64(len(x))+float64(eps)))
	for i, v := range out {
		out[i] = float32(float32(v*scale)*w[i]) + b[i]
	}
}

// squares adds element i to the sum i mod 16, and then the sums in pairs.
func squares(x []float32) float64 {
	var l [16]float64
	n := squaresVector(&l, x)
	for i, v := range x[n:] {
		l[i%16] += float64(v) * float64(v)
	}
	for w := 8; w > 0; w /= 2 {
		for i := range w {
			l[i] += l[i+w]
		}
	}
	return l[0]
}

// Rope rotates the first 2·len(cos) values of one head in place. Pairs are (2i, 2i+1), with neox (i, i+len(cos)).
func Rope(v, cos, sin []float32, neox bool) {
	n := len(cos)
	sin = sin[:n]
	if neox {
		a, b := v[:n], v[n:2*n]
		for i := ropeHalvesVector(a, b, cos, sin); i < n; i++ {
			x, y, c, s := a[i], b[i], cos[i], sin[i]
			a[i] = float32(x*c) - float32(y*s)
			b[i] = float32(x*s) + float32(y*c)
		}
		return
	}
	v = v[:2*n]
	for i := ropePairsVector(v, cos, sin); i < n; i++ {
		x, y, c, s := v[2*i], v[2*i+1], cos[i], sin[i]
		v[2*i] = float32(x*c) - float32(y*s)
		v[2*i+1] = float32(x*s) + float32(y*c)
	}
}
