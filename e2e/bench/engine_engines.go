package main

import (
	"context"
	"fmt"

	"github.com/rouse-dev/rouse/e2e/bench/report"
	"github.com/rouse-dev/rouse/engine/bench"
)

// engines measures the engine around the forward pass: what running ahead of the device gains. The two modes take turns.
func engines(ctx context.Context, o engineOptions, add func(...report.Measurement)) error {
	if o.selects("async device") {
		if err := device(ctx, o, add); err != nil {
			return err
		}
	}
	if o.selects("async 15M") {
		return whole(ctx, o, add)
	}
	return nil
}

// device compares the modes on a simulated device.
func device(ctx context.Context, o engineOptions, add func(...report.Measurement)) error {
	var async, sync, idle []float64
	cfg := bench.Config{Worker: []string{o.rouse, "engine", "worker"}}
	for range o.reps {
		a, err := bench.Simulated(ctx, cfg, false)
		if err != nil {
			return err
		}
		s, err := bench.Simulated(ctx, cfg, true)
		if err != nil {
			return err
		}
		async, sync = append(async, a.PerSecond()), append(sync, s.PerSecond())
		idle = append(idle, 100*max(0, 1-float64(a.Busy)/float64(a.Elapsed)))
	}
	m := report.Compare(report.Measurement{
		Name: "async device", What: fmt.Sprintf("the engine with its worker process on a simulated device of %v a step, and %v of host work a step; %d requests",
			bench.Device.Step, bench.Device.Load.HostWork, bench.Device.Load.N),
		Unit: "tokens/s", Against: "the same, host work after the step",
	}, async, sync)
	add(m.Gated(m.Ratio >= 1.12, "at least 1.12x of synchronous"))
	add(report.Measurement{Name: "async device, idle", What: "share of the time in which the device has nothing to do", Unit: "%", N: len(idle), Rouse: report.Summarise(idle)})
	return nil
}

// whole compares the modes on a small model, where engine and worker want the same processors.
func whole(ctx context.Context, o engineOptions, add func(...report.Measurement)) error {
	path, err := subjects()[0].model(o)
	if err != nil {
		return err
	}
	var async, sync []float64
	cfg := bench.Config{Path: path, Gen: 96, Worker: []string{o.rouse, "engine", "worker"}}
	for range report.Sized(o.small, 9, 1) {
		a, err := bench.Whole(ctx, cfg, false)
		if err != nil {
			return err
		}
		s, err := bench.Whole(ctx, cfg, true)
		if err != nil {
			return err
		}
		async, sync = append(async, a.PerSecond()), append(sync, s.PerSecond())
	}
	m := report.Compare(report.Measurement{
		Name: "async 15M", What: "the engine with its worker process on the 15M model, 32 requests at once", Unit: "tokens/s", Against: "the same, synchronous",
	}, async, sync)
	add(m.Gated(m.Ratio >= 1, "at least 1.0x of synchronous"))
	return nil
}
