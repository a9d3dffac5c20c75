package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestLayerNorm(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 5, 16, 384} {
		x, w, b := make([]float32, n), make([]float32, n), make([]float32, n)
		for i := range x {
			x[i], w[i], b[i] = float32(r.NormFloat64()*3+1), float32(r.NormFloat64()), float32(r.NormFloat64())
		}
		mean, variance := 0.0, 0.0
		for _, v := range x {
			mean += float64(v) / float64(n)
		}
		for _, v := range x {
			variance += (float64(v) - mean) * (float64(v) - mean) / float64(n)
		}
		out := make([]float32, n)
		LayerNorm(out, x, w, b, 1e-5)
		for i, v := range x {
			want := (float64(v)-mean)/math.Sqrt(variance+1e-5)*float64(w[i]) + float64(b[i])
			if math.Abs(float64(out[i])-want) > 1e-5 {
				t.Fatalf("%d values, value %d: got %v, want %v", n, i, out[i], want)
			}
		}
		LayerNorm(x, x, w, b, 1e-5)
		for i := range x {
			if x[i] != out[i] {
				t.Fatalf("%d values, value %d: in place got %v, want %v", n, i, x[i], out[i])
			}
		}
	}
}

func TestGELU(t *testing.T) {
	for v := -12.0; v <= 12; v += 1.0 / 1024 {
		x := []float32{float32(v)}
		GELU(x)
		if want := v * (1 + math.Erf(v/math.Sqrt2)) / 2; math.Abs(float64(x[0])-want) > 2e-6*max(1, math.Abs(v)) {
			t.Fatalf("gelu(%v): got %v, want %v", v, x[0], want)
		}
	}
}

func BenchmarkGELU(b *testing.B) {
	x := make([]float32, 3072)
	for b.Loop() {
		for i := range x {
			x[i] = float32(i%7) - 3
		}
		GELU(x)
	}
}
