package kernel_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/kernel"
)

// pages returns a cache of random numbers for positions 0 ≤ p < n, with its blocks in random order.
// Values that no position uses are NaN.
func pages(r *rand.Rand, headDim, n int) *kernel.Pages {
	blocks := (n + kernel.Block - 1) / kernel.Block
	size := kernel.Block * headDim
	p := &kernel.Pages{HeadDim: headDim, Stride: 2*size + 32, Keys: 16, Values: 16 + size}
	p.Memory = make([]uint16, (blocks+3)*p.Stride)
	for i := range p.Memory {
		p.Memory[i] = 0x7e00
	}
	for _, b := range r.Perm(blocks + 3)[:blocks] {
		p.Blocks = append(p.Blocks, int32(b))
	}
	for i := range n {
		p.StoreKey(i, random(r, headDim))
		p.StoreValue(i, random(r, headDim))
	}
	return p
}

// attend returns the obvious way to compute attention.
func attend(p *kernel.Pages, q kernel.Query, scale, softcap float64) []float64 {
	d := p.HeadDim
	var scores []float64
	top := math.Inf(-1)
	for i := q.From; i < q.To; i++ {
		keys := p.Memory[p.Keys+int(p.Blocks[i/kernel.Block])*p.Stride:]
		var s float64
		for j, v := range q.Q[:d] {
			s += float64(v) * float64(gguf.F16ToF32(keys[j*kernel.Block+i%kernel.Block]))
		}
		s *= scale
		if softcap > 0 {
			s = softcap * math.Tanh(s/softcap)
		}
		scores, top = append(scores, s), max(top, s)
	}
	out, sum := make([]float64, d), 0.0
	for i := range scores {
		w := math.Exp(scores[i] - top)
		sum += w
		pos := q.From + i
		values := p.Memory[p.Values+int(p.Blocks[pos/kernel.Block])*p.Stride+pos%kernel.Block*d:]
		for j := range out {
			out[j] += w * float64(gguf.F16ToF32(values[j]))
		}
	}
	if q.Sink != nil {
		sum += math.Exp(float64(*q.Sink) - top)
	}
	for j := range out {
		out[j] /= sum
	}
	return out
}

// group returns queries for several positions of one chunk, as a sliding window of the given
// size sees them; 0: no window.
func group(r *rand.Rand, headDim, heads, first, last, window int) []kernel.Query {
	var qs []kernel.Query
	for pos := first; pos < last; pos++ {
		from := 0
		if window > 0 {
			from = max(0, pos+1-window)
		}
		for range heads {
			qs = append(qs, kernel.Query{Q: random(r, headDim), Out: make([]float32, headDim), From: from, To: pos + 1})
		}
	}
	return qs
}

func TestAttention(t *testing.T) {
	r := rand.New(rand.NewPCG(20, 1))
	for _, tt := range []struct {
		headDim, heads, first, last, window int
		softcap                             float32
	}{
		{64, 1, 0, 1, 0, 0}, {64, 1, 700, 701, 0, 0}, {64, 7, 530, 532, 0, 0}, {64, 2, 250, 262, 0, 0}, {128, 4, 255, 257, 0, 30},
		{80, 3, 100, 101, 0, 0}, {256, 2, 300, 303, 0, 50}, {64, 2, 600, 605, 37, 0}, {64, 1, 15, 40, 3, 0}, {48, 5, 40, 42, 16, 0},
		{6, 3, 40, 42, 0, 0}, {32, 8, 1023, 1024, 0, 0}, {96, 6, 31, 33, 0, 0}, {8, 2, 512, 515, 1, 0},
	} {
		p := pages(r, tt.headDim, tt.last)
		qs := group(r, tt.headDim, tt.heads, tt.first, tt.last, tt.window)
		a := kernel.Attention{Scale: float32(1 / math.Sqrt(float64(tt.headDim))), Softcap: tt.softcap}
		a.Run(p, qs)
		for i, q := range qs {
			want := attend(p, q, float64(a.Scale), float64(a.Softcap))
			for j, got := range q.Out {
				near(t, "attention", float64(got), want[j], 1, 4e-6)
			}
			alone := kernel.Query{Q: q.Q, Out: make([]float32, tt.headDim), From: q.From, To: q.To}
			a.Run(p, []kernel.Query{alone})
			same(t, "a query alone and among others", alone.Out, q.Out)
			if t.Failed() {
				t.Fatalf("%+v: query %d", tt, i)
			}
		}
		inParts(t, &a, p, qs)
	}
}

// inParts checks that spans computed in any order, merged, give the same result as Run.
func inParts(t *testing.T, a *kernel.Attention, p *kernel.Pages, qs []kernel.Query) {
	t.Helper()
	first, last := kernel.Spans(qs)
	size := kernel.PartSize(p.HeadDim)
	parts := make([]float32, (last-first)*len(qs)*size)
	for s := last - 1; s >= first; s-- {
		a.Part(parts[(s-first)*len(qs)*size:], p, qs, s)
	}
	for i, q := range qs {
		out := make([]float32, p.HeadDim)
		(&kernel.Query{Out: out}).Merge(parts[i*size:], len(qs)*size, last-first)
		same(t, "parts merged", out, q.Out)
	}
}

// same checks for equal bits; any two NaNs are equal.
func same(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		g, w := got[i], want[i]
		if math.Float32bits(g) != math.Float32bits(w) && !(g != g && w != w) {
			t.Fatalf("%s: element %d of %d: got %v, want %v", what, i, len(want), g, w)
		}
	}
}

func TestAttentionToNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(20, 2))
	p := pages(r, 64, 16)
	out := random(r, 64)
	a := kernel.Attention{Scale: 1}
	a.Run(p, []kernel.Query{{Q: random(r, 64), Out: out, From: 5, To: 5}})
	same(t, "attention to nothing", out, make([]float32, 64))
}

// TestSink checks a score without a value: low, of the usual size, and above all others.
func TestSink(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	const d = 64
	p := pages(r, d, 600)
	for _, sink := range []float32{-50, 0.5, 20} {
		q := kernel.Query{Q: random(r, d), Out: make([]float32, d), Sink: &sink, From: 3, To: 590}
		a := kernel.Attention{Scale: 0.125}
		a.Run(p, []kernel.Query{q})
		for j, want := range attend(p, q, 0.125, 0) {
			if got := float64(q.Out[j]); math.Abs(got-want) > 1e-5 {
				t.Errorf("a sink of %v: dimension %d is %v, want %v", sink, j, got, want)
				break
			}
		}
	}
}

// TestClampedMul compares with the definition, also beyond the limits.
func TestClampedMul(t *testing.T) {
	for _, g := range []float32{-100, -7.5, -1, 0, 0.3, 6.9, 7, 30} {
		for _, u := range []float32{-30, -7, -0.5, 0, 2, 7, 8} {
			gate := []float32{g}
			kernel.ClampedMul(gate, []float32{u})
			x := math.Min(float64(g), 7)
			want := x / (1 + math.Exp(-1.702*x)) * (math.Max(-7, math.Min(float64(u), 7)) + 1)
			if got := float64(gate[0]); math.Abs(got-want) > 1e-5*math.Abs(want)+1e-30 {
				t.Errorf("%v, %v: got %v, want %v", g, u, got, want)
			}
		}
	}
}
