// The benchmark plan measures the cost of decisions as a cluster grows, and says whether the gates hold:
//
//	go run ./e2e/bench plan -o docs/bench/plan.json
//
// Clusters of 100, 1,000 and 10,000 functions, on 12, 125 and 1,000 nodes with 8 GPUs each, are at rest. Of ten
// functions four have running requests, five sleep, and one has no instance (see [decidetest.New]). At each size plans
// are measured:
//
//  1. at rest
//  2. with requests for a function that sleeps, which the plan wakes, and for one that is
//     gone, which the plan starts
//  3. while 100 functions (10 in the smallest cluster) wait for GPUs that others hold
//
// The note of each says how it has grown from the smallest cluster. The gates are for
// medians; the 95th percentiles stand beside them.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/decide/decidetest"
	"github.com/rouse-dev/rouse/e2e/bench/report"
)

// size of a cluster, and how many milliseconds a plan may take there; 0: any number.
type planSize struct {
	functions, nodes int
	most             float64
}

// sizes of clusters, and those with -small.
var (
	sizes      = []planSize{{100, 12, 0}, {1000, 125, 5}, {10000, 1000, 50}}
	smallSizes = []planSize{{100, 12, 0}, {200, 25, 0}, {400, 50, 0}}
)

func runPlan(_ context.Context, r *report.Run) error {
	sizes, rounds := report.Sized(r.Small, sizes, smallSizes), report.Sized(r.Small, 100, 5)
	var least []report.Measurement
	for k, s := range sizes {
		ms, err := measurePlan(s, rounds)
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

// measure measures one size.
func measurePlan(s planSize, rounds int) ([]report.Measurement, error) {
	c := decidetest.New(s.functions, s.nodes)
	var ms []report.Measurement
	add := func(name, what string, want decide.Kind, number int) error {
		took, err := plans(c, rounds, want, number)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		m := report.Measurement{Name: fmt.Sprintf("%s, %d functions, %d nodes", name, s.functions, s.nodes), What: what, Unit: "ms", N: len(took), Rouse: report.Summarise(took)}
		if s.most > 0 {
			m = m.Gated(m.Rouse.P50 <= s.most, "p50 ≤ %g ms", s.most)
		}
		ms = append(ms, m)
		return nil
	}
	if err := add("at rest", "a plan of all functions", "", 0); err != nil {
		return nil, err
	}
	for _, e := range []struct {
		name, what string
		k          int
		want       decide.Kind
	}{
		{"wake", "the same with requests for a function that sleeps, which it wakes", 1, decide.Wake},
		{"start", "the same with requests for a function that is gone, which it starts", 9, decide.Start},
	} {
		c.Event(e.k)
		if err := add(e.name, e.what, e.want, 1); err != nil {
			return nil, err
		}
		c.Undo(e.k)
	}
	n := min(s.functions/10, 100)
	c.Crowd(n)
	c.Now = c.Now.Add(time.Second)
	err := add(fmt.Sprintf("%d wait", n), "the same while so many functions wait for whole GPUs that others hold", decide.Wait, n)
	return ms, err
}

// plans times n plans in milliseconds, each of which must have the wanted number of actions of a kind.
func plans(c *decidetest.Cluster, n int, want decide.Kind, number int) ([]float64, error) {
	took := make([]float64, n)
	for k := range took {
		began := time.Now()
		actions, _ := c.Plan()
		took[k] = report.Millis(time.Since(began))
		found := 0
		for _, a := range actions {
			if a.Kind == want {
				found++
			}
		}
		if found < number {
			return nil, fmt.Errorf("want %d actions of kind %s, have %d: %v", number, want, found, actions)
		}
	}
	return took, nil
}
