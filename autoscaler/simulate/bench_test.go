package simulate

import (
	"context"
	"testing"
	"time"
)

// BenchmarkDay is a day of 100 functions on 40 GPUs.
func BenchmarkDay(b *testing.B) {
	trace, err := Generate(Shape{Functions: 100, Seed: 1})
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range All {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := Run(context.Background(), Config{Devices: 40, HostMemory: 4 << 40}, trace, 24*time.Hour, Policy{Name: name}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
