package simulate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// harsh are worlds in which victims are slow to sleep, models share GPUs, and nodes come and go.
func harsh(seed uint64) map[string]Config {
	churn := Churn(3, time.Hour, 6*time.Minute, 4*time.Minute, seed)
	return map[string]Config{
		"slow":   {Devices: 3, SlowSleep: true, Pinned: true, Seed: seed},
		"shared": {Devices: 2, Shared: true, Seed: seed},
		"churn":  {Devices: 6, Nodes: 3, Changes: churn, Seed: seed},
		"all":    {Devices: 3, Nodes: 3, Shared: true, SlowSleep: true, Pinned: true, Changes: churn, Hold: time.Minute, HostMemory: 200 * api.GiB, Seed: seed},
	}
}

// TestHarshWorlds checks that each request is served, refused or broken off, once. No memory is promised twice and
// nothing starts on a node that has left: the world fails if so. A GPU is not held for longer than it exists.
func TestHarshWorlds(t *testing.T) {
	for seed := range uint64(2) {
		trace, err := Generate(Shape{Functions: 9, Length: time.Hour, Rate: 1500, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range harsh(seed) {
			for _, policy := range All {
				w, r := play(t, c, trace, time.Hour, Policy{Name: policy})
				if r.Served+r.Refused+r.Broken != len(trace) || len(w.first) != len(trace) || w.open != 0 {
					t.Errorf("%s, %s, seed %d: %d served, %d refused, %d broken, %d with a first token, %d open; want %d in all",
						policy, name, seed, r.Served, r.Refused, r.Broken, len(w.first), w.open, len(trace))
				}
				if r.HeldShare < 0 || r.HeldShare > 1+1e-9 || r.Broken > 0 && len(c.Changes) == 0 {
					t.Errorf("%s, %s, seed %d: no sense in %+v", policy, name, seed, r)
				}
				for d := range w.devices {
					if n := w.nodes[w.devices[d].node]; n.gone && (w.devices[d].used != 0 || w.devices[d].holders != 0) {
						t.Errorf("%s, %s, seed %d: of GPU %d, which has left, %s are in use by %d", policy, name, seed, d, w.devices[d].used, w.devices[d].holders)
					}
				}
			}
		}
	}
}

// TestHarshWorldsAskProduction is TestRouseAsksProduction where devices change between plans.
func TestHarshWorldsAskProduction(t *testing.T) {
	for seed := range uint64(2) {
		trace, err := Generate(Shape{Functions: 8, Length: 30 * time.Minute, Rate: 900, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range harsh(seed) {
			c = c.WithDefaults(trace)
			short, _ := asked(t, c, trace, 30*time.Minute, false)
			if long, _ := asked(t, c, trace, 30*time.Minute, true); short.GPUHours != long.GPUHours || short.P95 != long.P95 || short.Wakes != long.Wakes || short.Swaps != long.Swaps {
				t.Errorf("%s, seed %d: short cuts give\n%+v, and plans of the whole state\n%+v", name, seed, short, long)
			}
		}
	}
}

// TestNodeLeavesByHand computes one case by hand. a is loaded at 10 on node 0 and answers from 10 to 11. At 10.5 the
// node leaves: the request of 0 breaks off, and the one that waits in the instance for its prompt is queued again. Node
// 1 takes 10 s to load a, and the new node 0 its 5 s of files besides.
func TestNodeLeavesByHand(t *testing.T) {
	c := tinyConfig(2, "a")
	c.Nodes, c.Seed = 2, 1                                    // by which chance begins with node 0
	c.Models[0].Fetch, c.Models[0].Prefill = 5*time.Second, 1 // a prompt of one token takes a second
	for _, name := range All[:len(All)-1] {                   // the planner comes ten seconds later
		c.Changes = []Change{{At: 11500 * time.Millisecond, Node: 0, Leaves: true}, {At: 12 * time.Second, Node: 0}}
		w, r := play(t, c, Trace{ask(0, "a"), ask(0, "a")}, 40*time.Second, Policy{Name: name})
		if r.Broken != 1 || r.Served != 1 || r.Starts != 2 {
			t.Fatalf("%s: %d broken, %d served, %d starts; want 1, 1, 2", name, r.Broken, r.Served, r.Starts)
		}
		near(t, name+": the first of them", w.first[0].Seconds(), 11.1, 0.01)
		// Gone at 11.5, with a quarter of the second prompt done: node 1 has a at 21.5, and its prompt read at 22.5.
		near(t, name+": the other", w.first[1].Seconds(), 22.6, 0.01)
	}
}

// TestColdFiles: the only node is a new one, so that the first start there fetches, and the second, after an unload, does not.
func TestColdFiles(t *testing.T) {
	c := tinyConfig(2, "a")
	c.Nodes = 2
	c.Models[0].Fetch = 5 * time.Second
	c.Changes = []Change{{At: time.Second, Node: 0, Leaves: true}, {At: 2 * time.Second, Node: 0}, {At: 3 * time.Second, Node: 1, Leaves: true}}
	w, _ := play(t, c, Trace{ask(10*time.Second, "a"), ask(100*time.Second, "a")}, 200*time.Second, Policy{Name: "keepalive", Keep: 10 * time.Second})
	near(t, "the second request's", w.first[0].Seconds(), 10.1, 0.01)
	near(t, "the first request's", w.first[1].Seconds(), 15.1, 0.01)
}

// TestSharedGPU: two models on one GPU share its time while both are at work.
func TestSharedGPU(t *testing.T) {
	c := tinyConfig(1, "a", "b")
	for k := range c.Models {
		c.Models[k].Load, c.Models[k].Device = 0, 30*api.GiB
	}
	w, r := play(t, c, Trace{ask(0, "a"), ask(500*time.Millisecond, "b")}, 10*time.Second, Policy{Name: "keepalive"})
	// a has 5 tokens at 100 ms, and 5 at 200 ms: it ends at 1.5 s. b has 5 by then, the rest at 100 ms: it ends at 2 s.
	near(t, "a's last use", w.functions[0].units[0].lastUse.Seconds(), 1.5, 1e-6)
	near(t, "b's last use", w.functions[1].units[0].lastUse.Seconds(), 2, 1e-6)
	near(t, "GPU-seconds", r.GPUHours*3600, 10, 1e-6)
	near(t, "the slower first token", r.P95, 200, 0.01)
}

func TestImpossibleChanges(t *testing.T) {
	for _, cs := range [][]Change{
		{{At: 0, Node: 0}},
		{{At: 0, Node: 2, Leaves: true}},
		{{At: 2, Node: 0, Leaves: true}, {At: 1, Node: 0}},
		{{At: 0, Node: 0, Leaves: true}, {At: 1, Node: 0, Leaves: true}},
		{{At: 0, Node: 0, Leaves: true}, {At: 1, Node: 1, Leaves: true}},
	} {
		c := tinyConfig(2, "a")
		c.Nodes, c.Changes = 2, cs
		if err := c.WithDefaults(nil).Validate(); err == nil || !strings.Contains(err.Error(), "changes") {
			t.Errorf("%v: %v", cs, err)
		}
	}
	for seed := range uint64(20) {
		if cs := Churn(3, 24*time.Hour, time.Hour, 40*time.Minute, seed); len(cs) < 10 || !possible(cs, 3) {
			t.Errorf("seed %d: %v", seed, fmt.Sprint(cs))
		}
	}
}

// TestDeclared: each function sleeps after its own time, where nothing is said for all.
func TestDeclared(t *testing.T) {
	trace := Trace{ask(0, "a"), ask(0, "b")}
	c := tinyConfig(2, "a", "b")
	c.Models[0].Declared, c.Models[1].Declared = &Declared{SleepAfter: 20 * time.Second}, &Declared{SleepAfter: Forever}
	for _, name := range []string{"rouse", "random"} {
		// Loaded from 0 to 10, answered until 11: a is asleep at 33, b never.
		_, r := play(t, c, trace, 100*time.Second, Policy{Name: name})
		near(t, name+": GPU-seconds", r.GPUHours*3600, 33+100, 0.1)
		if !r.KeepDeclared || Rows([]Result{r})[1][1] != "declared" {
			t.Errorf("%s: it does not say that it kept what is declared: %v", name, Rows([]Result{r}))
		}
		_, r = play(t, c, trace, 100*time.Second, Policy{Name: name, Keep: 30 * time.Second})
		near(t, name+": GPU-seconds with a keep for all", r.GPUHours*3600, 43+43, 0.1)
	}
	// Unloaded after ten seconds of sleep: another start.
	c.Models[0].Declared.UnloadAfter = 10 * time.Second
	_, r := play(t, c, Trace{ask(0, "a"), ask(100*time.Second, "a")}, 120*time.Second, Policy{Name: "rouse"})
	if r.Starts != 2 || r.Wakes != 0 {
		t.Errorf("%d starts and %d wakes, want 2 and 0", r.Starts, r.Wakes)
	}
}

// TestSlowSleeperStays: a, idle since 302, takes 20 s to fall asleep, and b, idle since 306, takes 2 s, as was measured. At 340 c gets b's GPU, and waits
// for 2 s of sleep and 10 s of load.
func TestSlowSleeperStays(t *testing.T) {
	c := tinyConfig(2, "a", "b", "c")
	c.Models[0].Sleep = 20 * time.Second
	c.HostMemory = 100 * api.GiB
	c.Models[0].Declared = &Declared{SleepAfter: 100 * time.Second, NoPrewake: true, Rehearse: api.RehearseNever}
	c.Models[1].Declared = c.Models[0].Declared
	trace := Trace{
		ask(0, "a"), ask(time.Second, "b"), // asleep by 131, and measured
		ask(300*time.Second, "a"), ask(304*time.Second, "b"), // answered by 302 and 306
		ask(340*time.Second, "c"),
	}
	w, _ := play(t, c, trace, 400*time.Second, Policy{Name: "rouse"})
	near(t, "c's first token", w.answers[4].first.Seconds(), 12.1, 0.01)
}
