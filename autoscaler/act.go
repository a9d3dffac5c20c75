package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// act carries out one action of a plan: it marks what is under way, starts the
// call, and tells of the decision.
func (a *Autoscaler) act(act *decide.Action, now time.Time) {
	f := a.functions[act.Function]
	i := a.instances[act.Instance]
	if f == nil || i == nil && act.Instance != "" {
		panic(fmt.Sprintf("autoscaler: the plan acts on what does not exist: %s", act))
	}
	if act.Kind == decide.Wait { // it changes nothing that plans see
		if f.lastWait != act.Reason {
			f.lastWait = act.Reason
			a.tell(f, api.Decision{At: now, Function: f.Spec.Name, Action: string(act.Kind), Reason: act.Reason})
		}
		return
	}
	switch act.Kind {
	case decide.Start:
		i = a.start(f, act, now)
	case decide.Wake:
		a.wake(i, act, now)
	case decide.Sleep:
		a.makesRoom(i, act, now)
		a.sleep(i, act)
	case decide.Stop:
		if act.Fault != "" {
			a.fault(i, act.Fault, false, now)
		}
		a.makesRoom(i, act, now)
		a.stop(i, act)
	case decide.Grant:
		a.grant(i, act, now)
	case decide.Revoke:
		a.revoke(i)
	case decide.Fail:
		f.RefusedAt = now
		if f.Order == decide.OrderWake {
			f.answer(act.Err)
		}
		a.call(f, a.cfg.CallTimeout, func(ctx context.Context) func(time.Time) {
			err := a.fx.Fail(ctx, f.Spec.Name, act.Err)
			return func(time.Time) { a.tellError(f, "", string(decide.Fail), err) }
		})
	}
	f.lastWait = ""
	f.Observe(now)
	a.dirty.add(act.Function)
	d := api.Decision{At: now, Function: f.Spec.Name, Action: string(act.Kind), Reason: act.Reason}
	if i != nil {
		d.Instance = i.Status.Instance
	}
	a.tell(f, d)
}

// call runs one call of Effects for f in its own goroutine; what it returns runs on the loop.
func (a *Autoscaler) call(f *function, limit time.Duration, do func(ctx context.Context) func(now time.Time)) {
	a.ops.Go(func() {
		ctx, cancel := context.WithTimeoutCause(a.opsCtx, limit, fmt.Errorf("no answer within %s", limit))
		defer cancel()
		done := do(ctx)
		a.update(f.Spec.Name, func() { done(time.Now()) })
	})
}

// makesRoom begins the span of a call to an instance, where it goes or sleeps for a function.
func (a *Autoscaler) makesRoom(i *instance, act *decide.Action, now time.Time) {
	if a.functions[act.For] != nil {
		i.span = a.wakes.Room(act.For, i.Status.Instance, act.Reason, now)
	}
}

// begin marks a call under way at i, and ends the mark, and the span of the call, when it is done.
func (a *Autoscaler) begin(i *instance, what decide.Doing, limit time.Duration, do func(context.Context) (api.InstanceStatus, error), done func(error, time.Time)) {
	i.Doing = what
	span := i.span
	a.call(i.f, limit, func(ctx context.Context) func(time.Time) {
		s, err := do(waketrace.With(ctx, span))
		span.Done(err)
		return func(now time.Time) {
			if a.instances[i.Status.Instance] != i {
				return // it died in the meantime
			}
			i.Doing, i.Level, i.span = decide.Nothing, 0, nil
			if err == nil && s.Instance == i.Status.Instance {
				a.merge(s, now)
				i.Status.Requests, i.Status.Spare, i.Status.Shrunk = s.Requests, s.Spare, s.Shrunk // whatever it has reported since
			}
			done(err, now)
			i.f.Observe(now)
		}
	})
}

func (a *Autoscaler) start(f *function, act *decide.Action, now time.Time) *instance {
	id := a.newID(f.Spec.Name)
	i := a.addInstance(f, api.InstanceStatus{Instance: id, Function: f.Spec.Name, State: api.Starting, Since: now,
		Concurrency: f.Spec.Concurrency, Devices: act.Devices, Node: act.Node}, now)
	i.From, i.Ahead = inventory.Stopped, act.Ahead
	i.adapters.known, i.adapters.has = true, f.Spec.Runtime.Adapters
	spec, g := f.Spec, a.newGrant(i, act, now.Add(f.Spec.StartTimeout))
	var told api.Trace
	i.span, told = a.wakes.Startup(f.Spec.Name, id, false, act.Reason, now)
	g.Trace = told.String()
	real := id // written by the call, read by the loop after it
	a.begin(i, decide.DoingStart, spec.StartTimeout+a.cfg.Policy.Slack, func(ctx context.Context) (s api.InstanceStatus, err error) {
		real, err = a.fx.Start(ctx, spec, id, g)
		return s, err
	}, func(err error, now time.Time) {
		if err == nil {
			a.rename(i, real, now)
			return
		}
		a.tellError(f, id, string(decide.Start), err)
		a.fault(i, err.Error(), false, now)
		if !i.reported { // nothing was spawned
			a.dropInstance(i, now)
		}
	})
	return i
}

