package cpu

import (
	"sync/atomic"
	"testing"
	"time"
)

// TestTeam: each chunk runs once, by a member that exists, whatever the sizes, with pauses
// long enough for members and caller to park, and after a stop.
func TestTeam(t *testing.T) {
	for _, size := range []int{1, 2, 3, 8} {
		team := team{size: size}
		for round := range 300 {
			n := round % 40
			counts := make([]atomic.Int32, n)
			var bad atomic.Bool
			team.run(n, func(member, chunk int) {
				counts[chunk].Add(1)
				if member < 0 || member >= size {
					bad.Store(true)
				}
				if round%7 == 0 {
					busy(100 * time.Microsecond)
				}
			})
			for i := range counts {
				if c := counts[i].Load(); c != 1 || bad.Load() {
					t.Fatalf("size %d, round %d: chunk %d ran %d times, wrong member %v", size, round, i, c, bad.Load())
				}
			}
			switch {
			case round%50 == 49:
				team.stop()
			case round%5 == 0:
				busy(100 * time.Microsecond)
			}
		}
		team.stop()
		team.stop()
	}
}

func busy(d time.Duration) {
	for t := time.Now(); time.Since(t) < d; {
	}
}

func BenchmarkTeam(b *testing.B) {
	team := team{size: 3}
	defer team.stop()
	do := func(int, int) {}
	for b.Loop() {
		team.run(12, do)
	}
}
