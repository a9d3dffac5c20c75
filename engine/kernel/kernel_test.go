package kernel_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/rouse-dev/rouse/engine/gguf"
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

func TestHalf(t *testing.T) {
	for h := range 1 << 16 {
		got, want := kernel.Half(uint16(h)), gguf.F16ToF32(uint16(h))
		if math.Float32bits(got) != math.Float32bits(want) {
			t.Fatalf("Half(%#x): got %v, want %v", h, got, want)
		}
	}
}

func TestMulF32(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{1, 2, 7, 64, 129} {
		for _, rows := range []int{1, 3, 4, 9} {
			w, x := random(r, rows*n), random(r, 9*n)
			for tokens := 1; tokens <= 9; tokens++ {
				stride := rows + 2
				out := make([]float32, tokens*stride)
				kernel.MulF32(out, stride, w, x[:tokens*n], tokens, n)
				for i := range tokens {
					for j := range rows {
						want, size := dot64(x[i*n:i*n+n], w[j*n:j*n+n])
						near(t, "MulF32", float64(out[i*stride+j]), want, size, 1e-6)
						if one := kernel.Dot(x[i*n:i*n+n], w[j*n:j*n+n]); one != out[i*stride+j] {
							t.Fatalf("n %d, row %d of %d, vector %d of %d: %v, alone %v", n, j, rows, i, tokens, out[i*stride+j], one)
						}
					}
				}
			}
		}
	}
}

// mulQ8 is the obvious way to compute what Q8Input does.
func mulQ8(w []byte, x []float32) float32 {
	var sum float32
	for b := range len(x) / 32 {
		xb, wb := x[b*32:b*32+32], w[b*34:b*34+34]
		var top float32
		for _, v := range xb {
			top = max(top, v, -v)
		}
		var inv float32
		if top > 0 {
			inv = 127 / top
		}
		s := 0
		for j, v := range xb {
			s += int(int8(wb[2+j])) * int(math.RoundToEven(float64(float32(v*inv))))
		}
		sum += float32(float32(kernel.Half(binary.LittleEndian.Uint16(wb))*float32(top/127)) * float32(s))
	}
	return sum
}

func checkQ8(t *testing.T, w []byte, x []float32, n int) {
	t.Helper()
	rows := len(w) / (n / 32 * 34)
	for tokens := 1; tokens <= len(x)/n; tokens++ {
		var in kernel.Q8Input
		in.Resize(len(x)/n, n) // what an earlier, larger use leaves must not matter
		for g := range in.Groups() {
			lo, hi := in.Group(g)
			in.Load(g, x[lo*n:hi*n])
		}
		in.Resize(tokens, n)
		for g := range in.Groups() {
			lo, hi := in.Group(g)
			in.Load(g, x[lo*n:hi*n])
		}
		out := make([]float32, tokens*rows)
		in.Mul(out, rows, w)
		for i := range tokens {
			for r := range rows {
				want := mulQ8(w[r*n/32*34:][:n/32*34], x[i*n:i*n+n])
				if got := out[i*rows+r]; got != want && !(got != got && want != want) {
					t.Fatalf("vector %d of %d, row %d: got %v, want %v", i, tokens, r, got, want)
				}
			}
		}
	}
}

func TestQ8(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for _, n := range []int{32, 96, 256} {
		w := gguf.QuantizeQ8_0(random(r, 5*n))
		x := random(r, 8*n)
		clear(x[n : n+40]) // a block of zeros
		checkQ8(t, w, x, n)
	}
	// The extremes: every product as large as it gets, in each combination of signs.
	for _, q := range []int8{-128, 127} {
		for _, sign := range []float32{-1, 1} {
			w := binary.LittleEndian.AppendUint16(nil, gguf.F32ToF16(1))
			x := make([]float32, 5*32)
			for range 32 {
				w = append(w, byte(q))
			}
			for i := range x {
				x[i] = 127 * sign
			}
			checkQ8(t, w, x, 32)
		}
	}
}

// TestQ8Accuracy compares with the exact product of the decoded weights.
func TestQ8Accuracy(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	const n = 1024
	w, x := random(r, n), random(r, n)
	enc := gguf.QuantizeQ8_0(w)
	dec := make([]float32, n)
	kernel.WidenQ8(dec, enc)
	var in kernel.Q8Input
	in.Resize(1, n)
	in.Load(0, x)
	var out [1]float32
	in.Mul(out[:], 1, enc)
	want, size := dot64(dec, x)
	near(t, "Q8", float64(out[0]), want, size, 1e-3)
}

