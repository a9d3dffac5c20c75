package kernel_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/rouse-dev/rouse/engine/kernel"
)

func random(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// near compares with a tolerance relative to the size of the terms, not of their sum.
func near(t *testing.T, what string, got, want, size, tol float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tol*math.Max(size, 1e-30)) {
		t.Errorf("%s: got %v, want %v (terms of size %v)", what, got, want, size)
	}
}

func dot64(a, b []float32) (sum, size float64) {
	for i := range a {
		p := float64(a[i]) * float64(b[i])
		sum += p
		size += math.Abs(p)
	}
	return sum, size
}

func TestExp(t *testing.T) {
	var worst float64
	for x := float32(-87); x < 88; x += 0.0007 {
		want := math.Exp(float64(x))
		worst = max(worst, math.Abs(float64(kernel.Exp(x))-want)/want)
	}
	if worst > 2e-7 {
		t.Errorf("relative error %v, want at most 2e-7", worst)
	}
	inf := float32(math.Inf(1))
	for x, want := range map[float32]float32{0: 1, -inf: 0, inf: inf, 1000: inf, -1000: 0} {
		if got := kernel.Exp(x); got != want {
			t.Errorf("Exp(%v): got %v, want %v", x, got, want)
		}
	}
	if got := kernel.Exp(float32(math.NaN())); got == got {
		t.Errorf("Exp(NaN): got %v", got)
	}
}

func TestLayer(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	x, w := random(r, 33), random(r, 33)
	out := make([]float32, 33)
	kernel.RMSNorm(out, x, w, 1e-5)
	ss, _ := dot64(x, x)
	for i := range out {
		want := float64(x[i]) / math.Sqrt(ss/33+1e-5) * float64(w[i])
		near(t, "RMSNorm", float64(out[i]), want, math.Abs(want), 1e-6)
	}

	p := append([]float32(nil), x...)
	got := kernel.ExpSum(p, 0.5)
	var sum float64
	for i, v := range x {
		want := math.Exp(float64(v) - 0.5)
		near(t, "ExpSum", float64(p[i]), want, want, 1e-5)
		sum += want
	}
	near(t, "ExpSum", float64(got), sum, sum, 1e-5)

	g := append([]float32(nil), x...)
	kernel.SiLUMul(g, w)
	for i := range g {
		want := float64(x[i]) / (1 + math.Exp(-float64(x[i]))) * float64(w[i])
		near(t, "SiLUMul", float64(g[i]), want, math.Abs(want), 1e-6)
	}

	acc := random(r, 33)
	want := append([]float32(nil), acc...)
	kernel.Axpy(acc, -2, w)
	for i := range acc {
		near(t, "Axpy", float64(acc[i]), float64(want[i])-2*float64(w[i]), 4, 1e-7)
	}
	copy(want, acc)
	kernel.Add(acc, x)
	if acc[7] != want[7]+x[7] {
		t.Errorf("Add: got %v, want %v", acc[7], want[7]+x[7])
	}
}

func TestRope(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	const n, pos, base, scale = 8, 1234, 10000.0, 4.0
	factors := []float32{1, 2, 4, 8}
	cos, sin := make([]float32, n/2), make([]float32, n/2)
	for i, f := range factors {
		s, c := math.Sincos(pos / scale * math.Pow(base, -2*float64(i)/n) / float64(f))
		cos[i], sin[i] = float32(c), float32(s)
	}
	for _, neox := range []bool{false, true} {
		v := random(r, n+2) // the last two do not rotate
		got := append([]float32(nil), v...)
		kernel.Rope(got, cos, sin, neox)
		for i := range n / 2 {
			a, b := 2*i, 2*i+1
			if neox {
				a, b = i, i+n/2
			}
			s, c := math.Sincos(pos / scale * math.Pow(base, -2*float64(i)/n) / float64(factors[i]))
			near(t, "Rope", float64(got[a]), float64(v[a])*c-float64(v[b])*s, 2, 1e-6)
			near(t, "Rope", float64(got[b]), float64(v[a])*s+float64(v[b])*c, 2, 1e-6)
		}
		if got[n] != v[n] || got[n+1] != v[n+1] {
			t.Error("Rope changes values beyond its dimensions")
		}
	}
}