func (a *Autoscaler) wake(i *instance, act *decide.Action, now time.Time) {
	limit := i.f.Spec.RiseTimeout(i.Unloaded)
	g := a.newGrant(i, act, now.Add(limit))
	i.Since, i.RoseAt, i.faulted, i.Ahead = now, now, false, act.Ahead
	i.Rehearsing, i.Rehearsed = false, act.Rehearsal
	i.Grant = g // until it is known what came of it: the call may fail and the order arrive all the same
	s := i.Status
	var told api.Trace
	i.span, told = a.wakes.Startup(i.f.Spec.Name, s.Instance, true, act.Reason, now)
	g.Trace = told.String()
	a.begin(i, decide.DoingWake, limit+a.cfg.Policy.Slack, func(ctx context.Context) (api.InstanceStatus, error) {
		return a.fx.Wake(ctx, s, g)
	}, func(err error, now time.Time) {
		if err == nil && i.Status.State == api.Asleep {
			err = errors.New("it was woken and says that it is asleep")
		}
		if err == nil {
			i.Failures = 0
			return
		}
		i.Since = now
		a.tellError(i.f, s.Instance, string(decide.Wake), err)
		if errors.Is(err, ErrElsewhere) { // no order was sent
			i.Grant = api.Grant{}
			return
		}
		if a.refused(i, err, now) {
			return
		}
		i.Failures++
		a.fault(i, err.Error(), false, now)
	})
}

// sleep puts an instance to sleep. Its epoch makes every grant of before worthless;
// activators are told so that they don't try.
func (a *Autoscaler) sleep(i *instance, act *decide.Action) {
	i.Level, i.Rehearsing = act.Level, act.Rehearsal
	s, epoch := i.Status, a.newEpoch(i)
	if !act.Shrink {
		s.Spare = nil
	}
	a.takeBack(i, epoch)
	limit, began := act.Drain+i.f.Spec.WakeTimeout+a.cfg.Policy.Slack, time.Now()
	a.begin(i, decide.DoingSleep, limit, func(ctx context.Context) (api.InstanceStatus, error) {
		return a.fx.Sleep(ctx, s, act.Level, epoch, act.Drain)
	}, func(err error, now time.Time) {
		if err == nil && i.Status.State == api.Awake {
			err = errors.New("it was put to sleep and says that it is awake")
		}
		if err == nil {
			i.Grant, i.Failures = api.Grant{}, 0
			return
		}
		a.tellError(i.f, s.Instance, string(decide.Sleep), err)
		if now.Sub(began) >= limit {
			i.Failures++ // it hangs: another try would take as long, and it is stopped instead
		}
		a.failedDown(i, err, now)
	})
}

// stop ends an instance.
func (a *Autoscaler) stop(i *instance, act *decide.Action) {
	s := i.Status
	s.Epoch = a.newEpoch(i)
	a.takeBack(i, s.Epoch)
	a.begin(i, decide.DoingStop, act.Drain+a.cfg.StopTimeout, func(ctx context.Context) (api.InstanceStatus, error) {
		return api.InstanceStatus{}, a.fx.Stop(ctx, s, act.Drain)
	}, func(err error, now time.Time) {
		if err == nil {
			a.dropInstance(i, now)
			a.finishRemoval(i.f)
			return
		}
		a.tellError(i.f, s.Instance, string(decide.Stop), err)
		if errors.Is(err, ErrEnding) {
			i.Doing = decide.DoingStop // until it is reported as gone
			return
		}
		a.failedDown(i, err, now)
	})
}

// failedDown notes that an instance would not sleep or stop.
func (a *Autoscaler) failedDown(i *instance, err error, now time.Time) {
	i.Failures++
	i.RetryAt = now.Add(backoff(i.Failures))
	if i.f.Order == decide.OrderSleep || i.f.Order == decide.OrderStop && !i.f.removed {
		i.f.answer(fmt.Errorf("%s: %w", i.Status.Instance, err))
	}
}

// takeBack tells activators that what they hold of an instance up to an epoch is worthless,
// or is about to be. Nothing waits for it: that is so whether they receive it or not.
func (a *Autoscaler) takeBack(i *instance, epoch uint64) {
	g := i.Grant
	if g.Instance == "" {
		return
	}
	g.Epoch = epoch
	a.ops.Go(func() {
		ctx, cancel := context.WithTimeout(a.opsCtx, a.cfg.CallTimeout)
		defer cancel()
		if err := a.fx.Revoke(ctx, g); err != nil && ctx.Err() == nil {
			a.log.Warn("a grant could not be taken back; the instance refuses it from now on", "instance", g.Instance, "error", err)
		}
	})
}

