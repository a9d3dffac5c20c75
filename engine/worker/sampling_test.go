package worker

import (
	"fmt"
	"testing"

	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/sample"
)

// BenchmarkSample measures the choice of tokens of 32 sequences from vocabularies of usual sizes.
func BenchmarkSample(b *testing.B) {
	for _, vocab := range []int{32_000, 152_000} {
		for name, spec := range map[string]sample.Params{
			"greedy":  {},
			"sampled": {Temperature: 0.8, TopP: 0.95, TopK: 40, Seed: new(int64)},
			"top-p":   {Temperature: 1, TopP: 0.9, Seed: new(int64)},
		} {
			b.Run(fmt.Sprintf("%s %d", name, vocab), func(b *testing.B) {
				d, err := infer.NewSimulated(infer.SimulatedConfig{Vocab: vocab})
				if err != nil {
					b.Fatal(err)
				}
				text, err := (&Spec{Params: spec}).JSON()
				if err != nil {
					b.Fatal(err)
				}
				const n = 32
				s := &server{inf: d, table: table{}}
				batch := &Batch{Step: 1}
				result := infer.Result{Logits: make([][]float32, n), Hidden: make([][]float32, n)}
				for i := range n {
					batch.Items = append(batch.Items, Item{ID: uint64(i + 1), Count: 1, Begin: true, Prompt: 1, Tokens: []int32{1}, Blocks: []int32{int32(i)}, Sample: true, Spec: text})
					result.Logits[i] = make([]float32, vocab)
					for t := range vocab {
						result.Logits[i][t] = float32((t*7919+i)%1000) / 100
					}
				}
				s.prepare(batch)
				for b.Loop() {
					s.finish(result)
					for i := range s.step.shares {
						q := s.step.shares[i].seq
						q.tokens = q.tokens[:1]
					}
				}
			})
		}
	}
}
