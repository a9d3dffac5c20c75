package kernel

import (
	"encoding/binary"
	"math"
)

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

// Axpy adds p·v to acc.
func Axpy(acc []float32, p float32, v []float32) {
	v = v[:len(acc)]
	for i := range acc {
		acc[i] += float32(p * v[i])
	}
}

// Axpy4 is Axpy of four vectors, one after another.
func Axpy4(acc []float32, p *[4]float32, v0, v1, v2, v3 []float32) {
	v0, v1, v2, v3 = v0[:len(acc)], v1[:len(acc)], v2[:len(acc)], v3[:len(acc)]
	p0, p1, p2, p3 := p[0], p[1], p[2], p[3]
	for i := range acc {
		a := acc[i] + float32(p0*v0[i])
		a += float32(p1 * v1[i])
		a += float32(p2 * v2[i])
		acc[i] = a + float32(p3*v3[i])
	}
}

// Add adds v to acc.
func Add(acc, v []float32) {
	v = v[:len(acc)]
	for i := range acc {
		acc[i] += v[i]
	}
}

// Half widens an IEEE 754 half. It is small enough to be inlined.
func Half(h uint16) float32 {
	// The arithmetic shift leaves the sign on top, the mask clears its copies. The half's
	// exponent bias is 15, the single's 127: 2^112 makes up for it, for subnormals too.
	b := uint32(int32(int16(h))<<13) & 0x8fffe000
	if h&0x7c00 == 0x7c00 { // infinity, NaN
		return math.Float32frombits(b | 0x7f800000)
	}
	return math.Float32frombits(b) * 0x1p112
}

// WidenF16 decodes len(dst) halves from src.
func WidenF16(dst []float32, src []byte) {
	src = src[:2*len(dst)]
	for i := range dst {
		dst[i] = Half(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

// WidenBF16 decodes len(dst) bfloat16 values from src.
func WidenBF16(dst []float32, src []byte) {
	src = src[:2*len(dst)]
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
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
