package simulate

import (
	"testing"
	"time"

	"github.com/rouse-dev/rouse/autoscaler/decide"
)

// hand is the result of one run of tiny models, computed by hand.
type hand struct {
	name    string
	policy  Policy
	trace   Trace
	horizon time.Duration
	held    float64   // GPU-seconds
	first   []float64 // times to first token in seconds, in the order in which they came
	starts  int
	wakes   int
	swaps   int
	refused int
}

func (h hand) run(t *testing.T, c Config) {
	t.Helper()
	w, r := play(t, c, h.trace, h.horizon, h.policy)
	near(t, "GPU-seconds", r.GPUHours*3600, h.held, 0.1)
	if len(w.first) != len(h.first) {
		t.Fatalf("%d times to first token, want %d", len(w.first), len(h.first))
	}
	want := append([]float64(nil), h.first...) // play's are sorted
	for k := range want {
		for j := k + 1; j < len(want); j++ {
			if want[j] < want[k] {
				want[j], want[k] = want[k], want[j]
			}
		}
	}
	for k := range want {
		near(t, "time to first token", w.first[k].Seconds(), want[k], 0.01)
	}
	for _, n := range []struct {
		what      string
		got, want int
	}{{"starts", r.Starts, h.starts}, {"wakes", r.Wakes, h.wakes}, {"swaps", r.Swaps, h.swaps}, {"refused", r.Refused, h.refused}} {
		if n.got != n.want {
			t.Errorf("%d %s, want %d", n.got, n.what, n.want)
		}
	}
}

func TestRouseByHand(t *testing.T) {
	for _, h := range []hand{
		// Loaded from 0 to 10, answered until 11, idle until 71, asleep at 73. The activator
		// wakes it at 100 under its grant: awake at 101, answered until 102, asleep at 164.
		{name: "sleep and wake", trace: Trace{ask(0, "a"), ask(100*time.Second, "a")}, horizon: 200 * time.Second,
			held: 73 + 64, first: []float64{10.1, 1.1}, starts: 1, wakes: 1},
		// b comes at 20 while a is idle: a sleeps until 22, b loads until 32, ends at 33.
		// a comes back at 40: b sleeps until 42, a wakes until 43 and ends at 44, asleep at 106.
		{name: "swap", trace: Trace{ask(0, "a"), ask(20*time.Second, "b"), ask(40*time.Second, "a")}, horizon: 200 * time.Second,
			held: 106, first: []float64{10.1, 12.1, 3.1}, starts: 2, wakes: 1, swaps: 2},
		// Nothing goes where nothing is to be let go.
		{name: "for ever", policy: Policy{Keep: Forever}, trace: Trace{ask(0, "a"), ask(100*time.Second, "a")}, horizon: 200 * time.Second,
			held: 200, first: []float64{10.1, 0.1}, starts: 1},
	} {
		t.Run(h.name, func(t *testing.T) {
			h.policy.Name = "rouse"
			h.run(t, tinyConfig(1, "a", "b"))
		})
	}
}

// eager plans after each change.
type eager struct{ *rouse }

func (e eager) arrived(f *function) {
	e.rouse.arrived(f)
	e.tell()
}

func (e eager) changed(f *function) {
	e.rouse.changed(f)
	e.tell()
}

// asked runs the policy, the long way with a plan after each change, and counts the plans.
func asked(t *testing.T, c Config, trace Trace, horizon time.Duration, long bool) (r Result, plans int) {
	t.Helper()
	w := newWorld(c)
	p := newRouse(w, Policy{Name: "rouse", Keep: 20 * time.Second}).(*rouse)
	w.controller = p
	if long {
		w.controller = eager{p}
	}
	p.ask = func() ([]decide.Action, time.Time) {
		plans++
		return p.decide()
	}
	if err := w.run(t.Context(), trace, horizon); err != nil {
		t.Fatal(err)
	}
	return w.result(Policy{Name: "rouse"}), plans
}

