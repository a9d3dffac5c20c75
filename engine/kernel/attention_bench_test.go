package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rouse-dev/rouse/engine/gguf"
)

// BenchmarkAttention measures a decode step at a long context, and a chunk of a prompt, for one kv head.
func BenchmarkAttention(b *testing.B) {
	for _, bb := range []struct{ d, queries, context int }{{64, 1, 8192}, {64, 7, 8192}, {128, 4, 8192}, {64, 7 * 16, 4096}} {
		b.Run(fmt.Sprintf("dim%d/queries%d/context%d", bb.d, bb.queries, bb.context), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 1))
			p := &Pages{HeadDim: bb.d, Stride: 8 * 2 * bb.d * Block, Values: bb.d * Block}
			blocks := bb.context / Block
			p.Memory = make([]uint16, blocks*p.Stride)
			for i := range p.Memory {
				p.Memory[i] = gguf.F32ToF16(float32(r.NormFloat64()))
			}
			for _, i := range r.Perm(blocks) {
				p.Blocks = append(p.Blocks, int32(i))
			}
			qs := make([]Query, bb.queries)
			for i := range qs {
				qs[i] = Query{Q: numbers(r, bb.d, 0), Out: make([]float32, bb.d), To: bb.context - (bb.queries-i)/7}
			}
			a := Attention{Scale: 0.125}
			for b.Loop() {
				a.Run(p, qs)
			}
			seconds := b.Elapsed().Seconds() / float64(b.N)
			b.ReportMetric(float64(bb.context*bb.d*4)/seconds/1e9, "GB/s")
			b.ReportMetric(float64(bb.context*bb.d*2*bb.queries)/seconds/1e9, "GMAC/s")
		})
	}
}
