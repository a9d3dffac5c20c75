package kernel

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/gguf"
)

var types = []gguf.Type{gguf.F32, gguf.F16, gguf.BF16, gguf.Q8_0, gguf.Q4_0, gguf.Q4_K, gguf.Q5_K, gguf.Q6_K, gguf.MXFP4}

func normal(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// encode makes a matrix of a type out of random values.
func encode(t testing.TB, typ gguf.Type, r *rand.Rand, rows, cols int) []byte {
	data, err := gguf.Encode(typ, normal(r, rows*cols))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func pack(t testing.TB, typ gguf.Type, rows, cols int, data []byte) *Matrix {
	if err := Supports(typ, cols); err != nil {
		t.Fatal(err)
	}
	m := &Matrix{rows, cols, typ, make([]byte, PackedBytes(typ, rows, cols))}
	Pack(m.Data, typ, rows, cols, data, 0, rows)
	return m
}

// TestRow compares decoded rows of a packed matrix with the file's.
func TestRow(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, typ := range types {
		const rows, cols = 37, 512
		data := encode(t, typ, r, rows, cols)
		want, err := gguf.Tensor{Name: "w", Dims: []int{cols, rows}, Type: typ, Data: data}.Floats()
		if err != nil {
			t.Fatal(err)
		}
		m := pack(t, typ, rows, cols, data)
		got := make([]float32, cols)
		for i := range rows {
			m.Row(got, i)
			for j := range got {
				if got[j] != want[i*cols+j] {
					t.Fatalf("%s [%d,%d]: got %v, want %v", typ, i, j, got[j], want[i*cols+j])
				}
			}
		}
	}
}

// TestAccuracy compares products with those of the decoded weights in double precision.
func TestAccuracy(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const rows, cols, tokens = 24, 1024, 5
	for _, typ := range types {
		m := pack(t, typ, rows, cols, encode(t, typ, r, rows, cols))
		x, w, out := normal(r, tokens*cols), make([]float32, cols), make([]float32, tokens*rows)
		var in Input
		in.Resize(typ, tokens, cols)
		in.Load(x, 0, tokens)
		var s Scratch
		m.Mul(out, rows, &in, 0, tokens, 0, rows, &s)
		tol := 1e-6
		if in.integer {
			tol = 1e-3
		}
		for i := range rows {
			m.Row(w, i)
			for j := range tokens {
				var sum, size float64
				for c, v := range w {
					p := float64(v) * float64(x[j*cols+c])
					sum, size = sum+p, size+math.Abs(p)
				}
				if got := float64(out[j*rows+i]); !(math.Abs(got-sum) <= tol*size) {
					t.Errorf("%s: row %d, vector %d: got %v, want %v of terms of size %v", typ, i, j, got, sum, size)
				}
			}
		}
	}
}

// TestGroups checks that no bit of a product depends on the other products of a call.
func TestGroups(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	const rows, cols, tokens = 40, 256, 19
	for _, typ := range types {
		m := pack(t, typ, rows, cols, encode(t, typ, r, rows, cols))
		x := normal(r, tokens*cols)
		var in Input
		in.Resize(typ, tokens, cols)
		in.Load(x, 0, 7)
		in.Load(x[7*cols:], 7, tokens)
		want, got := make([]float32, tokens*rows), make([]float32, tokens*rows)
		var s Scratch
		m.Mul(want, rows, &in, 0, tokens, 0, rows, &s)
		for range 20 {
			clear(got)
			for t0 := 0; t0 < tokens; {
				t1 := min(tokens, t0+1+r.IntN(9))
				cut := Tile * r.IntN(3)
				m.Mul(got, rows, &in, t0, t1, 0, cut, &s)
				m.Mul(got, rows, &in, t0, t1, cut, rows, &s)
				t0 = t1
			}
			if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
				t.Fatalf("%s: products depend on their group", typ)
			}
		}
	}
}

// TestMulWrites checks that products are written to their places and nothing else changes.
func TestMulWrites(t *testing.T) {
	defer func(l level) { using = l }(using)
	r := rand.New(rand.NewPCG(11, 12))
	const rows, cols, tokens, stride = 41, 256, 11, 47
	for _, typ := range types {
		m := pack(t, typ, rows, cols, encode(t, typ, r, rows, cols))
		var in Input
		in.Resize(typ, tokens, cols)
		in.Load(normal(r, tokens*cols), 0, tokens)
		var s Scratch
		for l := generic; l <= supported(); l++ {
			using = l
			for range 20 {
				t0, lo := r.IntN(tokens), Tile*r.IntN(3)
				t1, hi := t0+r.IntN(tokens-t0)+1, min(rows, lo+Tile*(1+r.IntN(2)))
				out := make([]float32, tokens*stride)
				m.Mul(out, stride, &in, t0, t1, lo, hi, &s)
				for i, v := range out {
					inside := i/stride >= t0 && i/stride < t1 && i%stride >= lo && i%stride < hi
					if (v != 0) != inside {
						t.Fatalf("%s, %s: rows %d…%d, vectors %d…%d: row %d, vector %d is %v", typ, l, lo, hi, t0, t1, i%stride, i/stride, v)
					}
				}
			}
		}
	}
}

// TestPackParts packs a matrix in pieces, and compares its size with the file's.
func TestPackParts(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	const rows, cols = 80, 512
	for _, typ := range types {
		data := encode(t, typ, r, rows, cols)
		want := pack(t, typ, rows, cols, data).Data
		if got, most := len(want), len(data)*106/100; got > most {
			t.Errorf("%s: %d bytes, want at most %d", typ, got, most)
		}
		got := make([]byte, len(want))
		for _, p := range [][2]int{{64, 80}, {0, 16}, {16, 64}} {
			Pack(got, typ, rows, cols, data, p[0], p[1])
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: in pieces it is another matrix", typ)
		}
	}
}

func TestSupports(t *testing.T) {
	for _, tt := range []struct {
		typ  gguf.Type
		cols int
		want string
	}{
		{gguf.Q8_0, 64, ""}, {gguf.F16, 7, ""}, {gguf.Q6_K, 512, ""},
		{gguf.Q8_0, 48, "a multiple of 32"}, {gguf.Q4_K, 128, "a multiple of 256"}, {gguf.F32, 0, "a multiple of 1"},
		{gguf.Q2_K, 256, "want F32"}, {99, 32, "want F32"},
	} {
		err := Supports(tt.typ, tt.cols)
		if got := fmt.Sprint(err); (err == nil) != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("Supports(%s, %d): got %v, want %q", tt.typ, tt.cols, err, tt.want)
		}
	}
}
