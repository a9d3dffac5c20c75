package kernel

import (
	"encoding/binary"
	"math"
)

// opened is 32 columns of a tile in integers, as the plain products use them:
// weight [r][c] = scale[r]·q[r][c] - low[r].
type opened struct {
	q          [Tile][32]int16
	scale, low [Tile]float32
	lows       bool // low is not zero
}

// plainInts is the reference of all products with 8-bit activations. Per block of
// 32 columns, in order: the sum of integer products, which is exact, also as a float32; times the
// weights' scale; times the activations' scale, added to the result with one rounding. Then, for
// types with minimums, low · the activations' sum, subtracted with one rounding.
func plainInts(open func(o *opened, tile []byte, block int)) tileFunc {
	return func(acc []float32, tile []byte, in *Input, t int) {
		var o opened
		clear(acc)
		for b := range in.cols / 32 {
			open(&o, tile, b)
			for i := range len(acc) / Tile {
				x := (*[32]int8)(in.ints[(t+i)*in.stride+32*b:])
				o.add((*[Tile]float32)(acc[i*Tile:]), x, &in.blocks[(t+i)*in.blockStride+b])
			}
		}
	}
}

func (o *opened) add(acc *[Tile]float32, x *[32]int8, b *block) {
	var wide [32]int32
	for i, v := range x {
		wide[i] = int32(v)
	}
	for r := range acc {
		var s int32
		for i, q := range &o.q[r] {
			s += int32(q) * wide[i]
		}
		acc[r] = fma(float32(s)*o.scale[r], b.scale, acc[r])
		if o.lows {
			acc[r] = fma(-o.low[r], b.sum, acc[r])
		}
	}
}

// rowInts decodes row r of a tile of integers.
func rowInts(open func(o *opened, tile []byte, block int)) func(dst []float32, tile []byte, r int) {
	return func(dst []float32, tile []byte, r int) {
		var o opened
		for b := range len(dst) / 32 {
			open(&o, tile, b)
			for i, q := range &o.q[r] {
				dst[32*b+i] = float32(float32(q)*o.scale[r]) - o.low[r]
			}
		}
	}
}

// A column decodes column c of a tile.
type column func(w *[Tile]float32, tile []byte, c int)

// plainFloats is the reference of all products with floats: per column, in order, weight ·
// activation is added to the result with one rounding.
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

// halves decodes the scales of a tile's rows.
func halves(w *[Tile]float32, src []byte) {
	s := (*[2 * Tile]byte)(src)
	for r := range w {
		w[r] = Half(binary.LittleEndian.Uint16(s[2*r:]))
	}
}
