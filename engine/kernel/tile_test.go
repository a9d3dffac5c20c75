package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/rouse-dev/rouse/engine/gguf"
)

// scaleAt lists the offsets of the halves in a block of a type, which noise sets to numbers of a
// usual size.
var scaleAt = map[gguf.Type][]int{gguf.Q8_0: {0}, gguf.Q4_0: {0}, gguf.Q4_K: {0, 2}, gguf.Q5_K: {0, 2}, gguf.Q6_K: {208}}

// noise returns a matrix of random bytes. Unless wild, its scales and floats are finite.
func noise(typ gguf.Type, r *rand.Rand, rows, cols int, wild bool) []byte {
	f := formats[typ]
	data := make([]byte, rows*cols/f.cols*f.file)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	if wild {
		return data
	}
	for i := 0; i < len(data); i += f.file {
		switch typ {
		case gguf.F32:
			binary.LittleEndian.PutUint32(data[i:], math.Float32bits(float32(r.NormFloat64())))
		case gguf.F16, gguf.BF16:
			data[i+1] &^= 0x40
		case gguf.MXFP4:
			data[i] = 110 + data[i]%24
		}
		for _, at := range scaleAt[typ] {
			data[i+at+1] &^= 0x40
		}
	}
	return data
}

// extremes returns vectors of values from all magnitudes, with zeros and, if wild, infinities.
func extremes(r *rand.Rand, n int, wild bool) []float32 {
	x := normal(r, n)
	for i := 0; i < n; i += 32 {
		var f float32
		switch r.IntN(8) {
		case 0:
			f = 0
		case 1:
			f = float32(math.Exp(80 * r.NormFloat64()))
		case 2:
			f = math.SmallestNonzeroFloat32 * 1000
		case 3: // the largest integers, of equal sign
			for j := range x[i:min(n, i+32)] {
				x[i+j] = 3
			}
			f = -1
		default:
			f = 1
		}
		for j := range x[i:min(n, i+32)] {
			x[i+j] *= f
		}
	}
	if wild {
		for range n / 64 {
			x[r.IntN(n)] = math.Float32frombits(r.Uint32())
		}
	}
	return x
}

// checkLevels compares the products of all levels that the processor has with plain Go's.
func checkLevels(t *testing.T, typ gguf.Type, r *rand.Rand, rows, cols, tokens int, wild bool) {
	t.Helper()
	m := pack(t, typ, rows, cols, noise(typ, r, rows, cols, wild))
	x := extremes(r, tokens*cols, wild)
	defer func(l level) { using = l }(using)
	var want []float32
	for l := generic; l <= supported(); l++ {
		using = l
		var in Input
		in.Resize(typ, tokens, cols)
		in.Load(x, 0, tokens)
		var s Scratch
		out := make([]float32, tokens*rows)
		m.Mul(out, rows, &in, 0, tokens, 0, rows, &s)
		if want == nil {
			want = out
			continue
		}
		for i, w := range want {
			if g := out[i]; math.Float32bits(g) != math.Float32bits(w) && (g == g || w == w) {
				t.Fatalf("%s [%d,%d], %d vectors, %s: row %d, vector %d: got %v, want %v", typ, rows, cols, tokens, l, i%rows, i/rows, g, w)
			}
		}
	}
}

// TestQuantize compares integers, scales and sums with plain Go's.
func TestQuantize(t *testing.T) {
	defer func(l level) { using = l }(using)
	r := rand.New(rand.NewPCG(9, 10))
	var plain, fast Input
	for i := range 2000 {
		x := extremes(r, 64, i%2 == 0)
		for in, l := range map[*Input]level{&plain: generic, &fast: supported()} {
			using = l
			in.Resize(gguf.Q8_0, 1, 64)
			in.Load(x, 0, 1)
		}
		for j := range 64 {
			if got, want := fast.ints[j], plain.ints[j]; got != want || want == -128 {
				t.Fatalf("%v is %d, want %d, of %v", x[j], got, want, x)
			}
		}
		for j := range 2 {
			if got, want := fmt.Sprint(fast.blocks[j]), fmt.Sprint(plain.blocks[j]); got != want {
				t.Fatalf("block %d: got %v, want %v, of %v", j, got, want, x)
			}
		}
	}
}

func TestLevels(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, typ := range types {
		for _, cols := range []int{1, 2, 3, 5, 31, 32, 64, 96, 256, 512, 1024} {
			if Supports(typ, cols) != nil {
				continue
			}
			for tokens := 1; tokens <= 9; tokens++ {
				checkLevels(t, typ, r, 16+tokens, cols, tokens, tokens%2 == 0)
			}
		}
	}
}

// TestLargest checks the places where a sum of 16 bits would overflow first.
func TestLargest(t *testing.T) {
	defer func(l level) { using = l }(using)
	const cols, tokens = 256, 5
	for _, typ := range types {
		f := formats[typ]
		if !f.integer {
			continue
		}
		for _, fill := range []byte{0xff, 0x00, 0x80, 0x7f, 0x81, 0x88, 0xf7} {
			data := make([]byte, 16*cols/f.cols*f.file)
			for i := range data {
				data[i] = fill
			}
			for i := 0; i < len(data); i += f.file {
				for _, at := range scaleAt[typ] {
					binary.LittleEndian.PutUint16(data[i+at:], 0x3c00)
				}
				if typ == gguf.MXFP4 {
					data[i] = 128
				}
			}
			m := pack(t, typ, 16, cols, data)
			for _, v := range []float32{127, -127} {
				x, w := make([]float32, tokens*cols), make([]float32, cols)
				for i := range x {
					x[i] = v
				}
				var in Input
				var s Scratch
				in.Resize(typ, tokens, cols)
				in.Load(x, 0, tokens)
				for l := generic; l <= supported(); l++ {
					using = l
					out := make([]float32, tokens*16)
					m.Mul(out, 16, &in, 0, tokens, 0, 16, &s)
					for i, got := range out {
						m.Row(w, i%16)
						var want float64
						for _, y := range w {
							want += float64(y) * float64(v)
						}
						if float64(got) != want {
							t.Fatalf("%s, bytes %#x, vectors of %v, %s: got %v, want %v", typ, fill, v, l, got, want)
						}
					}
				}
			}
		}
	}
}

func FuzzLevels(f *testing.F) {
	f.Add(uint64(1), uint8(0), uint8(3), uint8(1), uint8(17), true)
	f.Fuzz(func(t *testing.T, seed uint64, typ, tokens, blocks, rows uint8, wild bool) {
		ty := types[int(typ)%len(types)]
		cols := (int(blocks)%6 + 1) * formats[ty].cols
		checkLevels(t, ty, rand.New(rand.NewPCG(seed, 0)), int(rows)%40+1, cols, int(tokens)%11+1, wild)
	})
}
