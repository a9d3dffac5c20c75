package sample

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// twin is the draw as the package comment defines it, with everything sorted and in double
// precision. It returns each token's interval in [0, 1): an empty one for a token that dropped out.
func twin(p Params, logits []float32, mask []uint64) [][2]float64 {
	var c []candidate
	top := math.Inf(-1)
	for t, l := range logits {
		if l == l && (mask == nil || mask[t/64]>>(t%64)&1 != 0) {
			top = max(top, float64(l))
			c = append(c, candidate{int32(t), float64(l)})
		}
	}
	for i := range c {
		c[i].weight = math.Exp((c[i].weight - top) / p.Temperature)
	}
	slices.SortFunc(c, compare)
	for i := range c {
		if c[i].weight < p.MinP {
			c = c[:i]
			break
		}
	}
	if p.TopK > 0 && p.TopK < len(c) {
		c = c[:p.TopK]
	}
	if p.TopP > 0 && p.TopP < 1 {
		c = head(c, p.TopP*total(c))
	}
	at := make([][2]float64, len(logits))
	slices.SortFunc(c, func(a, b candidate) int { return int(a.token - b.token) })
	sum, all := 0.0, total(c)
	for _, c := range c {
		at[c.token] = [2]float64{sum / all, (sum + c.weight) / all}
		sum += c.weight
	}
	return at
}

// TestDrawIsTwin compares draws with the twin over all combinations of parameters, masks and shapes of distributions.
func TestDrawIsTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for trial := range 3000 {
		n := 1 + r.IntN(3000)
		logits := make([]float32, n)
		sharp := math.Exp(r.Float64()*4 - 2)
		for i := range logits {
			logits[i] = float32(r.NormFloat64() * sharp)
			if r.IntN(50) == 0 {
				logits[i] = float32(math.NaN())
			}
		}
		var mask []uint64
		if r.IntN(2) == 0 {
			mask = make([]uint64, (n+63)/64)
			for i := range mask {
				mask[i] = r.Uint64()
			}
		}
		p := Params{Temperature: math.Exp(r.Float64()*4 - 3)}
		if r.IntN(2) == 0 {
			p.TopK = 1 + r.IntN(n+5)
		}
		if r.IntN(2) == 0 {
			p.TopP = r.Float64()
		}
		if r.IntN(3) == 0 {
			p.MinP = r.Float64() * r.Float64()
		}
		at := twin(p, logits, mask)
		seed := int64(trial)
		p.Seed = &seed
		c, err := New(p, 1).Next(logits, nil, []int32{0}, 7, mask) // so that it does not fail on NaN
		if err != nil {
			if slices.ContainsFunc(at, func(a [2]float64) bool { return a[1] > 0 }) {
				t.Errorf("trial %d: %v", trial, err)
			}
			continue
		}
		const near = 2e-5 // the error of single precision and its sums
		if x, a := uniform(uint64(seed), 1, 7), at[c.Token]; x < a[0]-near || x > a[1]+near {
			t.Errorf("trial %d, %+v, %d tokens: chose %d, which lies in %v, at %v", trial, p, n, c.Token, a, x)
		}
	}
}

// TestUniform checks that the numbers of neighbouring seeds, indices and positions are spread evenly and do not follow one another.
func TestUniform(t *testing.T) {
	const cells, n = 64, 64 * 1000
	for name, f := range map[string]func(i uint64) float64{
		"seeds":     func(i uint64) float64 { return uniform(i, 0, 5) },
		"indices":   func(i uint64) float64 { return uniform(1, i, 5) },
		"positions": func(i uint64) float64 { return uniform(1, 0, i) },
		"together":  func(i uint64) float64 { return uniform(i, i, i) },
	} {
		var count [cells]float64
		var product float64
		for i := range uint64(n) {
			x := f(i)
			count[int(x*cells)]++
			product += (x - .5) * (f(i+1) - .5)
		}
		chi := 0.0
		for _, c := range count {
			chi += (c - n/cells) * (c - n/cells) / (n / cells)
		}
		if chi < 25 || chi > 115 { // 63 ± 11; the limits are beyond four deviations
			t.Errorf("%s: χ² of %d cells is %.1f", name, cells, chi)
		}
		if c := product / n * 12; math.Abs(c) > 4/math.Sqrt(n) {
			t.Errorf("%s: neighbours correlate with %.4f", name, c)
		}
	}
}
