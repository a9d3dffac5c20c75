//go:build amd64 || arm64

package kernel

// Each function here computes the first part of its slices and returns its length; the caller computes the rest, to
// the same bits.

func wholeVectors(n, lanes int) int {
	if using == generic {
		return 0
	}
	return n - n%lanes
}

func narrowVector(dst []uint16, src []float32) int {
	n := wholeVectors(len(src), 8)
	if n > 0 {
		narrowAsm(&dst[0], &src[0], n)
	}
	return n
}

func siluVector(gate, up []float32) int {
	n := wholeVectors(len(gate), 8)
	if n > 0 {
		siluAsm(&gate[0], &up[0], n)
	}
	return n
}

func geluVector(gate, up []float32) int {
	n := wholeVectors(len(gate), 8)
	if n > 0 {
		geluAsm(&gate[0], &up[0], n)
	}
	return n
}

func softcapVector(x []float32, limit, inv float32) int {
	n := wholeVectors(len(x), 8)
	if n > 0 {
		softcapAsm(&x[0], n, limit, inv)
	}
	return n
}

func expSumVector(l *lanes16, x []float32, top float32) int {
	n := wholeVectors(len(x), 16)
	if n > 0 {
		expSumAsm(l, &x[0], n, top)
	}
	return n
}

func maximumVector(x []float32, top *float32) int {
	n := wholeVectors(len(x), 16)
	if n > 0 {
		*top = maximumAsm(&x[0], n)
	}
	return n
}

func normVector(out, x, w []float32, scale float32) int {
	n := wholeVectors(len(x), 8)
	if n > 0 {
		normAsm(&out[0], &x[0], &w[0], n, scale)
	}
	return n
}

func squaresVector(l *[16]float64, x []float32) int {
	n := wholeVectors(len(x), 16)
	if n > 0 {
		squaresAsm(l, &x[0], n)
	}
	return n
}

func addVector(acc, v []float32) int {
	n := wholeVectors(len(acc), 8)
	if n > 0 {
		addAsm(&acc[0], &v[0], n)
	}
	return n
}

func scaleVector(x []float32, f float32) int {
	n := wholeVectors(len(x), 8)
	if n > 0 {
		scaleAsm(&x[0], n, f)
	}
	return n
}

func axpyVector(acc []float32, p float32, v []float32) int {
	n := wholeVectors(len(acc), 8)
	if n > 0 {
		axpyAsm(&acc[0], &v[0], n, p)
	}
	return n
}

func ropeHalvesVector(a, b, cos, sin []float32) int {
	n := wholeVectors(len(cos), 8)
	if n > 0 {
		ropeHalvesAsm(&a[0], &b[0], &cos[0], &sin[0], n)
	}
	return n
}

func ropePairsVector(v, cos, sin []float32) int {
	n := wholeVectors(len(cos), 4)
	if n > 0 {
		ropePairsAsm(&v[0], &cos[0], &sin[0], n)
	}
	return n
}

// Lengths are multiples of 8; of 16 where there are 16 lanes or a maximum, of 4 for pairs.

//go:noescape
func narrowAsm(dst *uint16, src *float32, n int)

//go:noescape
func siluAsm(gate, up *float32, n int)

//go:noescape
func geluAsm(gate, up *float32, n int)

//go:noescape
func softcapAsm(x *float32, n int, limit, inv float32)

//go:noescape
func expSumAsm(lanes *lanes16, x *float32, n int, top float32)

//go:noescape
func maximumAsm(x *float32, n int) float32

//go:noescape
func normAsm(out, x, w *float32, n int, scale float32)

//go:noescape
func squaresAsm(lanes *[16]float64, x *float32, n int)

//go:noescape
func addAsm(acc, v *float32, n int)

//go:noescape
func scaleAsm(x *float32, n int, f float32)

//go:noescape
func axpyAsm(acc, v *float32, n int, p float32)

//go:noescape
func ropeHalvesAsm(a, b, cos, sin *float32, n int)

//go:noescape
func ropePairsAsm(v, cos, sin *float32, n int)
