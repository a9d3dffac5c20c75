package supervise

import (
	"context"

	"github.com/rouse-dev/rouse/api"
)

// validation is the time between a runtime's wake and the proof that it answers as before. A request that came with the wake runs beside
// the canary, to save the canary's round trip. Its answer is held back until the validation ends.
type validation struct {
	base string // URL of the runtime
	// done is closed at its end, after refused is set.
	done    chan struct{}
	refused *api.Error
	cuts    []context.CancelCauseFunc // of the admitted requests; guarded by the gate's lock
}

// validated blocks until the outcome is known: nil, or why the answer must be thrown away. It also returns when inside ends. A negative
// outcome ends inside too, and takes precedence.
func (t *validation) validated(inside context.Context) *api.Error {
	select {
	case <-t.done:
		if t.refused != nil {
			<-inside.Done() // endValidation cuts it a moment later
		}
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

// try admits requests that came with a wake, speculatively, to the runtime at e.
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

// endValidation ends a validation under way; a nil refused validates the runtime. g.mu is held.
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

// pass ends a validation in the runtime's favour. The owner opens the gate a moment later.
func (g *Gate) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.endValidation(nil)
}

// clear ends a validation under way against the runtime, and blocks until all its requests have left.
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
