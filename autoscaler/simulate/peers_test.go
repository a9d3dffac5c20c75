package simulate

import (
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

func TestPeersByHand(t *testing.T) {
	long := ask(100*time.Second, "a")
	long.Output = 100
	for _, h := range []hand{
		// a is loaded at 10 and answered at 11; b comes at 20 and is loaded at 30. At 40 a is restored and copied
		// back within 1.067 s. At 100 it gets work for ten seconds, and at 101 b comes. a has its turn until 104, b is there at 105
		// and answered at 106, a is back at 107 and ends at 113.
		{name: "turns", policy: Policy{Name: "tokens"}, trace: Trace{ask(0, "a"), ask(20*time.Second, "b"), ask(40*time.Second, "a"), long, ask(101*time.Second, "b")},
			horizon: 300 * time.Second, held: 173.13, first: []float64{10.1, 10.1, 1.167, 0.1, 4.167}, starts: 2, wakes: 3, swaps: 4},
		// b's load begins at 100. For the window from 300 on both are foreseen, so that a's weights are on the GPU, too, when it is asked for at 310.
		{name: "copies", policy: Policy{Name: "prewarm"}, trace: Trace{ask(0, "a"), ask(100*time.Second, "b"), ask(310*time.Second, "a")},
			horizon: 400 * time.Second, held: 71 + 71 + 61.3, first: []float64{10.1, 10.1, 0.4}, starts: 2, wakes: 1},
		// The plan of 10 starts a, the plan of 90 puts it to sleep, which takes until 92. At 100 it is woken at once.
		// The plan of 110 puts it to sleep for b, which is loaded at 122 and asleep at 192.
		{name: "plans", policy: Policy{Name: "planner"}, trace: Trace{ask(0, "a"), ask(100*time.Second, "a"), ask(105*time.Second, "b")},
			horizon: 300 * time.Second, held: 82 + 92, first: []float64{20.1, 1.1, 17.1}, starts: 2, wakes: 1, swaps: 1},
	} {
		t.Run(h.name, func(t *testing.T) { h.run(t, tinyConfig(1, "a", "b")) })
	}
}

// TestTurnsKeepEveryToken checks that interrupted work continues where it was, and costs no more than its tokens and
// the switches.
func TestTurnsKeepEveryToken(t *testing.T) {
	long := func(at time.Duration, model api.ModelName) Arrival {
		a := ask(at, model)
		a.Output = 200
		return a
	}
	// Both have work for 20 s and are loaded: turns of 4 s and switches of 1.067 s between them, the first of them b's at
	// 104.
	trace := Trace{ask(0, "a"), ask(20*time.Second, "b"), ask(60*time.Second, "a"), long(100*time.Second, "a"), long(101*time.Second, "b")}
	w, r := play(t, tinyConfig(1, "a", "b"), trace, 200*time.Second, Policy{Name: "tokens"})
	// 40 s of work and nine switches: the last one ends at 149.6.
	near(t, "the end", w.functions[1].units[0].lastUse.Seconds(), 149.6, 0.2)
	if r.Served != len(trace) {
		t.Errorf("%d served, want %d", r.Served, len(trace))
	}
}
