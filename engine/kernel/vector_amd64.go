package kernel

// Each function here computes the first part of its slices by vector instructions and tells how
// much that is; its caller computes the rest, to the same bits.

// wholeVectors is how many of n elements are left to vector instructions, lanes at a time.
func wholeVectors(n, lanes int) int {
	if using == generic {
		return 0
	}
	return n - n%lanes
}

func narrowVector(dst []uint16, src []float32) int {
	n := wholeVectors(len(src), 8)
	if n > 0 {
		narrowAVX2(&dst[0], &src[0], n)
	}
	return n
}

func siluVector(gate, up []float32) int {
	n := wholeVectors(len(gate), 8)
	if n > 0 {
		siluAVX2(&gate[0], &up[0], n)
	}
	return n
}

func geluVector(gate, up []float32) int {
	n := wholeVectors(len(gate), 8)
	if n > 0 {
		geluAVX2(&gate[0], &up[0], n)
	}
	return n
}

func softcapVector(x []float32, limit, inv float32) int {
	n := wholeVectors(len(x), 8)
	if n > 0 {
		softcapAVX2(&x[0], n, limit, inv)
	}
	return n
}

func expSumVector(l *lanes16, x []float32, top float32) int {
	n := wholeVectors(len(x), 16)
	if n > 0 {
		expSumAVX2(l, &x[0], n, top)
	}
	return n
}

func maximumVector(x []float32, top *float32) int {
	n := wholeVectors(len(x), 16)
	if n > 0 {
		*top = maximumAVX2(&x[0], n)
	}
	return n
}

func normVector(out, x, w []float32, scale float32) int {
	n := wholeVectors(len(x), 8)
	if n > 0 {
		normAVX2(&out[0], &x[0], &w[0], n, scale)
	}
	return n
}

func squaresVector(l *[16]float64, x []float32) int {
	n := wholeVectors(len(x), 16)
	if n > 0 {
		squaresAVX2(l, &x[0], n)
	}
	return n
}

func addVector(acc, v []float32) int {
	n := wholeVectors(len(acc), 8)
	if n > 0 {
		addAVX2(&acc[0], &v[0], n)
	}
	return n
}

func scaleVector(x []float32, f float32) int {
	n := wholeVectors(len(x), 8)
	if n > 0 {
		scaleAVX2(&x[0], n, f)
	}
	return n
}

func axpyVector(acc []float32, p float32, v []float32) int {
	n := wholeVectors(len(acc), 8)
	if n > 0 {
		axpyAVX2(&acc[0], &v[0], n, p)
	}
	return n
}

func ropeHalvesVector(a, b, cos, sin []float32) int {
	n := wholeVectors(len(cos), 8)
	if n > 0 {
		ropeHalvesAVX2(&a[0], &b[0], &cos[0], &sin[0], n)
	}
	return n
}

func ropePairsVector(v, cos, sin []float32) int {
	n := wholeVectors(len(cos), 4)
	if n > 0 {
		ropePairsAVX2(&v[0], &cos[0], &sin[0], n)
	}
	return n
}

// The assembly. Lengths are multiples of 8; of 16 where there are 16 lanes or a
// maximum, of 4 for pairs.

//go:noescape
func narrowAVX2(dst *uint16, src *float32, n int)

//go:noescape
func siluAVX2(gate, up *float32, n int)

//go:noescape
func geluAVX2(gate, up *float32, n int)

//go:noescape
func softcapAVX2(x *float32, n int, limit, inv float32)

//go:noescape
func expSumAVX2(lanes *lanes16, x *float32, n int, top float32)

//go:noescape
func maximumAVX2(x *float32, n int) float32

//go:noescape
func normAVX2(out, x, w *float32, n int, scale float32)

//go:noescape
func squaresAVX2(lanes *[16]float64, x *float32, n int)

//go:noescape
func addAVX2(acc, v *float32, n int)

//go:noescape
func scaleAVX2(x *float32, n int, f float32)

//go:noescape
func axpyAVX2(acc, v *float32, n int, p float32)

//go:noescape
func ropeHalvesAVX2(a, b, cos, sin *float32, n int)

//go:noescape
func ropePairsAVX2(v, cos, sin *float32, n int)
