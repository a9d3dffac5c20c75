// The benchmark simulate replays generated traces against all policies:
//
//	go run ./e2e/bench simulate -o docs/bench/simulate.json
//
// It measures:
//
//  1. GPU-hours at equal p95 time to first token, on the default trace, each policy set to hold the target with the
//     fewest.
//  2. Harsh days (simulate_harsh.go), each policy with its defaults.
//  3. Ordinary days beside the newest peers (simulate_peers.go).
//
// Time is virtual: the figures are the same on every machine.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rouse-dev/rouse/autoscaler/simulate"
	"github.com/rouse-dev/rouse/e2e/bench/report"
)

type simulations struct {
	seeds int
	day   time.Duration
	small bool
}

func runSimulate(ctx context.Context, r *report.Run) error {
	b := simulations{seeds: report.Sized(r.Small, 3, 1), day: report.Sized(r.Small, 24*time.Hour, time.Hour), small: r.Small}
	return r.Parts(ctx, report.Part{Name: "hours", Measure: b.hours},
		report.Part{Name: "harsh", Measure: func(ctx context.Context) ([]report.Measurement, error) { return b.days(ctx, harsh) }},
		report.Part{Name: "peers", Measure: func(ctx context.Context) ([]report.Measurement, error) { return b.days(ctx, ordinary) }})
}

func (b *simulations) each(do func(k int, seed uint64) error) error {
	var all errgroup.Group
	all.SetLimit(runtime.GOMAXPROCS(0))
	for k := range b.seeds {
		all.Go(func() error { return do(k, uint64(k+1)) })
	}
	return all.Wait()
}

// length returns a load's. With -small it is an hour, of an office half a day, which is empty at night.
func (b *simulations) length(load simulate.Load) time.Duration {
	if load == simulate.Office {
		return max(b.day, 12*time.Hour)
	}
	return b.day
}

var targets = []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second}

// hours is 1.
func (b *simulations) hours(ctx context.Context) ([]report.Measurement, error) {
	const gpus = 16 // no function waits for one
	var ms []report.Measurement
	for _, target := range targets {
		fmt.Fprintln(os.Stderr, "searching for", target)
		found := make([][]simulate.Result, b.seeds)
		err := b.each(func(k int, seed uint64) error {
			t, err := simulate.Generate(simulate.Shape{Length: b.day, Load: simulate.Mix, Seed: seed})
			if err != nil {
				return err
			}
			found[k] = make([]simulate.Result, len(simulate.Names))
			for j, name := range simulate.Names {
				if found[k][j], err = simulate.Search(ctx, simulate.Config{Devices: gpus, Seed: seed}, t, b.day, simulate.Policy{Name: name}, target); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		series := func(j int) []float64 {
			var s []float64
			for _, f := range found {
				s = append(s, f[j].GPUHours)
			}
			return s
		}
		met := true
		worst := 0.0
		for _, f := range found {
			worst = max(worst, f[0].GPUHours/f[1].GPUHours)
			for _, r := range f {
				met = met && r.TargetMet
			}
		}
		m := report.Compare(report.Measurement{
			Name: fmt.Sprintf("GPU-hours at p95 of %s", target), Unit: "h",
			What:    fmt.Sprintf("GPU-hours of a day of 12 functions on %d GPUs, how long what is idle stays set so that the p95 time to first token is at most %s with the fewest; one value for each of %d traces", gpus, target, b.seeds),
			Against: "stock Knative's rule on the same traces, its stable window and retention set likewise",
		}, series(0), series(1)).Gated(met && worst <= 0.6, "on each trace at least 40 %% fewer, and all hold the target")
		m.Note = fmt.Sprintf("at worst %.1f %% fewer; keepalive %.1f h, random %.1f h; of the first trace: %s",
			100*(1-worst), report.Quantile(series(2), 0.5), report.Quantile(series(3), 0.5), said(found[0]))
		ms = append(ms, m)
	}
	return ms, nil
}

func said(rs []simulate.Result) (s string) {
	for k, r := range rs {
		if k > 0 {
			s += "; "
		}
		s += fmt.Sprintf("%s keeps %gs", r.Name, r.KeepSeconds)
		if r.KeepSlowSeconds != 0 {
			s += fmt.Sprintf(", what wakes slowly %gs", r.KeepSlowSeconds)
		}
		s += fmt.Sprintf(", p95 %.0f ms", r.P95)
	}
	return s
}