// TestRouseAsksProduction compares plans only when something can have changed with a plan after each change.
func TestRouseAsksProduction(t *testing.T) {
	for _, seed := range []uint64{0, 3, 4, 7, 9} { // the last four once differed
		trace, err := Generate(Shape{Functions: 9, Length: 90 * time.Minute, Rate: 900, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		c := Config{Devices: 3}.WithDefaults(trace)
		short, few := asked(t, c, trace, time.Hour, false)
		long, many := asked(t, c, trace, time.Hour, true)
		if short.GPUHours != long.GPUHours || short.P95 != long.P95 || short.Wakes != long.Wakes || short.Swaps != long.Swaps {
			t.Errorf("seed %d: %d plans give\n%+v, and %d\n%+v", seed, few, short, many, long)
		}
		if few >= many {
			t.Errorf("seed %d: %d plans are no fewer than %d", seed, few, many)
		}
	}
}

func TestKnativeByHand(t *testing.T) {
	for _, h := range []hand{
		// A pod from 0, ready at 10, answered until 11. The tick at 72 is the first whose
		// window of 60 s saw nothing: gone at 73.
		{name: "to zero", trace: Trace{ask(0, "a")}, horizon: 200 * time.Second,
			held: 73, first: []float64{10.1}, starts: 1},
		// b's pod waits for the GPU until 73 and is ready at 83. It answers until just after the tick of 84, and goes
		// at the tick of 146: gone at 147.
		{name: "a GPU for each pod", trace: Trace{ask(0, "a"), ask(20*time.Second, "b")}, horizon: 200 * time.Second,
			held: 147, first: []float64{10.1, 63.1}, starts: 2},
		// Two minutes: the window, and a retention of a minute.
		{name: "retention", policy: Policy{Keep: 2 * time.Minute}, trace: Trace{ask(0, "a"), ask(100*time.Second, "a")}, horizon: 300 * time.Second,
			// The tick at 162 sees an empty window: 60 s more, gone at 223.
			held: 223, first: []float64{10.1, 0.1}, starts: 1},
		{name: "min-scale", policy: Policy{Keep: Forever}, trace: Trace{ask(20*time.Second, "a")}, horizon: 100 * time.Second,
			held: 100, first: []float64{0.1}, starts: 1},
	} {
		t.Run(h.name, func(t *testing.T) {
			h.policy.Name = "knative"
			names := tinyConfig(1, "a", "b")
			if h.name == "min-scale" {
				names = tinyConfig(1, "a")
			}
			h.run(t, names)
		})
	}
}

// TestKnativePanics gives a ready pod ten requests at once: the panic window wants
// more than twice the pods at the next tick.
func TestKnativePanics(t *testing.T) {
	c := tinyConfig(4, "a")
	c.MaxScale = 4
	trace := Trace{ask(0, "a")}
	for range 10 {
		a := ask(31*time.Second, "a")
		a.Output = 300
		trace = append(trace, a)
	}
	w, r := play(t, c, trace, 35*time.Second, Policy{Name: "knative"})
	// 10 requests for 1 s of a window of 6 are 1.67, of 1.4 for each pod, at the tick of 32. That makes 2 pods of 1, a
	// panic. At 34 they are 5, and 4 pods, the most allowed.
	if r.Starts != 4 {
		t.Errorf("%d pods, want 4", r.Starts)
	}
	if k := w.controller.(*knative).functions[0]; !k.panicking {
		t.Error("it does not panic")
	}
}

func TestKeepaliveByHand(t *testing.T) {
	for _, h := range []hand{
		// b comes at 20: a is unloaded until 21, b loads until 31 and ends at 32. Five minutes later it goes.
		{name: "the oldest goes", trace: Trace{ask(0, "a"), ask(20*time.Second, "b")}, horizon: 400 * time.Second,
			held: 333, first: []float64{10.1, 11.1}, starts: 2, swaps: 1},
		{name: "keep-alive", policy: Policy{Keep: 30 * time.Second}, trace: Trace{ask(0, "a"), ask(100*time.Second, "a")}, horizon: 400 * time.Second,
			held: 42 + 42, first: []float64{10.1, 10.1}, starts: 2},
		// a is busy when b comes at 10.5: it finishes at 11, is gone at 12, b is ready at 22. What came
		// for a at 10.7 waits behind b, which ends at 23: gone at 24, a is ready at 34.
		{name: "a busy one is not fed", trace: Trace{ask(0, "a"), ask(10500*time.Millisecond, "b"), ask(10700*time.Millisecond, "a")}, horizon: time.Second,
			held: 35, first: []float64{10.1, 11.6, 23.4}, starts: 3, swaps: 2},
	} {
		t.Run(h.name, func(t *testing.T) {
			h.policy.Name = "keepalive"
			h.run(t, tinyConfig(1, "a", "b"))
		})
	}
}

func TestRandomByHand(t *testing.T) {
	for _, h := range []hand{
		// a is asleep at 73; b gets the GPU then, is ready at 83, idle from 84, asleep at 146.
		// a's requester lands on the one GPU, where a sleeps: ready at 201, asleep at 264.
		{name: "hot", trace: Trace{ask(0, "a"), ask(20*time.Second, "b"), ask(200*time.Second, "a")}, horizon: 300 * time.Second,
			held: 146 + 64, first: []float64{10.1, 63.1, 1.1}, starts: 2, wakes: 1},
		// One sleeper at a time: a ends (1 s) before b starts, and b before a comes back.
		{name: "limit", policy: Policy{SleeperLimit: 1}, trace: Trace{ask(0, "a"), ask(20*time.Second, "b"), ask(200*time.Second, "a")}, horizon: 300 * time.Second,
			held: 147 + 74, first: []float64{10.1, 64.1, 11.1}, starts: 3, swaps: 2},
	} {
		t.Run(h.name, func(t *testing.T) {
			h.policy.Name = "random"
			h.run(t, tinyConfig(1, "a", "b"))
		})
	}
}

// TestRandomIsChance wakes one function again and again among four GPUs: with a sleeper
// on one of them it is hot where chance says so.
func TestRandomIsChance(t *testing.T) {
	c := tinyConfig(4, "a")
	var trace Trace
	for k := range 4000 {
		trace = append(trace, ask(time.Duration(k)*200*time.Second, "a"))
	}
	c.Seed = 3
	c.HostMemory = 30 << 30 // one instance fits, so that each start ends the sleeper elsewhere
	_, r := play(t, c, trace, trace.Length(), Policy{Name: "random"})
	near(t, "the hot share", r.HotShare, 0.25, 0.03)
}

func TestRefused(t *testing.T) {
	c := tinyConfig(1, "a", "b")
	c.Hold = 5 * time.Second
	for _, name := range All[:len(All)-1] { // the planner comes after 10 s
		_, r := play(t, c, Trace{ask(0, "a"), ask(8*time.Second, "a")}, 20*time.Second, Policy{Name: name})
		if r.Refused != 1 || r.Served != 1 {
			t.Errorf("%s: %d refused and %d served, want 1 of each: the first waits for longer than 5 s, the second 2 s", name, r.Refused, r.Served)
		}
		near(t, name+": p95", r.P95, 5000, 0.001)
	}
}

func TestSearchHoldsTheTarget(t *testing.T) {
	trace, err := Generate(Shape{Functions: 4, Length: 2 * time.Hour, Seed: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Names {
		r, err := Search(t.Context(), Config{Devices: 4}, trace, 2*time.Hour, Policy{Name: name}, 2*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if !r.TargetMet || r.P95 > 120_000 {
			t.Errorf("%s: p95 %v ms for a target of 2 min", name, r.P95)
		}
		always, err := Run(t.Context(), Config{Devices: 4}, trace, 2*time.Hour, Policy{Name: name, Keep: Forever})
		if err != nil {
			t.Fatal(err)
		}
		if r.GPUHours > always.GPUHours {
			t.Errorf("%s: %v GPU-hours where for ever takes %v", name, r.GPUHours, always.GPUHours)
		}
		if r, err = Search(t.Context(), Config{Devices: 4}, trace, 2*time.Hour, Policy{Name: name}, time.Nanosecond); err != nil || r.TargetMet {
			t.Errorf("%s: a nanosecond is held (%v)", name, err)
		}
	}
}
