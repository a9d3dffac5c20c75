package cpu_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/infer/cpu"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
)

// benchModels returns the models that benchmarks run on: the file that BENCH_MODEL names, or else small
// generated ones.
func benchModels(b *testing.B) map[string]string {
	if path := os.Getenv("BENCH_MODEL"); path != "" {
		return map[string]string{filepath.Base(path): path}
	}
	models := map[string]string{}
	for name, s := range map[string]infertest.Spec{
		"2M":  {Dim: 192, Layers: 4, Heads: 6, FFN: 512, Vocab: 1024, Context: 4096},
		"15M": {Dim: 288, Layers: 6, Heads: 6, FFN: 768, Vocab: 32000, Context: 4096},
	} {
		s.Type = gguf.Q8_0
		models[name] = writeModel(b, s)
	}
	return models
}

func writeModel(b *testing.B, s infertest.Spec) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "m.gguf")
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	if err := errors.Join(infertest.Write(f, s), f.Close()); err != nil {
		b.Fatal(err)
	}
	return path
}

func BenchmarkForward(b *testing.B) {
	for name, path := range benchModels(b) {
		for _, threads := range []int{1, 3, 4} {
			r := open(b, path, cpu.Config{Threads: threads})
			run := func(kind string, n int, items []infer.Item) {
				b.Run(fmt.Sprintf("%s/threads=%d/%s", name, threads, kind), func(b *testing.B) {
					batch := &infer.Batch{Items: items}
					for b.Loop() {
						if _, err := r.Forward(context.Background(), batch); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "tok/s")
				})
			}
			run("prefill=256", 256, []infer.Item{{Tokens: tokens(256, 400, 1), Blocks: blocks(0, 16), Want: infer.Last}})
			for _, n := range []int{1, 8, 16} {
				var items []infer.Item
				for i := range n {
					items = append(items, infer.Item{Tokens: []int32{7}, Pos: 64, Blocks: blocks(i*8, 8), Want: infer.Last})
				}
				run(fmt.Sprintf("decode=%d", n), n, items)
			}
			if r.Config().Context > 4000 {
				long := []infer.Item{{Tokens: []int32{7}, Pos: 4000, Blocks: blocks(0, 251), Want: infer.Last}}
				run("decode=1 at 4000", 1, long)
				long = []infer.Item{{Tokens: tokens(256, 400, 1), Pos: 3744, Blocks: blocks(0, 250), Want: infer.Last}}
				run("prefill=256 at 3744", 256, long)
			}
		}
	}
}

// BenchmarkWake measures from the call of Wake to the end of the first step.
func BenchmarkWake(b *testing.B) {
	batch := &infer.Batch{Items: []infer.Item{{Tokens: []int32{7}, Blocks: []int32{0}, Want: infer.Last}}}
	for name, path := range benchModels(b) {
		b.Run(name+"/open and first token", func(b *testing.B) {
			for b.Loop() {
				r, err := cpu.Open(path, cpu.Config{})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := r.Forward(context.Background(), batch); err != nil {
					b.Fatal(err)
				}
				r.Close()
			}
		})
		for level := 1; level <= 2; level++ {
			b.Run(fmt.Sprintf("%s/level=%d", name, level), func(b *testing.B) {
				r := open(b, path, cpu.Config{})
				var wake, first time.Duration
				for b.Loop() {
					if err := r.Sleep(level); err != nil {
						b.Fatal(err)
					}
					t := time.Now()
					if err := r.Wake(context.Background()); err != nil {
						b.Fatal(err)
					}
					wake += time.Since(t)
					if _, err := r.Forward(context.Background(), batch); err != nil {
						b.Fatal(err)
					}
					first += time.Since(t)
				}
				b.ReportMetric(float64(wake.Microseconds())/float64(b.N), "µs/wake")
				b.ReportMetric(float64(first.Microseconds())/float64(b.N), "µs/first-token")
			})
		}
	}
}
