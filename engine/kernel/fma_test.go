package kernel

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// exactFMA returns x·y + z by exact arithmetic, rounded once.
func exactFMA(x, y, z float32) float32 {
	b := func(v float32) *big.Float { return new(big.Float).SetPrec(700).SetFloat64(float64(v)) }
	s := new(big.Float).SetPrec(700).Mul(b(x), b(y))
	if s.Add(s, b(z)); s.Sign() == 0 { // big numbers lose the sign of a zero
		return float32(math.FMA(float64(x), float64(y), float64(z)))
	}
	f, _ := s.Float32()
	return f
}

func TestFMA(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 1))
	check := func(x, y, z float32) {
		if got, want := fma(x, y, z), exactFMA(x, y, z); math.Float32bits(got) != math.Float32bits(want) {
			t.Fatalf("fma(%x, %x, %x): got %x, want %x", x, y, z, got, want)
		}
	}
	for range 200_000 {
		// With few bits set and near exponents, sums are often half-way between two float32.
		few := func() float32 {
			v := float32(1 + float64(r.Uint32()&r.Uint32()&r.Uint32()&r.Uint32()>>9)*0x1p-23)
			return float32(math.Ldexp(float64(v), r.IntN(60)-30)) * float32(1-2*r.IntN(2))
		}
		check(few(), few(), few())
		check(few()*0x1p-70, few()*0x1p-70, few()*0x1p-120) // the smallest numbers
	}
	check(1+0x1p-23, 1+0x1p-23, 0x1p24)
	check(0x1p12+0x1p-11, 0x1p12, -0x1p-60)
	inf := float32(math.Inf(1))
	for _, v := range [][4]float32{{0, 5, 3, 3}, {0, 0, 0, 0}, {inf, 1, 1, inf}, {1, 1, -inf, -inf}, {0x1p127, 2, 0, inf}} {
		if got := fma(v[0], v[1], v[2]); got != v[3] {
			t.Errorf("fma(%v, %v, %v): got %v, want %v", v[0], v[1], v[2], got, v[3])
		}
	}
	if got := fma(inf, 0, 1); got == got {
		t.Errorf("fma(Inf, 0, 1): got %v, want NaN", got)
	}
}
