package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// callKind is which method of [Effects] a call is of.
type callKind int

// The kinds whose results matter.
const (
	callStart callKind = iota
	callWake
	callSleep
	callStop
	callGrant
	callFence
	callAdapt
	callState
	callFail
)

// call is one call of [Effects] under way: all that its end needs to know. What it came to is a [returned].
type call struct {
	N        uint64 // numbers are given in the order of calls
	Kind     callKind
	Function api.FunctionName
	Asked    api.InstanceID // as the instance was called then
	Began    time.Time
	Limit    time.Duration
	Adapters []api.Adapter // that it is to have
	// CalledOff says that what was to be done is not wanted any more.
	CalledOff bool

	i      *instance          // nil: of none, or one that is gone
	cancel context.CancelFunc // ends it; nil in a replay
}

// returned is what a call came to.
type returned struct {
	N      uint64
	Status api.InstanceStatus
	Real   api.InstanceID // what was started is called so
	Err    *failure
}

// failure is why a call failed, as far as the loop goes by it.
type failure struct {
	Text              string
	Elsewhere, Ending bool // [ErrElsewhere], [ErrEnding]
	API               *api.Error

	err error // the very error; nil in a replay
}

func newFailure(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{Text: err.Error(), Elsewhere: errors.Is(err, ErrElsewhere), Ending: errors.Is(err, ErrEnding), err: err}
	errors.As(err, &f.API)
	return f
}

// error is the error, or one that reads like it.
func (f *failure) error() error {
	if f == nil {
		return nil
	}
	if f.err != nil {
		return f.err
	}
	return f
}

// Error is part of error.
func (f *failure) Error() string { return f.Text }

// Is and As of package errors find what the error was.
func (f *failure) Unwrap() []error {
	var is []error
	if f.Elsewhere {
		is = append(is, ErrElsewhere)
	}
	if f.Ending {
		is = append(is, ErrEnding)
	}
	if f.API != nil {
		is = append(is, f.API)
	}
	return is
}

// call begins a call of Effects in its own goroutine. Without effects nothing is done: in a replay the record has what it came to.
func (a *Autoscaler) call(c *call, limit time.Duration, do func(ctx context.Context) returned) {
	a.lastCall++
	c.N, c.Began = a.lastCall, a.now
	if c.i != nil {
		c.Asked = c.i.Status.Instance
	}
	a.calls[c.N] = c
	if a.fx == nil {
		return
	}
	n := c.N
	ctx, cancel := context.WithTimeoutCause(a.opsCtx, limit, fmt.Errorf("no answer within %s", limit))
	c.cancel = cancel
	a.ops.Go(func() {
		defer cancel()
		r := do(ctx)
		r.N, r.Status = n, plain(r.Status)
		a.put(&r)
	})
}

// begin marks a call under way at i. The mark ends, and the span of the call, when it is done.
func (a *Autoscaler) begin(i *instance, what decide.Doing, c call, do func(context.Context) returned) {
	i.Doing = what
	span := i.span
	c.Function, c.i = i.f.Spec.Name, i
	a.call(&c, c.Limit, func(ctx context.Context) returned {
		r := do(waketrace.With(ctx, span))
		span.Done(r.Err.error())
		return r
	})
}

// apply is part of [input].
func (r *returned) apply(a *Autoscaler) {
	c := a.calls[r.N]
	if c == nil {
		return
	}
	delete(a.calls, r.N)
	defer a.dirty.add(c.Function)
	err := r.Err.error()
	switch c.Kind {
	case callFail:
		a.tellError(c.Function, "", string(decide.Fail), err)
	case callState:
		a.polled(c, r.Status, err)
	case callAdapt:
		if i := c.i; a.current(i) {
			a.toldAdapters(i, c.Adapters, err)
		}
	default:
		a.finish(c, r, err)
	}
}

// current says whether i is a record that the loop still has.
func (a *Autoscaler) current(i *instance) bool {
	return i != nil && a.instances[i.Status.Instance] == i
}

// finish takes in what a call that marks its instance came to.
func (a *Autoscaler) finish(c *call, r *returned, err error) {
	i, s := c.i, r.Status
	if !a.current(i) {
		return // it died in the meantime
	}
	i.Doing, i.Level, i.span = decide.Nothing, 0, nil
	if err == nil && s.Instance == i.Status.Instance {
		a.merge(s, a.now)
		i.Status.Requests, i.Status.Spare, i.Status.Shrunk = s.Requests, s.Spare, s.Shrunk // whatever it has reported since
	}
	switch c.Kind {
	case callStart:
		a.started(c, r.Real, err)
	case callWake:
		a.woken(c, err)
	case callSleep:
		a.slept(c, err)
	case callStop:
		a.stopped(c, err)
	case callGrant:
		if err != nil { // it may have arrived all the same: it stays reserved
			a.tellError(c.Function, c.Asked, string(decide.Grant), err)
			i.RetryAt = a.now.Add(backoffMost / 30)
		}
	case callFence:
		a.fenced(c, err)
	}
	i.f.Observe(a.now)
}

func (a *Autoscaler) started(c *call, real api.InstanceID, err error) {
	i := c.i
	if err == nil {
		a.rename(i, real, a.now)
		return
	}
	a.tellError(c.Function, c.Asked, string(decide.Start), err)
	a.fault(i, err.Error(), false, a.now)
	if !i.reported { // nothing was spawned
		a.dropInstance(i, a.now)
		a.finishRemoval(i.f)
	}
}

func (a *Autoscaler) woken(c *call, err error) {
	i := c.i
	if err == nil && i.Status.State == api.Asleep {
		err = errors.New("it was woken and says that it is asleep")
	}
	if err == nil {
		i.Failures = 0
		return
	}
	i.Since = a.now
	a.tellError(c.Function, c.Asked, string(decide.Wake), err)
	if errors.Is(err, ErrElsewhere) { // no order was sent
		i.Grant = api.Grant{}
		return
	}
	if a.refused(i, err) {
		return
	}
	i.Failures++
	a.fault(i, err.Error(), false, a.now)
}

func (a *Autoscaler) slept(c *call, err error) {
	i := c.i
	if err == nil && i.Status.State == api.Awake {
		err = errors.New("it was put to sleep and says that it is awake")
	}
	if err == nil {
		i.Grant, i.Failures = api.Grant{}, 0
		return
	}
	if c.CalledOff {
		return
	}
	a.tellError(c.Function, c.Asked, string(decide.Sleep), err)
	if a.now.Sub(c.Began) >= c.Limit {
		i.Failures++ // it hangs: another try would take as long, and it is stopped instead
	}
	a.failedDown(i, err)
}

func (a *Autoscaler) stopped(c *call, err error) {
	i := c.i
	if err == nil {
		a.dropInstance(i, a.now)
		a.finishRemoval(i.f)
		return
	}
	a.tellError(c.Function, c.Asked, string(decide.Stop), err)
	if errors.Is(err, ErrEnding) {
		i.Doing = decide.DoingStop // until it is reported as gone
		return
	}
	a.failedDown(i, err)
}

func (a *Autoscaler) fenced(c *call, err error) {
	i := c.i
	if err == nil {
		i.Grant, i.unansweredFences = api.Grant{}, 0
		return
	}
	a.tellError(c.Function, c.Asked, string(decide.Revoke), err)
	if a.refused(i, err) {
		return
	}
	i.unansweredFences++
	i.RetryAt = a.now.Add(backoff(i.unansweredFences))
	if i.unansweredFences >= mostUnansweredFences {
		i.Lost = err.Error()
	}
}
