package decide

import (
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// TestOthersDoNotWakeInTurn has two functions of which one fits. A client asks for the one every 100 ms, once its last
// request was answered, and eight others ask for both in turn. Most of its requests find an instance awake.
func TestOthersDoNotWakeInTurn(t *testing.T) {
	inTurn := func(round int) (int, int) { return 8 * btoi(round%20 >= 10), 8 * btoi(round%20 < 10) }
	for name, test := range map[string]struct {
		wake   time.Duration
		others func(round int) (a, b int)
	}{
		"others ask for the other all the time": {30 * time.Millisecond, func(int) (int, int) { return 0, 8 }},
		"others ask for the other often":        {30 * time.Millisecond, func(round int) (int, int) { return 0, 8 * btoi(round%6 < 2) }},
		"others ask for both in turn":           {30 * time.Millisecond, inTurn},
		"both wake slowly":                      {3 * time.Second, inTurn},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim()
			s.Devices[0].Capacity = 3 * api.GiB / 2
			for _, name := range []string{"a", "b"} {
				f := api.Function{Name: api.NewFunctionName("", name), Concurrency: 16, MaxScale: 1, Memory: api.Memory{Host: api.GiB}}
				n := s.declare(f.WithDefaults())
				n.wake, n.sleep = test.wake, 20*time.Millisecond
			}
			const a, b = "default/a", "default/b"
			var asked time.Time // zero: the client does not wait
			served, waited := 0, 0
			wakes := alternate(s, 10*time.Millisecond, 5*time.Minute, func(round int) {
				ofA, ofB := test.others(round)
				own := 0
				if asked.IsZero() && round%10 == 0 {
					asked = s.now
				}
				if !asked.IsZero() {
					own = 1
				}
				f := s.function(a)
				if f.Waiting+f.Running == 0 && ofA+own > 0 {
					f.Arrived(s.now)
				}
				s.use(b, ofB)
				s.use(a, ofA+own)
				if own > 0 && f.Running > 0 {
					if s.now.Sub(asked) > 10*time.Millisecond {
						waited++
					} else {
						served++
					}
					asked = time.Time{}
				}
			})
			t.Logf("%d requests served at once, %d waited; %v", served, waited, wakes)
			if most := int(5 * time.Minute / max(2*test.wake, 1500*time.Millisecond)); served < 4*waited || waited > most {
				t.Errorf("%d requests were served at once and %d waited: want most of them served at once; %v", served, waited, wakes)
			}
		})
	}
}
