package supervise

import (
	"context"
	"slices"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// callers are the calls of the control plane that wait for their goal. The exported methods are safe for many goroutines; only the owner
// uses the others.
type callers struct {
	calls   chan *call    // from callers to the owner; unbuffered; never closed
	leaves  chan *call    // from callers that stop waiting; unbuffered; never closed
	done    chan struct{} // closed by the owner at its end
	reports *Reports
	waiting []*call // only the owner uses them
}

func newCallers(reports *Reports) callers {
	return callers{calls: make(chan *call), leaves: make(chan *call), done: make(chan struct{}), reports: reports}
}

// Wake wakes the runtime under a grant and blocks until it has generated a token; it returns at once if the runtime is awake. It fails
// after three failed attempts in a row. Cancelling ctx does not stop the wake.
func (w *callers) Wake(ctx context.Context, g api.Grant) (api.InstanceStatus, error) {
	return w.submit(ctx, &call{goal: goal{state: api.Awake}, grant: g, epoch: g.Epoch, trace: api.TraceOf(ctx)})
}

// Sleep drains the runtime and puts it to sleep, or deepens its sleep. If the running requests take longer than r.Drain, or ctx ends
// during the drain, the runtime stays awake (409 busy). With r.Move, and a runtime that is a [runtime.Mover], it does not wait once all
// running requests can continue at another instance: it ends them.
func (w *callers) Sleep(ctx context.Context, r control.SleepRequest) (api.InstanceStatus, error) {
	return w.submit(ctx, &call{goal: goal{api.Asleep, r.Level}, epoch: r.Epoch, drain: r.Drain, move: r.Move})
}

// Fence refuses every wake and sleep with an epoch below r.Epoch from now on, including calls that are on their way. Operations under
// way continue. The returned status was taken after that.
func (w *callers) Fence(ctx context.Context, r control.FenceRequest) (api.InstanceStatus, error) {
	return w.submit(ctx, &call{fence: true, epoch: r.Epoch})
}

// Stop drains the runtime and ends it, and with it Run. Requests that take longer than r.Drain are cut; r.Move is as in Sleep.
// Cancelling ctx does not stop it.
func (w *callers) Stop(ctx context.Context, r control.StopRequest) (api.InstanceStatus, error) {
	return w.submit(ctx, &call{goal: goal{state: api.Gone}, drain: r.Drain, move: r.Move})
}

// Leave drains the runtime's requests as Stop does and ends Run, but leaves the runtime running for the next supervisor to adopt. It
// reports no state: the instance is not gone. A Stop overrides it.
func (w *callers) Leave(ctx context.Context, r control.StopRequest) (api.InstanceStatus, error) {
	return w.submit(ctx, &call{goal: goal{state: api.Gone}, drain: r.Drain, leave: true})
}

func (w *callers) submit(ctx context.Context, c *call) (api.InstanceStatus, error) {
	c.answer = make(chan error, 1)
	select {
	case w.calls <- c:
	case <-w.done:
		if c.goal.state == api.Gone { // a stop after the end succeeds
			return w.reports.read(), nil
		}
		return w.reports.read(), refusal(api.Gone, false)
	case <-ctx.Done():
		return api.InstanceStatus{}, context.Cause(ctx)
	}
	select {
	case err := <-c.answer: // the owner answers every call that it took
		return w.reports.read(), err
	case <-ctx.Done():
		select {
		case w.leaves <- c:
		case <-w.done:
		}
		return api.InstanceStatus{}, context.Cause(ctx)
	}
}

func (w *callers) add(c *call) { w.waiting = append(w.waiting, c) }

func (w *callers) remove(c *call) {
	w.waiting = slices.DeleteFunc(w.waiting, func(o *call) bool { return o == c })
}

func (w *callers) has(state api.State) bool {
	return slices.ContainsFunc(w.waiting, func(c *call) bool { return c.goal.state == state })
}

func (w *callers) answer(state api.State, err error) {
	w.waiting = slices.DeleteFunc(w.waiting, func(c *call) bool {
		if c.goal.state != state {
			return false
		}
		c.answer <- err
		return true
	})
}

// settle answers the calls whose goal is reached, and, once the wanted state is reached, those whose goal it does not fulfil.
func (w *callers) settle(is, wanted goal) {
	final := is.reaches(wanted)
	w.waiting = slices.DeleteFunc(w.waiting, func(c *call) bool {
		switch {
		case is.reaches(c.goal):
			c.answer <- nil
		case final && c.goal.state != api.Gone:
			c.answer <- stale("a newer call overtook this one: the instance is %s", is.state)
		default:
			return false
		}
		return true
	})
}

// reaches reports whether g fulfils wanted: a deeper sleep fulfils a lighter one.
func (g goal) reaches(wanted goal) bool {
	return g.state == wanted.state && (g.state != api.Asleep || g.level >= wanted.level)
}
