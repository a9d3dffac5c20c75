package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

type callKind int

// The kinds of calls. Records contain these numbers.
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

// call is a call of [Effects] under way.
type call struct {
	N        uint64
	Kind     callKind
	Function api.FunctionName
	Asked    api.InstanceID // at that time
	Began    time.Time
	Limit    time.Duration
	Adapters []api.Adapter
	// CalledOff: the call's effect is no longer wanted.
	CalledOff bool

	i      *instance          // nil: no instance, or one that is gone
	cancel context.CancelFunc // nil in a replay
}

type returned struct {
	N      uint64
	Status api.InstanceStatus
	Hidden *hidden
	Real   api.InstanceID // the ID that the started instance really has
	Err    *failure
}

// failure is an error, reduced to what the loop depends on.
type failure struct {
	Text              string
	Elsewhere, Ending bool
	API               *plainError

	err error // nil in a replay
}

// plainError is an [api.Error] with all its fields in JSON.
type plainError api.Error

func newFailure(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{Text: err.Error(), Elsewhere: errors.Is(err, ErrElsewhere), Ending: errors.Is(err, ErrEnding), err: err}
	var e *api.Error
	errors.As(err, &e)
	f.API = (*plainError)(e)
	return f
}

// error returns f itself in a replay, which reads the same.
func (f *failure) error() error {
	if f == nil {
		return nil
	}
	if f.err != nil {
		return f.err
	}
	return f
}

func (f *failure) Error() string { return f.Text }

// Unwrap finds the same errors as in the original.
func (f *failure) Unwrap() []error {
	var is []error
	if f.Elsewhere {
		is = append(is, ErrElsewhere)
	}
	if f.Ending {
		is = append(is, ErrEnding)
	}
	if f.API != nil {
		is = append(is, (*api.Error)(f.API))
	}
	return is
}

// calls carries out actions. The loop owns it.
type calls struct {
	*loop
	fx Effects // nil in a replay
	// ops counts the calls under way; ctx is their context.
	ops     sync.WaitGroup
	ctx     context.Context
	under   map[uint64]*call // by number
	last    uint64
	epochs  decide.Epochs
	counter map[string]int // by the function's short name
}

// call begins a call of Effects in its own goroutine, or in a replay only registers it: the record has the result.
func (a *calls) call(c *call, limit time.Duration, do func(ctx context.Context) returned) {
	a.last++
	c.N, c.Began = a.last, a.now
	if c.i != nil {
		c.Asked = c.i.Status.Instance
	}
	a.under[c.N] = c
	if a.fx == nil {
		return
	}
	n := c.N
	ctx, cancel := context.WithTimeoutCause(a.ctx, limit, fmt.Errorf("no answer within %s", limit))
	c.cancel = cancel
	a.ops.Go(func() {
		defer cancel()
		r := do(ctx)
		r.N, r.Status = n, plain(r.Status)
		a.put(&r)
	})
}

func (a *calls) begin(i *instance, what decide.Doing, c call, do func(context.Context) returned) {
	i.Doing = what
	span := i.span
	c.Function, c.i = i.f.Spec.Name, i
	a.call(&c, c.Limit, func(ctx context.Context) returned {
		r := do(waketrace.With(ctx, span))
		span.Done(r.Err.error())
		return r
	})
}

func (r *returned) apply(a *loop) {
	c := a.calls.under[r.N]
	if c == nil {
		return
	}
	delete(a.calls.under, r.N)
	r.Hidden.restore(&r.Status)
	err := r.Err.error()
	switch c.Kind {
	case callFail:
		a.tellError(c.Function, "", string(decide.Fail), err)
	case callState:
		a.calls.polled(c, r.Status, err)
	case callAdapt:
		if i := c.i; a.calls.current(i) {
			a.calls.toldAdapters(i, c.Adapters, err)
		}
	default:
		a.calls.finish(c, r, err)
	}
}

func (a *calls) current(i *instance) bool {
	return i != nil && a.instances[i.Status.Instance] == i
}

func (a *calls) finish(c *call, r *returned, err error) {
	i, s := c.i, r.Status
	if !a.current(i) {
		return // died in the meantime
	}
	i.Doing, i.Level, i.span = decide.Nothing, 0, nil
	if err == nil && s.Instance == i.Status.Instance {
		a.merge(s, a.now)
		i.Status.Requests, i.Status.Spare, i.Status.Shrunk = s.Requests, s.Spare, s.Shrunk // the result wins over later reports
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
		if err != nil { // it may have arrived: its memory stays reserved
			a.tellError(c.Function, c.Asked, string(decide.Grant), err)
			i.RetryAt = a.now.Add(backoffMost / 30)
		}
	case callFence:
		a.fenced(c, err)
	}
	i.f.Observe(a.now)
}

func (a *calls) started(c *call, real api.InstanceID, err error) {
	i := c.i
	if err == nil {
		a.rename(i, real, a.now)
		return
	}
	a.tellError(c.Function, c.Asked, string(decide.Start), err)
	a.fault(i, err.Error(), false, a.now)
	if !i.Reported { // no process was spawned
		a.dropInstance(i, a.now)
		a.finishRemoval(i.f)
	}
}

func (a *calls) woken(c *call, err error) {
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

func (a *calls) slept(c *call, err error) {
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
		i.Failures++ // it hangs: it is stopped instead
	}
	a.failedDown(i, err)
}

func (a *calls) stopped(c *call, err error) {
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

func (a *calls) fenced(c *call, err error) {
	i := c.i
	if err == nil {
		i.Grant, i.UnansweredFences = api.Grant{}, 0
		return
	}
	a.tellError(c.Function, c.Asked, string(decide.Revoke), err)
	if a.refused(i, err) {
		return
	}
	i.UnansweredFences++
	i.RetryAt = a.now.Add(backoff(i.UnansweredFences))
	if i.UnansweredFences >= mostUnansweredFences {
		i.Lost = err.Error()
	}
}

// fault counts a failed start or wake, once for each. Giving up logs a warning, so the last failure is logged at debug
// level. final: no other try follows.
func (a *loop) fault(i *instance, message string, final bool, now time.Time) {
	if i.Faulted {
		return
	}
	i.Faulted = true
	f := i.f
	f.Failures++
	f.FailedAt, f.LastError, f.FailedOn = now, message, slices.Clone(i.Status.Devices)
	f.RetryAt = now.Add(backoff(f.Failures))
	level := slog.LevelInfo
	if final || f.Failures >= decide.MaxFailures {
		level = slog.LevelDebug
	}
	a.log.Log(a.calls.ctx, level, "a start failed", "function", f.Spec.Name, "instance", i.Status.Instance, "failures", f.Failures, "error", message)
}

const (
	backoffFirst = 100 * time.Millisecond
	backoffMost  = 30 * time.Second
)

func backoff(n int) time.Duration {
	return min(backoffMost, backoffFirst<<min(max(0, n-1), 20))
}
