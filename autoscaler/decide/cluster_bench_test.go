package decide

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkCluster measures one plan in clusters of three sizes: at rest, for a function with requests that is asleep
// or gone, and while 100 functions (10 in the smallest cluster) wait for memory in use. With -short, clusters are small.
func BenchmarkCluster(b *testing.B) {
	sizes := []struct{ functions, nodes int }{{100, 12}, {1000, 125}, {10000, 1000}}
	if testing.Short() {
		sizes[1].functions, sizes[1].nodes, sizes[2].functions, sizes[2].nodes = 200, 25, 400, 50
	}
	for k, size := range sizes {
		c := newCluster(size.functions, size.nodes)
		plan := func(name string, want Kind, number int) {
			b.Run(fmt.Sprintf("size=%d/%s", k, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					found := 0
					actions, _ := c.Plan()
					for _, a := range actions {
						if a.Kind == want {
							found++
						}
					}
					if found < number {
						b.Fatalf("%d actions of kind %s, want %d: %v", found, want, number, actions)
					}
				}
			})
		}
		plan("rest", "", 0)
		for _, event := range []struct {
			name string
			k    int
			want Kind
		}{{"wake", 1, Wake}, {"start", 9, Start}} {
			c.Event(event.k)
			plan(event.name, event.want, 1)
			c.Undo(event.k)
		}
		waiting := min(100, size.functions/10)
		c.Crowd(waiting)
		c.Now = c.Now.Add(time.Second)
		plan("waiting", Wait, waiting)
	}
}
