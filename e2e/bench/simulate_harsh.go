package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/autoscaler/simulate"
	"github.com/rouse-dev/rouse/e2e/bench/report"
)

type day struct {
	name, what string
	cfg        simulate.Config
	shape      simulate.Shape
	churn      time.Duration
	public     string // the trace is written and read in this shape
}

var harsh = []day{
	{name: "slow sleepers", what: "4 GPUs, every second model takes 10 s and 0.5 s a GiB for each sleep", cfg: simulate.Config{Devices: 4, SlowSleep: true}},
	{name: "slow and slow first sleeps", what: "4 GPUs, every second model as slow, the others pinning host memory at the first sleep of a process", cfg: simulate.Config{Devices: 4, SlowSleep: true, Pinned: true}},
	{name: "shared GPUs", what: "2 GPUs that models share by memory", cfg: simulate.Config{Devices: 2, Shared: true}},
	{name: "nodes come and go", what: "6 GPUs of 3 nodes, of which one leaves about every two hours", cfg: simulate.Config{Devices: 6, Nodes: 3}, churn: 2 * time.Hour},
	{name: "all of it", what: "4 GPUs of 2 nodes, of which one leaves about every two hours; GPUs are shared, sleeps are slow", cfg: simulate.Config{Devices: 4, Nodes: 2, Shared: true, SlowSleep: true, Pinned: true}, churn: 2 * time.Hour},
}

func (b *simulations) days(ctx context.Context, days []day) ([]report.Measurement, error) {
	var ms []report.Measurement
	for _, d := range days {
		d.shape.Length = report.Sized(b.small, max(d.shape.Length, b.day), b.length(d.shape.Load))
		rs := make([][]simulate.Result, b.seeds)
		err := b.each(func(k int, seed uint64) error {
			d := d
			d.shape.Seed, d.cfg.Seed = seed, seed
			t, err := d.trace()
			if err != nil {
				return err
			}
			d.cfg.Changes = simulate.Churn(d.cfg.Nodes, d.shape.Length, d.churn, 10*time.Minute, seed)
			rs[k] = make([]simulate.Result, len(simulate.All))
			for j, name := range simulate.All {
				if rs[k][j], err = simulate.Run(ctx, d.cfg, t, d.shape.Length, simulate.Policy{Name: name}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		ms = append(ms, d.measurements(rs)...)
	}
	return ms, nil
}

func (d *day) measurements(rs [][]simulate.Result) []report.Measurement {
	series := func(j int, of func(simulate.Result) float64) (s []float64) {
		for _, r := range rs {
			s = append(s, of(r[j]))
		}
		return s
	}
	median := func(j int, of func(simulate.Result) float64) float64 { return report.Quantile(series(j, of), 0.5) }
	p95 := func(r simulate.Result) float64 { return r.P95 }
	hours := func(r simulate.Result) float64 { return r.GPUHours }
	var notes []string
	for j, name := range simulate.All {
		notes = append(notes, fmt.Sprintf("%s %.1f h, p50 %.0f ms, p95 %.0f ms, p99 %.0f ms, whole answers p95 %.1f s, hot %.1f %%, %.0f refused, %.0f broken", name, median(j, hours),
			median(j, func(r simulate.Result) float64 { return r.P50 }), median(j, p95), median(j, func(r simulate.Result) float64 { return r.P99 }), median(j, func(r simulate.Result) float64 { return r.WholeP95 / 1000 }),
			100*median(j, func(r simulate.Result) float64 { return r.HotShare }), median(j, func(r simulate.Result) float64 { return float64(r.Refused) }),
			median(j, func(r simulate.Result) float64 { return float64(r.Broken) })))
	}
	worst := 0.0
	for _, r := range rs {
		worst = max(worst, p95(r[0])/p95(r[1]))
	}
	against := "stock Knative's rule on the same traces"
	return []report.Measurement{report.Compare(report.Measurement{
		Name: "p95, " + d.name, Unit: "ms", What: fmt.Sprintf("p95 time to first token, each policy with its defaults: %s; one value for each of %d traces", d.what, len(rs)), Against: against,
		Note: "medians: " + strings.Join(notes, "; "),
	}, series(0, p95), series(1, p95)).Gated(worst <= 1, "on each trace at most the p95 of stock Knative"), report.Compare(report.Measurement{
		Name: "GPU-hours, " + d.name, Unit: "h", What: "GPU-hours of the same runs", Against: against,
	}, series(0, hours), series(1, hours))}
}
