package worker_test

import (
	"slices"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/worker"
)

// BenchmarkRoundTrip256 measures a step of 256 sequences that decode, on a device that takes no
// time: from the batch to its output, including encoding, decoding and sampling.
func BenchmarkRoundTrip256(b *testing.B) {
	for name, launch := range map[string]worker.Launch{"inside": worker.InProcess(builder()), "process": worker.Process{}.Launch} {
		b.Run(name, func(b *testing.B) {
			s := begin(b, worker.Config{Launch: launch, Load: simulated(b, infer.SimulatedConfig{Vocab: 64, Context: 1 << 20, Blocks: 1 << 12, BlockSize: 256})})
			var batch worker.Batch
			var times []time.Duration
			for i := 0; b.Loop(); i++ {
				batch.Step++
				again := i%2000 == 0 // their blocks are full
				if again {
					batch.Items = batch.Items[:0]
				}
				for j := range 256 {
					if again {
						first := int32(8 * j)
						batch.Items = append(batch.Items, worker.Item{
							ID: uint64(j + 1), Count: 1, Begin: true, Prompt: 1, Tokens: []int32{5}, Sample: true,
							Blocks: []int32{first, first + 1, first + 2, first + 3, first + 4, first + 5, first + 6, first + 7},
						})
						continue
					}
					it := &batch.Items[j]
					*it = worker.Item{ID: it.ID, Pos: it.Pos + 1, Count: 1, Sample: true}
				}
				began := time.Now()
				s.Release(step(b, s, &batch))
				if !again {
					times = append(times, time.Since(began))
				}
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/1e3, "µs/p50")
			b.ReportMetric(float64(times[0].Nanoseconds())/1e3, "µs/min")
		})
	}
}