func (a *Autoscaler) grant(i *instance, act *decide.Action, now time.Time) {
	g := a.newGrant(i, act, act.Expires)
	i.Grant, i.GrantedAt = g, now
	a.begin(i, decide.DoingGrant, a.cfg.CallTimeout, func(ctx context.Context) (api.InstanceStatus, error) {
		return api.InstanceStatus{}, a.fx.Grant(ctx, g)
	}, func(err error, now time.Time) {
		if err != nil { // it may have arrived all the same: it stays reserved
			a.tellError(i.f, g.Instance, string(decide.Grant), err)
			i.RetryAt = now.Add(backoffMost / 30)
		}
	})
}

// mostUnansweredFences is how many fences in a row an instance may leave unanswered, with growing
// pauses between them, before it is taken to be lost.
const mostUnansweredFences = 7

// revoke makes what was granted worthless where it counts, at the instance itself: its
// answer says that no wake of before can begin from then on, and whether one is under way.
func (a *Autoscaler) revoke(i *instance) {
	s, epoch := i.Status, a.newEpoch(i)
	a.takeBack(i, epoch)
	a.begin(i, decide.DoingRevoke, a.cfg.CallTimeout, func(ctx context.Context) (api.InstanceStatus, error) {
		return a.fx.Fence(ctx, s, epoch)
	}, func(err error, now time.Time) {
		if err == nil {
			i.Grant, i.unansweredFences = api.Grant{}, 0
			return
		}
		a.tellError(i.f, s.Instance, string(decide.Revoke), err)
		if a.refused(i, err, now) {
			return
		}
		i.unansweredFences++
		i.RetryAt = now.Add(backoff(i.unansweredFences))
		if i.unansweredFences >= mostUnansweredFences {
			i.Lost = err.Error()
		}
	})
}

// refused says whether an instance refuses an order because it has seen a later one. It is
// asked which: its report may have been lost.
func (a *Autoscaler) refused(i *instance, err error, now time.Time) bool {
	if api.AsError(err).Code != api.CodeStaleEpoch {
		return false
	}
	i.RetryAt = now.Add(backoffFirst)
	if !i.probing {
		a.poll(i, now)
	}
	return true
}

// newGrant makes the grant of an action, with a new epoch.
func (a *Autoscaler) newGrant(i *instance, act *decide.Action, expires time.Time) api.Grant {
	return api.Grant{Instance: i.Status.Instance, Function: i.f.Spec.Name, Epoch: a.newEpoch(i),
		Devices: act.Devices, Memory: act.Memory, Expires: expires, Life: time.Until(expires)}
}

// newEpoch is higher than any before of this instance, over restarts and changes of leader too.
func (a *Autoscaler) newEpoch(i *instance) uint64 {
	i.epoch = a.epochs.Next(i.epoch, time.Now())
	return i.epoch
}

// newID names a new instance: the function's short name and a number.
func (a *Autoscaler) newID(name api.FunctionName) api.InstanceID {
	for {
		a.counter[name.Name()]++
		id := api.InstanceID(fmt.Sprintf("%s-%04d", name.Name(), a.counter[name.Name()]))
		if a.instances[id] == nil && !a.tombstones.Holds(id, 0, time.Time{}) {
			return id
		}
	}
}

// tell keeps a decision and passes it on.
func (a *Autoscaler) tell(f *function, d api.Decision) {
	f.decided(d)
	a.history.Decided(d)
	a.metrics.decisions.WithLabelValues(d.Action).Inc()
	level := slog.LevelDebug
	switch {
	case d.Error != "", d.Action == string(decide.Fail):
		level = slog.LevelWarn
	case d.Action == string(decide.Start), d.Action == string(decide.Wake), d.Action == string(decide.Sleep), d.Action == string(decide.Stop):
		level = slog.LevelInfo
	}
	if a.log.Enabled(a.opsCtx, level) {
		attrs := []slog.Attr{slog.String("function", string(d.Function)), slog.String("reason", d.Reason)}
		if d.Instance != "" {
			attrs = append(attrs, slog.String("instance", string(d.Instance)))
		}
		if d.Error != "" {
			attrs = append(attrs, slog.String("error", d.Error))
		}
		a.log.LogAttrs(a.opsCtx, level, d.Action, attrs...)
	}
	a.emitter.Emit(api.NewEvent(api.EventDecision, a.cfg.Source, d.Function, d))
}

// tellError tells that an action failed; nil tells nothing.
func (a *Autoscaler) tellError(f *function, id api.InstanceID, action string, err error) {
	if err == nil || a.opsCtx.Err() != nil {
		return
	}
	a.tell(f, api.Decision{At: time.Now(), Function: f.Spec.Name, Instance: id, Action: action, Reason: "it failed", Error: err.Error()})
}
