package functions

import (
	"context"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/metrics"
)

// loadEvery is the time between two samples of the load while requests run, and so the least time between two reports.
const loadEvery = time.Second

// loadWatch reports the load of a runtime that has requests. While it has none, the watch waits for the gate and asks nobody.
//
//  1. A request enters an empty runtime: the watch begins.
//  2. Each second, if requests run or several came and went, it asks the runtime for
//     its metrics and reports large changes.
//  3. When none runs and at most one came and went, the watch reports once more that
//     the runtime is idle, with new contents of its prefix cache, and ends.
type loadWatch struct {
	gate interface {
		Busy() <-chan struct{}
		Running() (running int, entered uint64)
	}
	meter *metrics.Meter
	// report reports a load. It does not block.
	report func(api.Load)
}

func (w *loadWatch) run(ctx context.Context) {
	var told api.Load
	tick := time.NewTicker(loadEvery)
	defer tick.Stop()
	for {
		tick.Stop()
		select {
		case <-w.gate.Busy(): // 1.
		case <-ctx.Done():
			return
		}
		w.meter.Begin()
		_, before := w.gate.Running()
		before = max(before, 1) - 1 // the request that began the watch counts
		tick.Reset(loadEvery)
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			running, entered := w.gate.Running()
			if running == 0 && entered-before < 2 { // 3.
				break
			}
			before = entered
			if load := w.meter.Poll(); metrics.Differs(load, told) { // 2.
				told = load
				w.report(load)
			}
		}
		idle, rest := api.Load{Cached: told.Cached, CacheKnown: told.CacheKnown}, w.meter.Rest()
		if told != idle || metrics.Differs(rest, told) {
			told = rest
			w.report(told)
		}
	}
}

// lookEvery is the time between two checks of the adapters of a server that we did not start: its owner may load others.
const lookEvery = 10 * time.Second

// watchBrought checks the adapters until ctx ends, if the server is not ours.
func (f *function) watchBrought(ctx context.Context) {
	if f.cfg.Function.Runtime.Endpoint == "" || !f.runtime.Traits().Brings {
		return
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if f.supervisor.Gate().Refusal() == nil {
			f.adapters.Poll(ctx)
		}
	}
}

// watchLoad reports the load until ctx ends, if anybody wants reports.
func (f *function) watchLoad(ctx context.Context) {
	if f.emit == nil {
		return
	}
	w := loadWatch{gate: f.supervisor.Gate(), meter: f.metrics.Meter(), report: f.supervisor.Reports().SetLoad}
	w.run(ctx)
}
