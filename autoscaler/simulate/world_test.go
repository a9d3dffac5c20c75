package simulate

import (
	"context"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// tiny is a model whose times are easy to add up. It takes 10 s to load, 1 s to wake, 2 s to sleep and 1 s to stop.
// Prompts take no time, and a token takes 100 ms.
func tiny(name api.ModelName) Model {
	return Model{Name: name, Load: 10 * time.Second, Wake: [3]time.Duration{0, time.Second, 5 * time.Second}, Sleep: 2 * time.Second, Stop: time.Second,
		GPUs: 1, Device: 72 * api.GiB, Host: 20 * api.GiB,
		Residue: [3]api.Bytes{0, api.GiB, api.GiB}, HostResidue: [3]api.Bytes{0, 20 * api.GiB, 4 * api.GiB},
		Concurrency: 2, Prefill: 1e12, Step: 100 * time.Millisecond}
}

// tinyConfig is a world of tiny models without overheads that hide them.
func tinyConfig(devices int, names ...api.ModelName) Config {
	c := Config{Devices: devices, Pod: time.Nanosecond, Hop: time.Nanosecond, MaxScale: 1}
	for _, n := range names {
		c.Models = append(c.Models, tiny(n))
	}
	return c
}

// ask is a request for ten tokens: one second of work alone.
func ask(at time.Duration, model api.ModelName) Arrival {
	return Arrival{At: at, Model: model, Prompt: 1, Output: 10}
}

// play runs a policy and returns the world as it was left.
func play(t *testing.T, c Config, trace Trace, horizon time.Duration, p Policy) (*world, Result) {
	t.Helper()
	c = c.WithDefaults(trace)
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	p = p.withDefaults()
	w := newWorld(c)
	w.controller = controllers[p.Name](w, p)
	if err := w.run(context.Background(), trace, horizon); err != nil {
		t.Fatalf("%s: %v", p.Name, err)
	}
	return w, w.result(p)
}

// near fails unless got is want but for tolerance.
func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance {
		t.Errorf("%s is %g, want %g within %g", what, got, want, tolerance)
	}
}

// TestEveryRequestEndsOnce runs crowded worlds under every policy: each request is
// served or refused, once, and no memory is promised twice (the world fails if it is).
func TestEveryRequestEndsOnce(t *testing.T) {
	for _, load := range Loads {
		for seed := range uint64(2) {
			trace, err := Generate(Shape{Functions: 9, Length: time.Hour, Load: load, Rate: 1200, Seed: seed})
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range All {
				for _, c := range []Config{
					{Devices: 2, Seed: seed},
					{Devices: 4, Nodes: 2, HostMemory: 160 * api.GiB, Hold: 30 * time.Second, Seed: seed},
					{Devices: 3, DeviceMemory: 192 * api.GiB, Seed: seed},
				} {
					w, r := play(t, c, trace, time.Hour, Policy{Name: name})
					if r.Served+r.Refused != len(trace) || len(w.first) != len(trace) || w.open != 0 {
						t.Errorf("%s, %s, seed %d: %d served, %d refused, %d with a first token, %d open; want %d in all",
							name, load, seed, r.Served, r.Refused, len(w.first), w.open, len(trace))
					}
					if r.HeldShare < 0 || r.HeldShare > 1+1e-9 || r.HotShare > 1 || r.P50 > r.P95 || r.P95 > r.P99 {
						t.Errorf("%s, %s, seed %d: no sense in %+v", name, load, seed, r)
					}
				}
			}
		}
	}
}

