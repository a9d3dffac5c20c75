package kernel

import (
	"fmt"

	"github.com/rouse-dev/rouse/engine/gguf"
)

// Tile is the number of rows that are interleaved in a packed matrix.
const Tile = 16

// Layout names Pack's byte order, and changes with it: files of packed matrices have it in their key.
func Layout() string { return "tile16-1" }

type format struct {
	cols    int  // in a block
	file    int  // bytes of a block of one row in the file
	bytes   int  // bytes of a block of a tile
	integer bool // multiplied with activations of 8 bits
	pack    func(tile []byte, rows [][]byte, cols int)
	row     func(dst []float32, tile []byte, r int)
	plain   tileFunc
}

// A tileFunc multiplies one tile with the vectors t, t+1, … of in, as many as acc has room for: acc[i·Tile+r] = row r
// · vector t+i.
type tileFunc func(acc []float32, tile []byte, in *Input, t int)

var formats = [...]format{
	gguf.F32:   {1, 4, 4 * Tile, false, packFloats, rowFloats(columnF32), plainFloats(columnF32)},
	gguf.F16:   {1, 2, 2 * Tile, false, packHalves, rowFloats(columnF16), plainFloats(columnF16)},
	gguf.BF16:  {1, 2, 2 * Tile, false, packHalves, rowFloats(columnBF16), plainFloats(columnBF16)},
	gguf.Q8_0:  {32, 34, q80Bytes, true, packQ80, rowInts(openQ80), plainInts(openQ80)},
	gguf.Q4_0:  {32, 18, q40Bytes, true, packNibbles(18), rowInts(openQ40), plainInts(openQ40)},
	gguf.MXFP4: {32, 17, q40Bytes, true, packNibbles(17), rowInts(openMX), plainInts(openMX)},
	gguf.Q4_K:  {256, 144, q4kHead + 8*q4kPart, true, packQ4K, rowInts(openQ4K), plainInts(openQ4K)},
	gguf.Q5_K:  {256, 176, q5kHead + 8*q5kPart, true, packQ5K, rowInts(openQ5K), plainInts(openQ5K)},
	gguf.Q6_K:  {256, 210, q6kHead + 8*q6kPart, true, packQ6K, rowInts(openQ6K), plainInts(openQ6K)},
}

// Supports returns an error if rows of this type and length cannot be packed.
func Supports(t gguf.Type, cols int) error {
	if int(t) >= len(formats) || formats[t].cols == 0 {
		return fmt.Errorf("matrices of type %s cannot be multiplied: want F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q5_K, Q6_K or MXFP4", t)
	}
	if n := formats[t].cols; cols <= 0 || cols%n != 0 {
		return fmt.Errorf("a row of %d values cannot be stored as %s: want a multiple of %d", cols, t, n)
	}
	return nil
}

// PackedBytes returns the size of a packed matrix.
func PackedBytes(t gguf.Type, rows, cols int) int {
	return (rows + Tile - 1) / Tile * tileBytes(t, cols)
}

func tileBytes(t gguf.Type, cols int) int {
	f := &formats[t]
	return cols / f.cols * f.bytes
}

// Pack writes rows lo ≤ r < hi of src, a matrix [rows, cols] in the file's order, to their places in dst, which holds
// the whole packed matrix. lo is a multiple of Tile, hi is too or is rows. Calls for different rows may run at the
// same time.
func Pack(dst []byte, t gguf.Type, rows, cols int, src []byte, lo, hi int) {
	f := &formats[t]
	size, line := tileBytes(t, cols), cols/f.cols*f.file
	var r [Tile][]byte
	for ; lo < hi; lo += Tile {
		n := min(Tile, rows-lo)
		for i := range n {
			r[i] = src[(lo+i)*line:][:line]
		}
		tile := dst[lo/Tile*size:][:size]
		if n < Tile {
			clear(tile)
		}
		f.pack(tile, r[:n], cols)
	}
}

// Matrix is a packed matrix. Data is Pack's output, and only read.
type Matrix struct {
	Rows, Cols int
	Type       gguf.Type
	Data       []byte
}

// Row decodes a row to dst, which holds Cols values.
func (m *Matrix) Row(dst []float32, row int) {
	size := tileBytes(m.Type, m.Cols)
	formats[m.Type].row(dst[:m.Cols], m.Data[row/Tile*size:][:size], row%Tile)
}

// Scratch is the working memory of Mul, for one goroutine. The zero value is ready.
type Scratch struct {
	acc [maxGroup * Tile]float32
}

// maxGroup is the most vectors of one call of a tileFunc.
const maxGroup = 12

// Mul multiplies rows with vectors: out[t·stride+r] = row r · vector t for t0 ≤ t < t1 and lo ≤ r < hi. lo is a
// multiple of Tile, hi is too or is Rows. in is loaded, and fits m. Calls for different rows or vectors may run at
// the same time, each with its own Scratch.
func (m *Matrix) Mul(out []float32, stride int, in *Input, t0, t1, lo, hi int, s *Scratch) {
	f := &formats[m.Type]
	if in.integer != f.integer || in.cols != m.Cols {
		panic("kernel: Mul with an Input of another kind or length")
	}
	k := m.kernels()
	size := tileBytes(m.Type, m.Cols)
	for ; lo < hi; lo += Tile {
		tile := m.Data[lo/Tile*size:][:size]
		n := min(Tile, hi-lo)
		for t := t0; t < t1; {
			g, mul := k.group, k.many
			if t+g > t1 {
				g, mul = min(k.few, t1-t), k.one
			}
			if g == 1 && n == Tile {
				mul(out[t*stride+lo:][:Tile], tile, in, t)
			} else {
				mul(s.acc[:g*Tile], tile, in, t)
				s.store(out[t*stride+lo:], stride, g, n)
			}
			t += g
		}
	}
}

func (s *Scratch) store(out []float32, stride, g, n int) {
	for i := range g {
		from, to := (*[Tile]float32)(s.acc[i*Tile:]), out[i*stride:][:n]
		if n == Tile {
			*(*[Tile]float32)(to) = *from
		} else {
			copy(to, from[:])
		}
	}
}

// kernels multiply tiles of a type: many with a group of vectors, one with at most few.
type kernels struct {
	one, many  tileFunc
	few, group int
}

func (m *Matrix) kernels() kernels {
	if k, ok := vectorKernels(m.Type); ok {
		return k
	}
	f := formats[m.Type].plain
	return kernels{f, f, maxGroup, maxGroup}
}
