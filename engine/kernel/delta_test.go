package kernel_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/rouse-dev/rouse/engine/kernel"
)

// TestDeltaRule compares with the formula in double precision, over some positions.
func TestDeltaRule(t *testing.T) {
	const d, width = 20, 12
	r := rand.New(rand.NewPCG(1, 2))
	random := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	state, want := make([]float32, d*width), make([]float64, d*width)
	for range 30 {
		q, k, v, out := random(d), random(d), random(width), random(width)
		for i := range k {
			k[i] /= 5 // about a length of 1
		}
		decay, beta := r.Float64(), r.Float64()
		wanted := make([]float64, width)
		for j := range width {
			have := 0.0
			for i := range d {
				want[i*width+j] *= float64(float32(decay))
				have += want[i*width+j] * float64(k[i])
			}
			for i := range d {
				want[i*width+j] += float64(k[i]) * float64(float32(beta)) * (float64(v[j]) - have)
				wanted[j] += want[i*width+j] * float64(q[i])
			}
		}
		kernel.DeltaRule(state, q, k, v, float32(decay), float32(beta), out)
		for j := range out {
			if math.Abs(float64(out[j])-wanted[j]) > 1e-5*math.Max(1, math.Abs(wanted[j])) {
				t.Fatalf("value %d: got %v, want %v", j, out[j], wanted[j])
			}
		}
	}
}

// TestSoftplus compares with package math.
func TestSoftplus(t *testing.T) {
	for x := float32(-80); x < 80; x += 0.0625 {
		want := math.Log1p(math.Exp(float64(x)))
		if got := float64(kernel.Softplus(x)); math.Abs(got-want) > 1e-6*want {
			t.Errorf("at %v: got %v, want %v", x, got, want)
		}
	}
}

// TestConvolve checks the order of weights, in place, and the sigmoid.
func TestConvolve(t *testing.T) {
	x := []float32{5, 6}
	kernel.Convolve(x, []float32{1, 10, 2, 20}, [][]float32{{3, 4}, x})
	kernel.SigmoidMul(x, []float32{0, 100})
	if x[0] != (3+50)/2.0 || x[1] != 8+120 {
		t.Errorf("got %v", x)
	}
}
