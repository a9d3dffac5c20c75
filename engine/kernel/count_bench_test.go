package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkCount does small amounts of each kernel's work; e2e/bench neon counts the instructions in an
// emulator. items is the number of products or values of one run. Only the selected work is prepared.
func BenchmarkCount(b *testing.B) {
	for _, typ := range types {
		for _, tokens := range []int{1, 4, 64} {
			const rows, cols = 16, 512
			countWork(b, fmt.Sprintf("products/%s/%d", typ, tokens), rows*cols*tokens, func(r *rand.Rand) func() {
				m := pack(b, typ, rows, cols, noise(typ, r, rows, cols, false))
				var in Input
				var s Scratch
				in.Resize(typ, tokens, cols)
				in.Load(normal(r, tokens*cols), 0, tokens)
				out := make([]float32, rows*tokens)
				return func() { m.Mul(out, rows, &in, 0, tokens, 0, rows, &s) }
			})
		}
	}
	for _, queries := range []int{1, 8} {
		const d, context = 64, 256
		countWork(b, fmt.Sprintf("attention/%d", queries), 2*d*context*queries, func(r *rand.Rand) func() {
			p := &Pages{HeadDim: d, Stride: 2 * d * Block, Values: d * Block, Memory: make([]uint16, context*2*d)}
			NarrowF16(p.Memory, normal(r, len(p.Memory)))
			for i := range context / Block {
				p.Blocks = append(p.Blocks, int32(i))
			}
			qs := make([]Query, queries)
			for i := range qs {
				qs[i] = Query{Q: normal(r, d), Out: make([]float32, d), To: context}
			}
			a := Attention{Scale: 0.125}
			return func() { a.Run(p, qs) }
		})
	}
	countValues(b)
}

func countWork(b *testing.B, name string, items int, prepare func(r *rand.Rand) func()) {
	b.Run(name, func(b *testing.B) {
		do := prepare(rand.New(rand.NewPCG(1, 1)))
		for b.Loop() {
			do()
		}
		b.ReportMetric(float64(items), "items")
	})
}

func countValues(b *testing.B) {
	const n = 1024
	h, q, blocks := make([]uint16, n), make([]int8, n), make([]block, n/32)
	for _, w := range []struct {
		name string
		do   func(z, x, y []float32)
	}{
		{"RMSNorm", func(z, x, y []float32) { RMSNorm(z, x, y, 1e-5) }},
		{"Rope", func(z, x, y []float32) { Rope(z, x[:n/2], y[:n/2], false) }},
		{"Rope-neox", func(z, x, y []float32) { Rope(z, x[:n/2], y[:n/2], true) }},
		{"SiLUMul", func(z, x, y []float32) { copy(z, x); SiLUMul(z, y) }},
		{"GELUMul", func(z, x, y []float32) { copy(z, x); GELUMul(z, y) }},
		{"Softcap", func(z, _, _ []float32) { Softcap(z, 30) }},
		{"ExpSum", func(z, _, _ []float32) { ExpSum(z, 1) }},
		{"maximum", func(_, x, _ []float32) { maximum(x) }},
		{"Add", func(z, x, _ []float32) { Add(z, x) }},
		{"Scale", func(z, _, _ []float32) { Scale(z, 1) }},
		{"Axpy", func(z, x, _ []float32) { Axpy(z, 1e-3, x) }},
		{"NarrowF16", func(_, x, _ []float32) { NarrowF16(h, x) }},
		{"quantize", func(_, x, _ []float32) { quantizeRow(q, blocks, x) }},
	} {
		countWork(b, "values/"+w.name, n, func(r *rand.Rand) func() {
			x, y, z := normal(r, n), normal(r, n), make([]float32, n)
			return func() { w.do(z, x, y) }
		})
	}
}
