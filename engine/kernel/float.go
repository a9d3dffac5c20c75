package kernel

import "encoding/binary"

// MulF32 multiplies rows of F32 weights with vectors: for each vector i of x [t, n] and each
// row r of w [rows, n], out[i·stride+r] = x_i · w_r.
func MulF32(out []float32, stride int, w, x []float32, t, n int) {
	rows := len(w) / n
	row := func(r int) []float32 { return w[r*n : r*n+n] }
	vec := func(i int) []float32 { return x[i*n : i*n+n] }
	i := 0
	for ; i+4 <= t; i += 4 { // four vectors share each row
		x0, x1, x2, x3 := vec(i), vec(i+1), vec(i+2), vec(i+3)
		for r := range rows {
			o := out[i*stride+r:]
			o[0], o[stride], o[2*stride], o[3*stride] = Dot4(row(r), x0, x1, x2, x3)
		}
	}
	for ; i < t; i++ { // four rows share each vector
		v, o := vec(i), out[i*stride:][:rows]
		r := 0
		for ; r+4 <= rows; r += 4 {
			o[r], o[r+1], o[r+2], o[r+3] = Dot4(v, row(r), row(r+1), row(r+2), row(r+3))
		}
		for ; r < rows; r++ {
			o[r] = Dot(v, row(r))
		}
	}
}

// Dot is the product of two vectors of len(a): even and odd positions are summed apart,
// each in order.
func Dot(a, b []float32) float32 {
	b = b[:len(a)]
	var even, odd float32
	i := 0
	for ; i+1 < len(a); i += 2 {
		even += float32(a[i] * b[i])
		odd += float32(a[i+1] * b[i+1])
	}
	if i < len(a) {
		even += float32(a[i] * b[i])
	}
	return even + odd
}

// Dot4 is Dot of a with four vectors.
func Dot4(a, b0, b1, b2, b3 []float32) (s0, s1, s2, s3 float32) {
	b0, b1, b2, b3 = b0[:len(a)], b1[:len(a)], b2[:len(a)], b3[:len(a)]
	var t0, t1, t2, t3 float32
	i := 0
	for ; i+1 < len(a); i += 2 {
		x, y := a[i], a[i+1]
		s0 += float32(b0[i] * x)
		s1 += float32(b1[i] * x)
		s2 += float32(b2[i] * x)
		s3 += float32(b3[i] * x)
		t0 += float32(b0[i+1] * y)
		t1 += float32(b1[i+1] * y)
		t2 += float32(b2[i+1] * y)
		t3 += float32(b3[i+1] * y)
	}
	if i < len(a) {
		x := a[i]
		s0 += float32(b0[i] * x)
		s1 += float32(b1[i] * x)
		s2 += float32(b2[i] * x)
		s3 += float32(b3[i] * x)
	}
	return s0 + t0, s1 + t1, s2 + t2, s3 + t3
}

// Axpy4 is Axpy of four vectors, one after another.
func Axpy4(acc []float32, p *[4]float32, v0, v1, v2, v3 []float32) {
	for i, v := range [...][]float32{v0, v1, v2, v3} {
		Axpy(acc, p[i], v)
	}
}

// WidenQ8 decodes len(dst) values, a multiple of 32, from Q8_0 blocks.
func WidenQ8(dst []float32, src []byte) {
	for len(dst) >= 32 {
		b := (*[q8Bytes]byte)(src)
		d := Half(binary.LittleEndian.Uint16(b[:]))
		for j := range 32 {
			dst[j] = d * float32(int8(b[2+j]))
		}
		dst, src = dst[32:], src[q8Bytes:]
	}
}
