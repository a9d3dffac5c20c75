package decide_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/decide/decidetest"
)

// BenchmarkCrowd measures an event of a function that works, in a cluster of 10,000 on 1,000 nodes,
// while others wait for what nobody can give them yet.
func BenchmarkCrowd(b *testing.B) {
	c := decidetest.New(10000, 1000)
	w := c.World()
	for _, waiting := range []int{0, 10, 100, 1000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			gather := func() time.Time {
				actions := c.Crowd(w, waiting)
				waits := 0
				for _, a := range actions {
					if a.Kind == decide.Wait {
						waits++
					}
				}
				if waits < waiting {
					b.Fatalf("%d wait, want %d: %v", waits, waiting, actions)
				}
				return c.Now.Add(4 * time.Second)
			}
			over := gather()
			for n := 0; b.Loop(); n++ {
				if c.Now.After(over) { // before anybody gets a turn
					b.StopTimer()
					over = gather()
					b.StartTimer()
				}
				c.Event(w, n*10%10000)
			}
		})
	}
}
