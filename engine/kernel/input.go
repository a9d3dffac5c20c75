package kernel

import (
	"math"

	"github.com/rouse-dev/rouse/engine/gguf"
)

// Input holds activation vectors: floats for F32, F16 and BF16, and 8-bit integers in blocks of 32 with a scale each
// for all other types. The zero value is ready for Resize.
type Input struct {
	cols        int
	integer     bool
	stride      int       // values from a vector to the next, in floats or ints
	blockStride int       // in blocks
	floats      []float32 // [tokens, stride]
	ints        []int8    // [tokens, stride]
	blocks      []block   // [tokens, blockStride]
}

// block describes 32 integers of an Input. Assembly knows its layout.
type block struct {
	scale  float32  // max|x|/127: a value is scale·int
	sum    float32  // scale · total, rounded once
	total  int32    // of all 32
	halves [2]int16 // of the first and the last 16
}

// Resize makes room for vectors of cols values for matrices of type t, and keeps memory between calls. Each vector
// must be loaded before it is used.
func (in *Input) Resize(t gguf.Type, tokens, cols int) {
	in.cols, in.integer = cols, formats[t].integer
	if !in.integer {
		in.stride = stride(cols, 4)
		in.floats = grow(in.floats, tokens*in.stride)
		return
	}
	in.stride, in.blockStride = stride(cols, 1), stride(cols/32, 16)
	in.ints = grow(in.ints, tokens*in.stride)
	in.blocks = grow(in.blocks, tokens*in.blockStride)
}

// stride rounds n up so that vectors begin an odd number of cache lines apart: the same place of several is then in
// different sets of the cache.
func stride(n, size int) int {
	lines := (n*size + 63) / 64
	return (lines | 1) * 64 / size
}

// Fits reports whether the loaded vectors can be multiplied with matrices of type t.
func (in *Input) Fits(t gguf.Type) bool { return in.integer == formats[t].integer }

// Bytes returns the memory that the Input keeps.
func (in *Input) Bytes() int64 {
	return int64(cap(in.floats))*4 + int64(cap(in.ints)) + int64(cap(in.blocks))*16
}

// Load loads the vectors lo ≤ t < hi from x [hi-lo, cols]. Calls for different vectors may run at the same time.
func (in *Input) Load(x []float32, lo, hi int) {
	n := in.cols
	for t := lo; t < hi; t++ {
		row := x[(t-lo)*n:][:n]
		if in.integer {
			quantizeRow(in.ints[t*in.stride:][:n], in.blocks[t*in.blockStride:][:n/32], row)
		} else {
			copy(in.floats[t*in.stride:], row)
		}
	}
}

// Values that are not finite become any integers of -127…127. Rounding is to nearest, ties to even.
func quantizeRow(q []int8, blocks []block, x []float32) {
	if quantizeVector(q, blocks, x) {
		return
	}
	for i := range blocks {
		quantizeBlock((*[32]int8)(q[32*i:]), &blocks[i], (*[32]float32)(x[32*i:]))
	}
}

func quantizeBlock(q *[32]int8, b *block, x *[32]float32) {
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
	b.halves = [2]int16{}
	for i, v := range x {
		// Adding 1.5·2^23 leaves the rounded integer in the low bits of the sum.
		n := max(-127, int8(int32(math.Float32bits(float32(v*inv)+0x1.8p23))))
		q[i] = n
		b.halves[i/16] += int16(n)
	}
	b.scale = top / 127
	b.total = int32(b.halves[0]) + int32(b.halves[1])
	b.sum = b.scale * float32(b.total)
}

func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