func FuzzQ8(f *testing.F) {
	f.Add([]byte{1, 2, 3}, uint64(1))
	f.Fuzz(func(t *testing.T, bytes []byte, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		w := make([]byte, 2*2*34)
		for i := range w {
			w[i] = byte(r.Uint32())
		}
		copy(w, bytes)
		x := random(r, 4*64)
		for i := range x {
			x[i] *= float32(math.Exp(10 * r.NormFloat64()))
		}
		checkQ8(t, w, x, 64)
	})
}

func TestWiden(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	x := random(r, 64)
	for _, tt := range []struct {
		typ   gguf.Type
		widen func([]float32, []byte)
	}{{gguf.F16, kernel.WidenF16}, {gguf.BF16, kernel.WidenBF16}, {gguf.Q8_0, kernel.WidenQ8}} {
		data, err := gguf.Encode(tt.typ, x)
		if err != nil {
			t.Fatal(err)
		}
		want, err := gguf.Tensor{Dims: []int{64}, Type: tt.typ, Data: data}.Floats()
		if err != nil {
			t.Fatal(err)
		}
		got := make([]float32, 64)
		tt.widen(got, data)
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%s[%d]: got %v, want %v", tt.typ, i, got[i], want[i])
			}
		}
	}
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
	kernel.Softmax(p, 0.5)
	var sum float64
	for _, v := range x {
		sum += math.Exp(float64(v) / 2)
	}
	for i := range p {
		want := math.Exp(float64(x[i])/2) / sum
		near(t, "Softmax", float64(p[i]), want, want, 1e-5)
	}

	g := append([]float32(nil), x...)
	kernel.SiLUMul(g, w)
	for i := range g {
		want := float64(x[i]) / (1 + math.Exp(-float64(x[i]))) * float64(w[i])
		near(t, "SiLUMul", float64(g[i]), want, math.Abs(want), 1e-6)
	}

	acc, one := random(r, 33), make([]float32, 33)
	copy(one, acc)
	vs := [4][]float32{random(r, 33), random(r, 33), random(r, 33), random(r, 33)}
	kernel.Axpy4(acc, &[4]float32{1, -2, 0.3, 4}, vs[0], vs[1], vs[2], vs[3])
	for i, p := range []float32{1, -2, 0.3, 4} {
		kernel.Axpy(one, p, vs[i])
	}
	for i := range acc {
		if acc[i] != one[i] {
			t.Fatalf("Axpy4[%d]: got %v, one by one %v", i, acc[i], one[i])
		}
	}
	kernel.Add(acc, x)
	if acc[7] != one[7]+x[7] {
		t.Errorf("Add: got %v, want %v", acc[7], one[7]+x[7])
	}
}

func TestRope(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	const n, pos, base, scale = 8, 1234, 10000.0, 4.0
	factors := []float32{1, 2, 4, 8}
	cos, sin := make([]float32, n/2), make([]float32, n/2)
	kernel.RopeAngles(cos, sin, pos, base, scale, factors)
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

func benchmarkQ8(b *testing.B, tokens int) {
	const n, rows = 1024, 256
	r := rand.New(rand.NewPCG(7, 7))
	w := gguf.QuantizeQ8_0(random(r, rows*n))
	var in kernel.Q8Input
	in.Resize(tokens, n)
	for g := range in.Groups() {
		in.Load(g, random(r, 3*n))
	}
	out := make([]float32, tokens*rows)
	for b.Loop() {
		in.Mul(out, rows, w)
	}
	b.ReportMetric(float64(b.N*rows*n*tokens)/b.Elapsed().Seconds()/1e9, "GMAC/s")
}

func BenchmarkQ8One(b *testing.B)  { benchmarkQ8(b, 1) }
func BenchmarkQ8Many(b *testing.B) { benchmarkQ8(b, 12) }

func benchmarkF32(b *testing.B, tokens int) {
	const n, rows = 1024, 256
	r := rand.New(rand.NewPCG(8, 8))
	w, x, out := random(r, rows*n), random(r, tokens*n), make([]float32, tokens*rows)
	for b.Loop() {
		kernel.MulF32(out, rows, w, x, tokens, n)
	}
	b.ReportMetric(float64(b.N*rows*n*tokens)/b.Elapsed().Seconds()/1e9, "GMAC/s")
}

func BenchmarkF32One(b *testing.B)  { benchmarkF32(b, 1) }
func BenchmarkF32Many(b *testing.B) { benchmarkF32(b, 12) }
