package kernel

import (
	"encoding/binary"
	"math"

	"github.com/rouse-dev/rouse/engine/gguf"
)

// opened is 32 decoded columns of a tile:
//
//	weight [r][c] = scale[r]·times[c/16][r]·q[r][c] - low[r]
type opened struct {
	q          [Tile][32]byte // signed
	times      [2][Tile]int32
	split      bool // the times differ
	scale, low [Tile]float32
	lows       bool // low is not zero
}

// plainInts is the reference of products with 8-bit activations. Per block of 32 columns, in order, the exact sum of
// integer products, times the weights' and the activations' scales, is added to the result with one rounding. For
// types with minimums low · the activations' sum is then subtracted, with one rounding.
func plainInts(open func(o *opened, tile []byte, block int)) tileFunc {
	return func(acc []float32, tile []byte, in *Input, t int) {
		var o opened
		clear(acc)
		tokens := len(acc) / Tile
		for b := range in.cols / 32 {
			open(&o, tile, b)
			for i := 0; i < tokens; i += three {
				o.add(acc[i*Tile:min(i+three, tokens)*Tile], in, t+i, b)
			}
		}
	}
}

// three vectors share a multiplication of 64 bits: x + y·2^21 + z·2^42 times a weight. A sum of 32 is at most
// 32·128·127 < 2^20, so the fields never overlap.
const three = 3

func (o *opened) add(acc []float32, in *Input, t, b int) {
	var words [32]int64
	n := len(acc) / Tile
	for i := range n {
		x := (*[32]int8)(in.ints[(t+i)*in.stride+32*b:])
		for j := range words {
			words[j] += int64(x[j]) << (21 * i)
		}
	}
	for r := range Tile {
		p := products((*[16]byte)(o.q[r][:]), (*[16]int64)(words[:]))
		h := products((*[16]byte)(o.q[r][16:]), (*[16]int64)(words[16:]))
		if !o.split {
			p, h = p+h, 0
		}
		for i := range n {
			// Subtracting a field as a signed number undoes its borrow from the next.
			f, g := p<<43>>43, h<<43>>43
			p, h = (p-f)>>21, (h-g)>>21
			x, a := &in.blocks[(t+i)*in.blockStride+b], &acc[i*Tile+r]
			*a = fma(float32(int32(f)*o.times[0][r]+int32(g)*o.times[1][r])*o.scale[r], x.scale, *a)
			if o.lows {
				*a = fma(-o.low[r], x.sum, *a)
			}
		}
	}
}

// products is unrolled by hand: the compiler does not.
func products(q *[16]byte, x *[16]int64) int64 {
	a := int64(int8(q[0])) * x[0]
	b := int64(int8(q[1])) * x[1]
	a += int64(int8(q[2])) * x[2]
	b += int64(int8(q[3])) * x[3]
	a += int64(int8(q[4])) * x[4]
	b += int64(int8(q[5])) * x[5]
	a += int64(int8(q[6])) * x[6]
	b += int64(int8(q[7])) * x[7]
	a += int64(int8(q[8])) * x[8]
	b += int64(int8(q[9])) * x[9]
	a += int64(int8(q[10])) * x[10]
	b += int64(int8(q[11])) * x[11]
	a += int64(int8(q[12])) * x[12]
	b += int64(int8(q[13])) * x[13]
	a += int64(int8(q[14])) * x[14]
	b += int64(int8(q[15])) * x[15]
	return a + b
}

func rowInts(open func(o *opened, tile []byte, block int)) func(dst []float32, tile []byte, r int) {
	return func(dst []float32, tile []byte, r int) {
		var o opened
		for b := range len(dst) / 32 {
			open(&o, tile, b)
			for i, q := range &o.q[r] {
				dst[32*b+i] = float32(float32(int32(int8(q))*o.times[i/16][r])*o.scale[r]) - o.low[r]
			}
		}
	}
}

// A column decodes column c of a tile.
type column func(w *[Tile]float32, tile []byte, c int)

// plainFloats is the reference of products with floats: per column, in order, weight · activation is added to the
// result with one rounding.
func plainFloats(col column) tileFunc {
	return func(acc []float32, tile []byte, in *Input, t int) {
		var w [Tile]float32
		clear(acc)
		for c := range in.cols {
			col(&w, tile, c)
			for i := range len(acc) / Tile {
				x, a := in.floats[(t+i)*in.stride+c], (*[Tile]float32)(acc[i*Tile:])
				for r := range a {
					a[r] = fma(w[r], x, a[r])
				}
			}
		}
	}
}

func rowFloats(col column) func(dst []float32, tile []byte, r int) {
	return func(dst []float32, tile []byte, r int) {
		var w [Tile]float32
		for c := range dst {
			col(&w, tile, c)
			dst[c] = w[r]
		}
	}
}

func columnF32(w *[Tile]float32, tile []byte, c int) {
	src := (*[4 * Tile]byte)(tile[4*Tile*c:])
	for r := range w {
		w[r] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*r:]))
	}
}

func columnF16(w *[Tile]float32, tile []byte, c int) { halves(w, tile[2*Tile*c:]) }

func columnBF16(w *[Tile]float32, tile []byte, c int) {
	src := (*[2 * Tile]byte)(tile[2*Tile*c:])
	for r := range w {
		w[r] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*r:])) << 16)
	}
}

func halves(w *[Tile]float32, src []byte) {
	s := (*[2 * Tile]byte)(src)
	for r := range w {
		w[r] = gguf.F16ToF32(binary.LittleEndian.Uint16(s[2*r:]))
	}
}
