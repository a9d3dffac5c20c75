package functions

import (
	"context"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/metrics"
)

// loadEvery is the time between two looks at the load while requests run, and so
// the least time between two reports of it.
const loadEvery = time.Second

// loadWatch reports the load of a runtime that has requests. While it has none,
// it waits for the gate's word and asks nobody anything.
//
//  1. A request enters an empty runtime: the watch begins.
//  2. Each second it looks: where requests run, or several came and went, the runtime
//     is asked for its metrics, and what changed by much is reported.
//  3. None runs and at most one came and went: one last report says that it is idle, and
//     what its prefix cache has where it publishes that, if this is news, and the watch ends.
type loadWatch struct {
	gate interface {
		Busy() <-chan struct{}
		Running() (running int, entered uint64)
	}
	meter *metrics.Meter
	// report tells a load. It does not block.
	report func(api.Load)
}

// run watches until ctx ends.
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
		before = max(before, 1) - 1 // the one that began it counts
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

// lookEvery is the time between two looks at the adapters of a server that somebody else starts, who may tell it of others.
const lookEvery = 10 * time.Second

// watchBrought looks until ctx ends, where somebody else starts the server.
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

// watchLoad reports the load until ctx ends, where anybody wants reports.
func (f *function) watchLoad(ctx context.Context) {
	if f.emit == nil {
		return
	}
	w := loadWatch{gate: f.supervisor.Gate(), meter: f.metrics.Meter(), report: f.supervisor.SetLoad}
	w.run(ctx)
}