func TestSameSeedSameResult(t *testing.T) {
	shape := Shape{Functions: 8, Length: 3 * time.Hour, Seed: 7}
	run := func(name string, seed uint64) Result {
		trace, err := Generate(shape)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Run(context.Background(), Config{Devices: 3, Seed: seed, Record: true}, trace, 3*time.Hour, Policy{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, name := range All {
		if a, b := run(name, 1), run(name, 1); !reflect.DeepEqual(a, b) {
			t.Errorf("%s: two runs of one seed differ:\n%+v\n%+v", name, a, b)
		}
	}
	if a, b := run("random", 1), run("random", 2); a.GPUHours == b.GPUHours {
		t.Errorf("random places alike with two seeds: %v GPU-hours", a.GPUHours)
	}
}

// TestQueues compares the world with what queueing theory says of it: one instance that
// is always awake, Poisson arrivals, exponentially distributed lengths.
func TestQueues(t *testing.T) {
	const rate, tokens = 0.7, 1000.0 // requests a second; tokens of a request on average, 1 s of work
	for _, q := range []struct {
		name        string
		concurrency int
		slope       float64
		wait        float64 // mean time from arrival to first token, less the time of one token
		stay        float64 // mean number in the system
	}{
		{"M/M/1", 1, 0, rate / (1 - rate), rate / (1 - rate)},
		{"M/M/1-PS", 1000, 1, 0, rate / (1 - rate)},
		{"M/M/2", 2, 0, erlangC(2, rate) / (2 - rate), rate + erlangC(2, rate)*rate/(2-rate)},
	} {
		t.Run(q.name, func(t *testing.T) {
			m := tiny("q")
			m.Load, m.Concurrency, m.Slope, m.Step = 0, q.concurrency, q.slope, time.Millisecond
			c := Config{Models: []Model{m}, Devices: 1, MaxScale: 1, Hold: 1000 * time.Hour, Pod: 1, Hop: 1}
			trace := exponential(400_000, rate, tokens)
			w, _ := play(t, c, trace, trace.Length(), Policy{Name: "keepalive", Keep: Forever})
			var wait, stay float64
			for _, d := range w.first {
				wait += d.Seconds()
			}
			stay = w.functions[0].area / w.now.Seconds()
			if q.name != "M/M/1-PS" {
				near(t, "the mean wait in seconds", wait/float64(len(w.first))-m.Step.Seconds(), q.wait, 0.04*q.wait)
			}
			near(t, "the mean number of requests", stay, q.stay, 0.04*q.stay)
		})
	}
}

// erlangC is the probability of waiting with c servers and a offered.
func erlangC(c int, a float64) float64 {
	sum, term := 0.0, 1.0
	for k := range c {
		sum += term
		term *= a / float64(k+1)
	}
	last := term * float64(c) / (float64(c) - a)
	return last / (sum + last)
}

// TestPace follows two requests through one instance: the second joins at half of
// the first, and both go on at the pace of two.
func TestPace(t *testing.T) {
	c := tinyConfig(1, "a")
	c.Models[0].Slope = 0.5 // two at once: 150 ms a token
	c.Models[0].Load = 0
	w, r := play(t, c, Trace{ask(0, "a"), ask(500*time.Millisecond, "a")}, time.Second, Policy{Name: "keepalive"})
	// The first has 5 tokens at 100 ms, then 5 at 150 ms: it ends at 1.25 s. The second
	// has 5 by then and 5 more at 100 ms: it ends at 1.75 s.
	near(t, "the last use", w.functions[0].units[0].lastUse.Seconds(), 1.75, 1e-6)
	near(t, "the second's first token", r.P95, 150, 0.01)
}

// audited checks the world after each change.
type audited struct {
	controller
	t      *testing.T
	w      *world
	levels map[api.Level]bool // that sleepers were at
}

func (a *audited) arrived(f *function) { a.controller.arrived(f); a.audit() }
func (a *audited) changed(f *function) { a.controller.changed(f); a.audit() }

func (a *audited) audit() {
	devices, hosts := make([]api.Bytes, len(a.w.devices)), make([]api.Bytes, len(a.w.hosts))
	for _, f := range a.w.functions {
		for _, u := range f.units {
			for _, d := range u.devices {
				devices[d] += u.dev
			}
			hosts[a.w.devices[u.devices[0]].node] += u.host
			if u.state == awake && (u.dev != f.m.Device || u.host > f.m.Host) || u.state == asleep && u.level == api.Suspended && u.dev > 0 {
				a.t.Errorf("at %s %s is in state %d with %s of the host and %s of a GPU", a.w.now, f.m.Name, u.state, u.host, u.dev)
			}
			if u.state == asleep {
				a.levels[u.level] = true
			}
		}
	}
	for d, used := range devices {
		if used != a.w.devices[d].used || used > a.w.cfg.DeviceMemory {
			a.t.Errorf("at %s instances have %s of GPU %d, the account says %s of %s", a.w.now, used, d, a.w.devices[d].used, a.w.cfg.DeviceMemory)
		}
	}
	for n, used := range hosts { // some policies keep weights there without an instance
		if used > a.w.hosts[n] || a.w.hosts[n] > a.w.cfg.HostMemory {
			a.t.Errorf("at %s instances have %s of host %d, the account says %s of %s", a.w.now, used, n, a.w.hosts[n], a.w.cfg.HostMemory)
		}
	}
}

// TestMemoryBounds: at no event has a GPU or a host more in use than it has, where sleepers are suspended, and some without their weights.
func TestMemoryBounds(t *testing.T) {
	trace, err := Generate(Shape{Functions: 16, Length: time.Hour, Rate: 600, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"rouse", "tokens", "prewarm"} {
		c := Config{Devices: 2, HostMemory: 300 * api.GiB}.WithDefaults(trace)
		w := newWorld(c)
		p := Policy{Name: name}.withDefaults()
		a := &audited{controller: controllers[name](w, p), t: t, w: w, levels: map[api.Level]bool{}}
		w.controller = a
		if err := w.run(t.Context(), trace, time.Hour); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name == "rouse" && !(a.levels[api.Level1] && a.levels[api.Level2] && a.levels[api.Suspended]) {
			t.Errorf("sleepers were at levels %v, want all", a.levels)
		}
	}
}
