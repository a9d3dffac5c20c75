package supervise

import (
	"context"

	"github.com/rouse-dev/rouse/api"
)

// validation is the time between a runtime's wake and the proof that it answers as it did before.
// A request that came behind the wake is given to the runtime beside the canary, so that it
// need not wait for the canary's way there and back; its answer goes nowhere before the validation ends.
type validation struct {
	base string // URL of the runtime
	// done is closed at its end, after refused is set.
	done    chan struct{}
	refused *api.Error
	cuts    []context.CancelCauseFunc // of those who are in; guarded by the gate's lock
}

// validated waits for the outcome: nil, or why the answer is to be thrown away. Where inside ends
// before, there is none. An outcome against the runtime ends inside too, and counts.
func (t *validation) validated(inside context.Context) *api.Error {
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

// try lets those in who came behind a wake, speculatively, to the runtime at e.
func (g *Gate) try(e api.Endpoint) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.base != "" || g.validation != nil {
		return
	}
	g.validation = &validation{base: e.URL(""), done: make(chan struct{})}
	g.last = g.validation.base
	g.turn()
}

// endValidation gives the outcome, where a validation is under way: nil for a runtime that is what it was. g.mu is held.
func (g *Gate) endValidation(refused *api.Error) {
	t := g.validation
	if t == nil {
		return
	}
	g.validation = nil
	t.refused = refused
	close(t.done)
	if refused != nil {
		for _, cut := range t.cuts {
			cut(refused)
		}
	}
}

// pass ends a validation in favour of the runtime. The gate is opened a moment later, by its owner.
func (g *Gate) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.endValidation(nil)
}

// clear ends a validation against the runtime, where there is one, and returns when nobody is in any more.
func (g *Gate) clear(ctx context.Context, why *api.Error) error {
	g.mu.Lock()
	idle := g.idle
	tried := g.validation != nil
	g.endValidation(why)
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
