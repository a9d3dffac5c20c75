package kernel

import (
	"encoding/binary"
	"math"
)

const (
	q8Block = 32
	q8Bytes = 34
	group   = 3 // vectors that share one multiplication
)

// Q8Input holds activation vectors in the form in which Q8_0 rows are multiplied with
// them: per block of 32 values a scale max|x|/127 and 32 integers of -127…127.
//
// The integers are packed so that a 64-bit multiplication yields several products:
//
// One vector. Eight weight bytes w0…w7 come as one word. Its bytes j and j+4, made
// unsigned by adding 128, are cut out with one shift and one mask: w_j + w_j+4·2^32. Times the
// packed word x_j+4 + x_j·2^32 the upper half is w_j·x_j + w_j+4·x_j+4, and the lower
// half is a product that nobody wants. Sixteen of them make a block. The lower half's
// sum stays within 31 bits and is subtracted at the end, and 128·Σx is too.
//
// Several vectors, in groups of three: x + y·2^21 + z·2^42 times one weight carries the three
// products; a block's sum is at most 32·128·127 < 2^20, so the fields never meet.
//
// Both give the same integers, and the floating-point sum over blocks has one order, so a
// vector's products do not depend on its neighbours. The zero value is ready for
// Resize.
type Q8Input struct {
	t, n  int
	one   []uint64  // t = 1: [n/2]
	bias  []int32   // t = 1: [n/32] 128·Σx of a block
	three []int64   // t > 1: [groups, n]
	scale []float32 // t = 1: [n/32], else [groups, n/32, 3]
}

// Resize makes room for t vectors of n values, n a multiple of 32. Memory is kept between
// calls. Each group must be loaded before Mul.
func (in *Q8Input) Resize(t, n int) {
	in.t, in.n = t, n
	if t == 1 {
		in.one = grow(in.one, n/2)
		in.bias = grow(in.bias, n/q8Block)
		in.scale = grow(in.scale, n/q8Block)
		return
	}
	g := in.Groups()
	in.three = grow(in.three, g*n)
	in.scale = grow(in.scale, g*n/q8Block*group)
}

func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// Bytes is the memory that the Q8Input keeps.
func (in *Q8Input) Bytes() int64 {
	return int64(cap(in.one)+cap(in.three))*8 + int64(cap(in.bias)+cap(in.scale))*4
}

// Groups is the number of calls of Load that fill the input.
func (in *Q8Input) Groups() int {
	if in.t == 1 {
		return 1
	}
	return (in.t + group - 1) / group
}

// Group tells which vectors, lo ≤ i < hi, group g holds.
func (in *Q8Input) Group(g int) (lo, hi int) {
	return g * group, min(in.t, g*group+group)
}

// Load quantises the vectors of group g; x holds them, [hi-lo, n]. Different groups may
// be loaded by different goroutines.
func (in *Q8Input) Load(g int, x []float32) {
	var q [q8Block]int8
	if in.t == 1 {
		for b := range in.n / q8Block {
			in.scale[b] = quantize(&q, (*[q8Block]float32)(x[b*q8Block:]))
			in.bias[b] = packOne((*[16]uint64)(in.one[b*16:]), &q)
		}
		return
	}
	lo, hi := in.Group(g)
	words := in.three[g*in.n:][:in.n]
	scale := in.scale[g*in.n/q8Block*group:][:in.n/q8Block*group]
	clear(words)
	clear(scale)
	for i := range hi - lo {
		for b := range in.n / q8Block {
			scale[b*group+i] = quantize(&q, (*[q8Block]float32)(x[i*in.n+b*q8Block:]))
			w := (*[q8Block]int64)(words[b*q8Block:])
			for j := range w {
				w[j] += int64(q[j]) << (21 * i)
			}
		}
	}
}

// quantize rounds a block to integers, to nearest, ties to even, and returns the scale.
func quantize(q *[q8Block]int8, x *[q8Block]float32) float32 {
	var top float32
	for _, v := range x {
		if v < 0 {
			v = -v
		}
		if v > top {
			top = v
		}
	}
	var inv float32
	if top > 0 {
		inv = 127 / top
	}
	// Adding 1.5·2^23 leaves the rounded integer in the low bits of the sum.
	const magic = 0x1.8p23
	for j, v := range x {
		q[j] = int8(int32(math.Float32bits(float32(v*inv)+magic)) - 0x4b400000)
	}
	return top / 127
}

func packOne(w *[16]uint64, q *[q8Block]int8) (bias int32) {
	for k := range 4 {
		for j := range 4 {
			hi, lo := int64(q[8*k+j]), int64(q[8*k+j+4])
			w[4*k+j] = uint64(hi<<32 + lo)
			bias += int32(hi + lo)
		}
	}
	return bias * 128
}

