package kernel

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/rouse-dev/rouse/engine/gguf"
)

// atLevels runs a computation in plain Go, then with each set of vector instructions that
// this processor has. want is nil the first time, and then the first result.
func atLevels(t *testing.T, do func(want []float32) []float32) {
	t.Helper()
	defer func(l level) { using = l }(using)
	using = generic
	want := do(nil)
	for using = generic + 1; using <= supported(); using++ {
		do(want)
	}
}

// equal checks for equal bits; any two NaNs are equal.
func equal(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if want == nil {
		return
	}
	for i, w := range want {
		g := got[i]
		if math.Float32bits(g) != math.Float32bits(w) && !(g != g && w != w) {
			t.Fatalf("%s of %d by %s: element %d: got %x, want %x", what, len(want), using, i, g, w)
		}
	}
}

// odd are numbers with special cases.
var odd = []float32{
	0, float32(math.Copysign(0, -1)), 1, -1, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()),
	-87, -87.00001, 88, 88.00001, -86.99999, 87.99999, math.MaxFloat32, -math.MaxFloat32, 0x1p-149, -0x1p-149, 0x1p-126,
	65504, 65519.996, 65520, -65520, 0x1p-14, 0x1p-24, 0x1p-25, 0x1.004p0, 0x1.006p0, 127, 0x1p-121, 0.5,
}

// numbers returns n numbers of all sizes; one in oddness is an odd one, 0 for none.
func numbers(r *rand.Rand, n, oddness int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64() * math.Exp(2*r.NormFloat64()))
		if oddness > 0 && r.IntN(oddness) == 0 {
			x[i] = odd[r.IntN(len(odd))]
		}
	}
	return x
}

func clone(x []float32) []float32 { return append([]float32(nil), x...) }

// TestVectors compares every function of rows at each level with plain Go, for all short
// lengths.
func TestVectors(t *testing.T) {
	r := rand.New(rand.NewPCG(30, 1))
	for n := range 100 {
		vectors(t, numbers(r, n, 0), numbers(r, n, 0))
		vectors(t, numbers(r, n, 5), numbers(r, n, 5))
	}
}

func TestArgMax(t *testing.T) {
	r := rand.New(rand.NewPCG(30, 2))
	nan, low := float32(math.NaN()), float32(math.Inf(-1))
	for range 200 {
		x := numbers(r, 1+r.IntN(5000), 50)
		want := 0
		for i, v := range x {
			if v > x[want] || x[want] != x[want] && v == v {
				want = i
			}
		}
		x[r.IntN(len(x))] = x[want] // an equal one, perhaps earlier
		for i, v := range x {
			if v == x[want] {
				want = i
				break
			}
		}
		if got := ArgMax(x); got != want {
			t.Fatalf("of %d: got %d (%v), want %d (%v)", len(x), got, x[got], want, x[want])
		}
	}
	for _, x := range [][]float32{nil, {nan, nan}, {low, low}} {
		if got := ArgMax(x); got != 0 {
			t.Errorf("of %v: got %d, want 0", x, got)
		}
	}
	if got := ArgMax([]float32{nan, low, 1, 2, 2, nan}); got != 3 {
		t.Errorf("got %d, want 3", got)
	}
}

func BenchmarkArgMax(b *testing.B) {
	x := numbers(rand.New(rand.NewPCG(30, 3)), 152_000, 0)
	for b.Loop() {
		ArgMax(x)
	}
}

func FuzzVectors(f *testing.F) {
	f.Add([]byte("a seed of some bytes, as many as there is room for in a vector"), uint8(3))
	f.Fuzz(func(t *testing.T, data []byte, n uint8) {
		x := make([]float32, n)
		for i := range x {
			var b [4]byte
			copy(b[:], data[min(4*i, len(data)):])
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[:]))
		}
		y := clone(x)
		rand.New(rand.NewPCG(uint64(n), 1)).Shuffle(len(y), func(i, j int) { y[i], y[j] = y[j], y[i] })
		vectors(t, x, y)
	})
}

