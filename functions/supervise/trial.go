package supervise

import (
	"context"

	"github.com/rouse-dev/rouse/api"
)

// trial is the time between a runtime's wake and the proof that it answers as it did before.
// A request that came behind the wake is given to the runtime beside the canary, so that it
// need not wait for the canary's way there and back; its answer goes nowhere before the verdict.
type trial struct {
	base string // URL of the runtime
	// done is closed with the verdict, after refused is set.
	done    chan struct{}
	refused *api.Error
	cuts    []context.CancelCauseFunc // of those who are in; guarded by the gate's lock
}

// verdict waits for the verdict: nil, or why the answer is to be thrown away. Where inside ends
// before, there is none. A verdict against the runtime ends inside too, and counts.
func (t *trial) verdict(inside context.Context) *api.Error {
	select {
	case <-t.done:
		return t.refused
	case <-inside.Done():
	}
	select {
	case <-t.done:
		return t.refused
	default:
		return nil
	}
}

// try lets those in who came behind a wake, on trial, to the runtime at e.
func (g *Gate) try(e api.Endpoint) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.base != "" || g.trial != nil {
		return
	}
	g.trial = &trial{base: e.URL(""), done: make(chan struct{})}
	g.last = g.trial.base
	g.turn()
}

// endTrial gives the verdict, where there is a trial: nil for a runtime that is what it was. g.mu is held.
func (g *Gate) endTrial(refused *api.Error) {
	t := g.trial
	if t == nil {
		return
	}
	g.trial = nil
	t.refused = refused
	close(t.done)
	if refused != nil {
		for _, cut := range t.cuts {
			cut(refused)
		}
	}
}

// pass ends a trial in favour of the runtime. The gate is opened a moment later, by its owner.
func (g *Gate) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.endTrial(nil)
}

// clear ends a trial against the runtime, where there is one, and returns when nobody is in any more.
func (g *Gate) clear(ctx context.Context, why *api.Error) error {
	g.mu.Lock()
	idle := g.idle
	tried := g.trial != nil
	g.endTrial(why)
	g.mu.Unlock()
	if !tried {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