// Mul multiplies rows of Q8_0 weights with all vectors: out[i·stride+r] = x_i · w_r. w is
// whole rows. Different rows may be computed by different goroutines at once.
func (in *Q8Input) Mul(out []float32, stride int, w []byte) {
	size := in.n / q8Block * q8Bytes
	rows := len(w) / size
	if in.t == 1 {
		for r := range rows {
			out[r] = dotOne(w[r*size:][:size], in.one, in.scale, in.bias)
		}
		return
	}
	nb := in.n / q8Block
	for g := range in.Groups() {
		lo, hi := in.Group(g)
		words, scale := in.three[g*in.n:][:in.n], in.scale[g*nb*group:][:nb*group]
		for r := range rows {
			var s [group]float32
			dotThree(w[r*size:][:size], words, scale, &s)
			for i := lo; i < hi; i++ {
				out[i*stride+r] = s[i-lo]
			}
		}
	}
}

const (
	lanes = 0x000000ff_000000ff
	flip  = 0x80808080_80808080 // adds 128 to each signed byte
)

// dotOne is a Q8_0 row times one vector.
func dotOne(w []byte, x []uint64, scale []float32, bias []int32) float32 {
	var sum float32
	bias = bias[:len(scale)]
	for i, d := range scale {
		b, xb := (*[q8Bytes]byte)(w[i*q8Bytes:]), (*[16]uint64)(x[i*16:])
		p := halfOne(binary.LittleEndian.Uint64(b[2:]), binary.LittleEndian.Uint64(b[10:]), (*[8]uint64)(xb[:]))
		p += halfOne(binary.LittleEndian.Uint64(b[18:]), binary.LittleEndian.Uint64(b[26:]), (*[8]uint64)(xb[8:]))
		s := int32((p-uint64(int64(int32(p))))>>32) - bias[i]
		sum += float32(float32(Half(binary.LittleEndian.Uint16(b[:]))*d) * float32(s))
	}
	return sum
}

// halfOne is half a block's weights times a packed half block. Inlined it would be slower:
// the compiler then loads all of a block's words first and spills them.
//
//go:noinline
func halfOne(u, v uint64, x *[8]uint64) uint64 {
	u, v = u^flip, v^flip
	p := (u & lanes) * x[0]
	q := (u >> 8 & lanes) * x[1]
	p += (u >> 16 & lanes) * x[2]
	q += (u >> 24 & lanes) * x[3]
	p += (v & lanes) * x[4]
	q += (v >> 8 & lanes) * x[5]
	p += (v >> 16 & lanes) * x[6]
	q += (v >> 24 & lanes) * x[7]
	return p + q
}

// dotThree is a Q8_0 row times a group of vectors.
func dotThree(w []byte, x []int64, scale []float32, out *[group]float32) {
	var s0, s1, s2 float32
	for len(x) >= q8Block && len(w) >= q8Bytes && len(scale) >= group {
		b, v, d := (*[q8Bytes]byte)(w), (*[q8Block]int64)(x), (*[group]float32)(scale)
		w, x, scale = w[q8Bytes:], x[q8Block:], scale[group:]
		p := blockThree(b, v)
		// Each field is taken as a signed number and removed, which undoes its borrow
		// from the next.
		f0 := p << 43 >> 43
		p = (p - f0) >> 21
		f1 := p << 43 >> 43
		f2 := (p - f1) >> 21
		h := Half(binary.LittleEndian.Uint16(b[:]))
		s0 += float32(float32(h*d[0]) * float32(f0))
		s1 += float32(float32(h*d[1]) * float32(f1))
		s2 += float32(float32(h*d[2]) * float32(f2))
	}
	out[0], out[1], out[2] = s0, s1, s2
}

// blockThree is a block's weights times three packed blocks. The loop is written out: the
// compiler does not do it, and it is a quarter of the time.
func blockThree(b *[q8Bytes]byte, x *[q8Block]int64) int64 {
	p := int64(int8(b[2])) * x[0]
	q := int64(int8(b[3])) * x[1]
	p += int64(int8(b[4])) * x[2]
	q += int64(int8(b[5])) * x[3]
	p += int64(int8(b[6])) * x[4]
	q += int64(int8(b[7])) * x[5]
	p += int64(int8(b[8])) * x[6]
	q += int64(int8(b[9])) * x[7]
	p += int64(int8(b[10])) * x[8]
	q += int64(int8(b[11])) * x[9]
	p += int64(int8(b[12])) * x[10]
	q += int64(int8(b[13])) * x[11]
	p += int64(int8(b[14])) * x[12]
	q += int64(int8(b[15])) * x[13]
	p += int64(int8(b[16])) * x[14]
	q += int64(int8(b[17])) * x[15]
	p += int64(int8(b[18])) * x[16]
	q += int64(int8(b[19])) * x[17]
	p += int64(int8(b[20])) * x[18]
	q += int64(int8(b[21])) * x[19]
	p += int64(int8(b[22])) * x[20]
	q += int64(int8(b[23])) * x[21]
	p += int64(int8(b[24])) * x[22]
	q += int64(int8(b[25])) * x[23]
	p += int64(int8(b[26])) * x[24]
	q += int64(int8(b[27])) * x[25]
	p += int64(int8(b[28])) * x[26]
	q += int64(int8(b[29])) * x[27]
	p += int64(int8(b[30])) * x[28]
	q += int64(int8(b[31])) * x[29]
	p += int64(int8(b[32])) * x[30]
	q += int64(int8(b[33])) * x[31]
	return p + q
}
