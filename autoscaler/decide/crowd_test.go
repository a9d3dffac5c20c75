package decide

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestCrowd runs worlds in which most functions wait, and which are so large that no search sees
// all of them: users come and go, devices and nodes too, and calls fail. No action gives what is not there.
func TestCrowd(t *testing.T) {
	var plans, waiting int
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 7))
		s := randomFleet(r, 50+r.IntN(60), 9+r.IntN(3), func() int { return 6 + r.IntN(3) })
		if len(s.Devices) <= smallest {
			t.Fatalf("%d devices: want a world that is not small", len(s.Devices))
		}
		if r.IntN(2) == 0 {
			s.flaky = rand.New(rand.NewPCG(seed, 8))
		}
		s.auditor = &auditor{}
		s.watch = func(actions []Action) {
			plans++
			for _, a := range actions {
				if a.Kind == Wait {
					waiting++
				}
			}
		}
		all := slices.Clone(s.Devices)
		for range 8 {
			for k := range s.Functions {
				if r.IntN(6) == 0 {
					s.use(s.Functions[k].Spec.Name, r.IntN(6)*r.IntN(3))
					s.busy(r, &s.Functions[k])
				}
			}
			s.run(time.Duration(r.IntN(4000))*time.Millisecond, func() {
				if s.auditor.wrong != "" {
					t.Fatalf("seed %d at %s: %s", seed, s.now.Sub(s.start), s.auditor.wrong)
				}
			})
			disturb(r, s, all)
		}
	}
	if mean := waiting / plans; plans < 200 || mean < 10 {
		t.Errorf("%d plans in which %d functions wait: that tells nothing", plans, mean)
	}
}
