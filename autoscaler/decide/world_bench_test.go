package decide_test

import (
	"fmt"
	"testing"

	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/decide/decidetest"
)

// BenchmarkWorld measures, in clusters of three sizes, one event of one function: the demand of one
// that is awake, and requests for one that sleeps and for one that is gone; and a plan
// of all that exists.
func BenchmarkWorld(b *testing.B) {
	for _, size := range []struct{ functions, nodes int }{{100, 12}, {1000, 125}, {10000, 1000}} {
		c := decidetest.New(size.functions, size.nodes)
		w := c.World()
		for _, event := range []struct {
			name  string
			state decidetest.State
			want  decide.Kind
		}{{"demand", decidetest.Busy, ""}, {"wake", decidetest.Asleep, decide.Wake}, {"start", decidetest.Gone, decide.Start}} {
			var ks []int
			for k := range size.functions {
				if decidetest.StateOf(k) == event.state {
					ks = append(ks, k)
				}
			}
			b.Run(fmt.Sprintf("functions=%d/%s", size.functions, event.name), func(b *testing.B) {
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					k := ks[n%len(ks)]
					n++
					actions := c.Event(w, k)
					b.StopTimer()
					if event.want != "" && (len(actions) == 0 || actions[0].Kind != event.want) {
						b.Fatalf("want a %s: %v", event.want, actions)
					}
					c.Undo(w, k)
					b.StartTimer()
				}
			})
		}
		b.Run(fmt.Sprintf("functions=%d/all", size.functions), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.World()
			}
		})
	}
}
