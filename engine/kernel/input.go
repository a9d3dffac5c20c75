package kernel

import "github.com/rouse-dev/rouse/engine/gguf"

// Input holds activation vectors in the form in which matrices are multiplied with them.
// There are two: floats for F32, F16 and BF16, and for all other types 8-bit integers in
// blocks of 32 with a scale each. The zero value is ready for Resize.
type Input struct {
	tokens, cols int
	integer      bool
	floats       []float32 // [tokens, cols]
	ints         []int8    // [tokens, cols]
	blocks       []block   // [tokens, cols/32]
}

// block describes 32 integers of an Input. Assembly knows its layout: 16 bytes, in
// this order.
type block struct {
	scale  float32  // max|x|/127: a value is scale·int
	sum    float32  // scale · the sum of all 32, rounded once
	total  int32    // the sum of all 32
	halves [2]int16 // the sums of the first and the last 16
}

// Resize makes room for vectors of cols values that are multiplied with matrices of type t.
// Memory is kept between calls. Each vector must be loaded before it is used.
func (in *Input) Resize(t gguf.Type, tokens, cols int) {
	in.tokens, in.cols, in.integer = tokens, cols, formats[t].integer
	if in.integer {
		in.ints = grow(in.ints, tokens*cols)
		in.blocks = grow(in.blocks, tokens*cols/32)
		return
	}
	in.floats = grow(in.floats, tokens*cols)
}

// Fits tells whether what is loaded can be multiplied with matrices of type t: several matrices
// of like types share an Input.
func (in *Input) Fits(t gguf.Type) bool { return in.integer == formats[t].integer }

// Bytes is the memory that the Input keeps.
func (in *Input) Bytes() int64 {
	return int64(cap(in.floats))*4 + int64(cap(in.ints)) + int64(cap(in.blocks))*16
}

// Load takes the vectors lo ≤ t < hi from x [hi-lo, cols]. Different vectors may be loaded at the
// same time.
func (in *Input) Load(x []float32, lo, hi int) {
	if !in.integer {
		copy(in.floats[lo*in.cols:hi*in.cols], x)
		return
	}
	quantizeRow(in.ints[lo*in.cols:hi*in.cols], in.blocks[lo*in.cols/32:hi*in.cols/32], x)
}

// quantizeRow rounds blocks of 32 values to integers of -127…127, to nearest, ties to even.
// Values that are not finite give some integers and a scale that is not finite.
func quantizeRow(q []int8, blocks []block, x []float32) {
	for i := range blocks {
		dst := (*[32]int8)(q[32*i:])
		b := &blocks[i]
		b.scale = quantize(dst, (*[32]float32)(x[32*i:]))
		for h := range 2 {
			var s int16
			for _, v := range dst[16*h : 16*h+16] {
				s += int16(v)
			}
			b.halves[h] = s
		}
		b.total = int32(b.halves[0]) + int32(b.halves[1])
		b.sum = b.scale * float32(b.total)
	}
}