// vectors compares the functions of rows on x and y, which have one length.
func vectors(t *testing.T, x, y []float32) {
	t.Helper()
	n := len(x)
	for _, tt := range []struct {
		what string
		do   func(x, y []float32) []float32
	}{
		{"Add", func(x, y []float32) []float32 { Add(x, y); return x }},
		{"Scale", func(x, _ []float32) []float32 { Scale(x, 1.1); return x }},
		{"Axpy", func(x, y []float32) []float32 { Axpy(x, -0.3, y); return x }},
		{"SiLUMul", func(x, y []float32) []float32 { SiLUMul(x, y); return x }},
		{"GELUMul", func(x, y []float32) []float32 { GELUMul(x, y); return x }},
		{"Softcap", func(x, _ []float32) []float32 { Softcap(x, 30); return x }},
		{"ExpSum", func(x, _ []float32) []float32 { return append(x, ExpSum(x, maximum(x))) }},
		{"maximum", func(x, _ []float32) []float32 { return []float32{maximum(x) + 0} }},
		{"ArgMax", func(x, _ []float32) []float32 { return []float32{float32(ArgMax(x))} }},
		{"RMSNorm", func(x, y []float32) []float32 { RMSNorm(x, x, y, 1e-5); return x }},
		{"Rope", func(x, y []float32) []float32 { Rope(x, y[:n/2], y[n-n/2:], false); return x }},
		{"Rope neox", func(x, y []float32) []float32 { Rope(x, y[:n/2], y[n-n/2:], true); return x }},
		{"NarrowF16", func(x, y []float32) []float32 { return throughHalves(x) }},
		{"quantizeRow", func(x, _ []float32) []float32 { return quantized(x) }},
	} {
		atLevels(t, func(want []float32) []float32 {
			got := tt.do(clone(x), clone(y))
			equal(t, tt.what, got, want)
			return got
		})
	}
}

// throughHalves narrows and widens, and returns the halves as well.
func throughHalves(x []float32) []float32 {
	h := make([]uint16, len(x))
	NarrowF16(h, x)
	var out []float32
	for _, v := range h {
		out = append(out, gguf.F16ToF32(v), float32(v))
	}
	return out
}

// quantized returns all results of quantizeRow for whole blocks.
func quantized(x []float32) []float32 {
	n := len(x) / 32
	q, blocks := make([]int8, 32*n), make([]block, n)
	quantizeRow(q, blocks, x)
	var out []float32
	for _, v := range q {
		out = append(out, float32(v))
	}
	for _, b := range blocks {
		out = append(out, b.scale, b.sum, float32(b.total), float32(b.halves[0]), float32(b.halves[1]))
	}
	return out
}

// TestAttentionAtLevels compares attention of random groups at each level with plain Go.
func TestAttentionAtLevels(t *testing.T) {
	for seed := range uint64(40) {
		attentionAtLevels(t, seed)
	}
}

func FuzzAttention(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(attentionAtLevels)
}

func attentionAtLevels(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 31))
	d := []int{2, 6, 16, 32, 48, 64, 80, 96, 128}[r.IntN(9)]
	n := 1 + r.IntN(600)
	p := &Pages{HeadDim: d, Stride: 2*d*Block + r.IntN(3)*16, Values: d * Block}
	p.Memory = make([]uint16, (n/Block+1)*p.Stride)
	for i := range p.Memory {
		p.Memory[i] = gguf.F32ToF16(float32(r.NormFloat64()))
		if r.IntN(5000) == 0 {
			p.Memory[i] = gguf.F32ToF16(odd[r.IntN(len(odd))])
		}
	}
	for _, b := range r.Perm(n/Block + 1) {
		p.Blocks = append(p.Blocks, int32(b))
	}
	qs := make([]Query, 1+r.IntN(20))
	base, window := r.IntN(n), r.IntN(2)*(1+r.IntN(300))
	for i := range qs {
		to := min(n, base+1+i/3)
		if r.IntN(20) == 0 {
			to = r.IntN(n + 1)
		}
		qs[i] = Query{Q: numbers(r, d, 0), To: to}
		if window > 0 {
			qs[i].From = max(0, to-window)
		}
	}
	a := Attention{Scale: 0.1, Softcap: float32(r.IntN(2) * 20)}
	atLevels(t, func(want []float32) []float32 {
		var got []float32
		for i := range qs {
			qs[i].Out = make([]float32, d)
		}
		a.Run(p, qs)
		for i := range qs {
			got = append(got, qs[i].Out...)
		}
		equal(t, "attention", got, want)
		return got
	})
}
