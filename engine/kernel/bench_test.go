package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/engine/gguf"
)

// best reports the shortest of many runs, per item of work. On a shared machine the
// mean depends more on the other processes.
func best(b *testing.B, items float64, unit string, run func()) {
	shortest := time.Hour
	for b.Loop() {
		start := time.Now()
		run()
		shortest = min(shortest, time.Since(start))
	}
	b.ReportMetric(items/float64(shortest.Nanoseconds()), unit)
	b.ReportMetric(0, "ns/op")
}

// BenchmarkMul multiplies on one thread: 16 rows with 1, 4 and 64 vectors out of the
// second-level cache.
func BenchmarkMul(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	const rows, cols = 64, 2048
	for _, typ := range types {
		m := pack(b, typ, rows, cols, noise(typ, r, rows, cols, false))
		for _, tokens := range []int{1, 4, 64} {
			b.Run(fmt.Sprintf("%s/%d", typ, tokens), func(b *testing.B) {
				var in Input
				var s Scratch
				in.Resize(typ, tokens, cols)
				in.Load(normal(r, tokens*cols), 0, tokens)
				out := make([]float32, rows*tokens)
				best(b, rows*cols*float64(tokens), "GMAC/s", func() { m.Mul(out, rows, &in, 0, tokens, 0, rows, &s) })
			})
		}
	}
}

// BenchmarkPack packs on one thread.
func BenchmarkPack(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	const rows, cols = 64, 4096
	for _, typ := range types {
		src := noise(typ, r, rows, cols, false)
		dst := make([]byte, PackedBytes(typ, rows, cols))
		b.Run(typ.String(), func(b *testing.B) {
			best(b, float64(len(src)), "GB/s", func() { Pack(dst, typ, rows, cols, src, 0, rows) })
		})
	}
}

func BenchmarkLoad(b *testing.B) {
	const cols = 2048
	x := normal(rand.New(rand.NewPCG(1, 1)), cols)
	var in Input
	in.Resize(gguf.Q8_0, 1, cols)
	best(b, cols, "values/ns", func() { in.Load(x, 0, 1) })
}

// BenchmarkStream multiplies one vector with a matrix that fits in no cache, and reports bytes of weights per
// second. F32 is close to a plain read of memory, so the others are compared with it.
func BenchmarkStream(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, typ := range types {
		const cols = 4096
		rows := 160 << 20 / (cols / formats[typ].cols * formats[typ].file) / Tile * Tile
		one := pack(b, typ, Tile, cols, noise(typ, r, Tile, cols, false))
		m := Matrix{rows, cols, typ, make([]byte, PackedBytes(typ, rows, cols))}
		for i := 0; i < len(m.Data); i += len(one.Data) {
			copy(m.Data[i:], one.Data)
		}
		b.Run(typ.String(), func(b *testing.B) {
			var in Input
			var s Scratch
			in.Resize(typ, 1, cols)
			in.Load(normal(r, cols), 0, 1)
			out := make([]float32, rows)
			best(b, float64(len(m.Data)), "GB/s", func() { m.Mul(out, rows, &in, 0, 1, 0, rows, &s) })
		})
	}
	b.Run("read", func(b *testing.B) {
		data := make([]uint64, 160<<20/8)
		for i := range data {
			data[i] = 1
		}
		var sum uint64
		best(b, float64(len(data)*8), "GB/s", func() {
			for i := 0; i < len(data); i += 8 { // a word of each line
				sum += data[i]
			}
		})
		if sum == 0 {
			b.Error("nothing was read")
		}
	})
}
