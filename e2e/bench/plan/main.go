// Command plan measures what decisions cost as a cluster grows, and says whether the
// gates hold:
//
//	go run ./e2e/bench/plan -o docs/bench/plan.json
//
// Clusters of 100, 1,000 and 10,000 functions, on 12, 125 and 1,000 nodes with 8 GPUs
// each, are at rest: of ten functions four have running requests, five sleep, and one
// has no instance (see [decidetest.New]). Then, at each size:
//
//  1. an event changes one function, and a plan follows: another number of running
//     requests; requests for one that sleeps, which the plan wakes; requests for one
//     that is gone, which the plan starts
//  2. the first kind of event while 100 functions (10 in the smallest cluster) wait for GPUs that others hold
//  3. all is planned anew from a snapshot
//  4. the memory that the state kept between plans takes
//
// The note of each says how it has grown from the smallest cluster. The gates are for medians at
// the largest size; the 95th percentiles stand beside them.
package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/decide/decidetest"
	"github.com/rouse-dev/rouse/e2e/bench/report"
)

func main() { report.Main("./e2e/bench/plan", run) }

// size of a cluster.
type size struct{ functions, nodes int }

// sizes of clusters, and those with -small.
var (
	sizes      = []size{{100, 12}, {1000, 125}, {10000, 1000}}
	smallSizes = []size{{100, 12}, {200, 25}, {400, 50}}
)

func run(_ context.Context, r *report.Run) error {
	sizes, rounds := report.Sized(r.Small, sizes, smallSizes), report.Sized(r.Small, 1000, 5)
	var least []report.Measurement
	for k, s := range sizes {
		ms, err := measure(s.functions, s.nodes, rounds, k == len(sizes)-1)
		if err != nil {
			return err
		}
		if k == 0 {
			least = ms
		}
		for j := range ms {
			if k > 0 {
				ms[j].Note = fmt.Sprintf("%.1f times what it is with %d functions", ms[j].Rouse.P50/least[j].Rouse.P50, sizes[0].functions)
			}
		}
		r.Add(ms...)
	}
	return nil
}

// measure measures one size. The gates are for the largest.
func measure(functions, nodes, rounds int, gated bool) ([]report.Measurement, error) {
	c := decidetest.New(functions, nodes)
	size := fmt.Sprintf("%d functions, %d nodes", functions, nodes)
	gate := func(m report.Measurement, what string, value, most float64) report.Measurement {
		if !gated {
			return m
		}
		return m.Gated(value <= most, "%s ≤ %g %s", what, most, m.Unit)
	}
	memory, w := weigh(c)
	whole := series(min(rounds, 20), func() { c.World() })
	ms := []report.Measurement{
		gate(plain("memory of the world, "+size, "what the heap grows by, after garbage collection, with the state that is kept between plans", "MB", memory), "it", memory[0], 500),
		gate(plain("a plan of all, "+size, "all functions put into a new world, and its first plan", "ms", whole), "p50", report.Quantile(whole, 0.5), 100),
	}
	for _, e := range []struct {
		name, what string
		state      decidetest.State
		want       decide.Kind
	}{
		{"demand", "another number of running requests, and a plan", decidetest.Busy, ""},
		{"wake", "requests for a function that sleeps, and the plan that wakes it", decidetest.Asleep, decide.Wake},
		{"start", "requests for a function that is gone, and the plan that starts it", decidetest.Gone, decide.Start},
	} {
		took, err := events(c, w, e.state, e.want, rounds)
		if err != nil {
			return nil, err
		}
		m := plain(e.name+", "+size, e.what, "ms", took)
		ms = append(ms, gate(m, "p50", report.Quantile(took, 0.5), 1))
	}
	m, p50, err := crowded(c, w, min(functions/10, 100), min(rounds, 1000))
	if err != nil {
		return nil, err
	}
	m.Name += ", " + size
	return append(ms, gate(m, "p50", p50, 1)), nil
}

// crowded measures events of functions that work while n others wait.
func crowded(c *decidetest.Cluster, w *decide.World, n, rounds int) (m report.Measurement, p50 float64, err error) {
	waits := 0
	actions := c.Crowd(w, n)
	for _, a := range actions {
		if a.Kind == decide.Wait {
			waits++
		}
	}
	if waits < n {
		return m, 0, fmt.Errorf("a crowd of %d: want all to wait, have %d and %v", n, waits, actions)
	}
	took, err := events(c, w, decidetest.Busy, decide.Wait, rounds)
	if err != nil {
		return m, 0, err
	}
	return plain(fmt.Sprintf("demand while %d wait", n), "the same as demand, while so many functions wait for whole GPUs that others hold: "+
		"each plan says of each what it waits for, and looks again only for those for which it can have changed", "ms", took), report.Quantile(took, 0.5), nil
}

func plain(name, what, unit string, s []float64) report.Measurement {
	return report.Measurement{Name: name, What: what, Unit: unit, N: len(s), Rouse: report.Summarise(s)}
}

// series times do in milliseconds.
func series(n int, do func()) []float64 {
	took := make([]float64, n)
	for k := range took {
		began := time.Now()
		do()
		took[k] = report.Millis(time.Since(began))
	}
	return took
}

// events times events of functions in a state, each with its plan, and puts back what they changed.
func events(c *decidetest.Cluster, w *decide.World, state decidetest.State, want decide.Kind, n int) ([]float64, error) {
	var ks []int
	for k := range c.Functions {
		if decidetest.StateOf(k) == state {
			ks = append(ks, k)
		}
	}
	took := make([]float64, n)
	for j := range took {
		k := ks[j*37%len(ks)]
		began := time.Now()
		actions := c.Event(w, k)
		took[j] = report.Millis(time.Since(began))
		if want != "" && !slices.ContainsFunc(actions, func(a decide.Action) bool {
			return a.Kind == want && (want == decide.Wait || a.Function == c.Functions[k].Spec.Name) // others wait
		}) {
			return nil, fmt.Errorf("an event of %s: want a %s, have %v", c.Functions[k].Spec.Name, want, actions)
		}
		c.Undo(w, k)
	}
	return took, nil
}

// weigh makes the world of c, and says how much memory it takes, in MB.
func weigh(c *decidetest.Cluster) ([]float64, *decide.World) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	w := c.World()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return []float64{float64(after.HeapAlloc-before.HeapAlloc) / 1e6}, w
}
