package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

func (a *calls) act(act *decide.Action, now time.Time) {
	f := a.functions[act.Function]
	i := a.instances[act.Instance]
	if f == nil || i == nil && act.Instance != "" {
		panic(fmt.Sprintf("autoscaler: the plan acts on what does not exist: %s", act))
	}
	if act.Kind == decide.Wait { // plans see no change
		if f.lastWait != act.Reason {
			f.lastWait = act.Reason
			a.tell(api.Decision{At: now, Function: f.Spec.Name, Action: string(act.Kind), Reason: act.Reason})
		}
		return
	}
	switch act.Kind {
	case decide.Start:
		i = a.start(f, act, now)
	case decide.Wake:
		a.wake(i, act, now)
	case decide.Sleep:
		a.makesRoom(i, act)
		a.sleep(i, act)
	case decide.Keep:
		a.callOff(i)
	case decide.Stop:
		if act.Fault != "" {
			a.fault(i, act.Fault, false, now)
		}
		a.makesRoom(i, act)
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
		name, refusal := f.Spec.Name, act.Err
		a.call(&call{Kind: callFail, Function: name}, a.cfg.CallTimeout, func(ctx context.Context) returned {
			return returned{Err: newFailure(a.fx.Fail(ctx, name, refusal))}
		})
	}
	f.lastWait = ""
	f.Observe(now)
	d := api.Decision{At: now, Function: f.Spec.Name, Action: string(act.Kind), Reason: act.Reason}
	if i != nil {
		d.Instance = i.Status.Instance
	}
	a.tell(d)
}

func (a *calls) makesRoom(i *instance, act *decide.Action) {
	if a.functions[act.For] != nil {
		i.span = a.wakes.Room(act.For, i.Status.Instance, act.Reason, time.Now())
	}
}

func (a *calls) start(f *function, act *decide.Action, now time.Time) *instance {
	id := a.newID(f.Spec.Name)
	i := a.addInstance(f, api.InstanceStatus{Instance: id, Function: f.Spec.Name, State: api.Starting, Since: now,
		Concurrency: f.Spec.Concurrency, Devices: act.Devices, Node: act.Node}, now)
	i.From, i.Ahead = inventory.Stopped, act.Ahead
	i.AdaptersKnown, i.Adapters = true, f.Spec.Runtime.Adapters
	spec, g := f.Spec, a.newGrant(i, act, now.Add(f.Spec.StartTimeout))
	var told api.Trace
	i.span, told = a.wakes.Startup(f.Spec.Name, id, false, act.Reason, time.Now())
	g.Trace = told.String()
	a.begin(i, decide.DoingStart, call{Kind: callStart, Limit: spec.StartTimeout + decide.Slack}, func(ctx context.Context) returned {
		real, err := a.fx.Start(ctx, spec, id, g)
		return returned{Real: real, Err: newFailure(err)}
	})
	return i
}

func (a *calls) wake(i *instance, act *decide.Action, now time.Time) {
	limit := i.f.Spec.RiseTimeout(i.Unloaded)
	g := a.newGrant(i, act, now.Add(limit))
	i.Since, i.RoseAt, i.Faulted, i.Ahead = now, now, false, act.Ahead
	i.Rehearsing, i.Rehearsed = false, act.Rehearsal
	i.Grant = g // the order may arrive although the call fails
	s := i.Status
	var told api.Trace
	i.span, told = a.wakes.Startup(i.f.Spec.Name, s.Instance, true, act.Reason, time.Now())
	g.Trace = told.String()
	a.begin(i, decide.DoingWake, call{Kind: callWake, Limit: limit + decide.Slack}, func(ctx context.Context) returned {
		s, err := a.fx.Wake(ctx, s, g)
		return returned{Status: s, Err: newFailure(err)}
	})
}

// sleep puts an instance to sleep under an epoch that voids all earlier grants.
func (a *calls) sleep(i *instance, act *decide.Action) {
	i.Level, i.Rehearsing, i.Returns = act.Level, act.Rehearsal, act.For == "" && i.f.Order == decide.OrderNone
	s, epoch := i.Status, a.newEpoch(i)
	if !act.Shrink {
		s.Spare = nil
	}
	a.takeBack(i, epoch)
	limit := act.Drain + i.f.Spec.WakeTimeout + decide.Slack
	level, drain := act.Level, api.Drain{Limit: act.Drain, Move: act.Move}
	a.begin(i, decide.DoingSleep, call{Kind: callSleep, Limit: limit}, func(ctx context.Context) returned {
		s, err := a.fx.Sleep(ctx, s, level, epoch, drain)
		return returned{Status: s, Err: newFailure(err)}
	})
}

// callOff cancels a draining. If it is too late, the instance sleeps.
func (a *calls) callOff(i *instance) {
	i.Returns = false
	for _, c := range a.under {
		if c.i == i && c.Kind == callSleep {
			c.CalledOff = true
			if c.cancel != nil {
				c.cancel()
			}
		}
	}
}

func (a *calls) stop(i *instance, act *decide.Action) {
	s := i.Status
	s.Epoch = a.newEpoch(i)
	a.takeBack(i, s.Epoch)
	drain := api.Drain{Limit: act.Drain, Move: act.Move}
	a.begin(i, decide.DoingStop, call{Kind: callStop, Limit: act.Drain + a.cfg.StopTimeout}, func(ctx context.Context) returned {
		return returned{Err: newFailure(a.fx.Stop(ctx, s, drain))}
	})
}

// failedDown counts no failure if the instance refused because of new work.
func (a *calls) failedDown(i *instance, err error) {
	if code := api.AsError(err).Code; !i.Returns || code != api.CodeBusy && code != api.CodeStaleEpoch {
		i.Failures++
	}
	i.RetryAt = a.now.Add(backoff(max(1, i.Failures)))
	if i.f.Order == decide.OrderSleep || i.f.Order == decide.OrderStop && !i.f.removed {
		i.f.answer(fmt.Errorf("%s: %w", i.Status.Instance, err))
	}
}

// takeBack tells activators that grants up to an epoch are void. Nothing waits for it: the instance refuses them anyway.
func (a *calls) takeBack(i *instance, epoch uint64) {
	g := i.Grant
	if g.Instance == "" {
		return
	}
	g.Epoch = epoch
	if a.fx == nil {
		return
	}
	a.ops.Go(func() {
		ctx, cancel := context.WithTimeout(a.ctx, a.cfg.CallTimeout)
		defer cancel()
		if err := a.fx.Revoke(ctx, g); err != nil && ctx.Err() == nil {
			a.log.Warn("a grant could not be taken back; the instance refuses it from now on", "instance", g.Instance, "error", err)
		}
	})
}

func (a *calls) grant(i *instance, act *decide.Action, now time.Time) {
	g := a.newGrant(i, act, act.Expires)
	i.Grant, i.GrantedAt = g, now
	a.begin(i, decide.DoingGrant, call{Kind: callGrant, Limit: a.cfg.CallTimeout}, func(ctx context.Context) returned {
		return returned{Err: newFailure(a.fx.Grant(ctx, g))}
	})
}

// mostUnansweredFences in a row, with growing pauses, make an instance count as lost.
const mostUnansweredFences = 7

// revoke fences an instance. Its answer proves that no earlier wake can begin from then on.
func (a *calls) revoke(i *instance) {
	s, epoch := i.Status, a.newEpoch(i)
	a.takeBack(i, epoch)
	a.begin(i, decide.DoingRevoke, call{Kind: callFence, Limit: a.cfg.CallTimeout}, func(ctx context.Context) returned {
		s, err := a.fx.Fence(ctx, s, epoch)
		return returned{Status: s, Err: newFailure(err)}
	})
}

// refused reports whether an instance refused an order because it has seen a later epoch. If so, it is polled.
func (a *calls) refused(i *instance, err error) bool {
	if api.AsError(err).Code != api.CodeStaleEpoch {
		return false
	}
	i.RetryAt = a.now.Add(backoffFirst)
	if !i.Probing {
		a.poll(i)
	}
	return true
}

func (a *calls) newGrant(i *instance, act *decide.Action, expires time.Time) api.Grant {
	return api.Grant{Instance: i.Status.Instance, Function: i.f.Spec.Name, Epoch: a.newEpoch(i),
		Devices: act.Devices, Memory: act.Memory, Expires: expires, Life: expires.Sub(a.now)}
}

// newEpoch is higher than any earlier one of this instance, also across restarts and changes of leader.
func (a *calls) newEpoch(i *instance) uint64 {
	i.Epoch = a.epochs.Next(i.Epoch, a.now)
	return i.Epoch
}

func (a *calls) newID(name api.FunctionName) api.InstanceID {
	for {
		a.counter[name.Name()]++
		id := api.InstanceID(fmt.Sprintf("%s-%04d", name.Name(), a.counter[name.Name()]))
		if a.instances[id] == nil && !a.tombstones.Holds(id, 0, time.Time{}) {
			return id
		}
	}
}

func (a *loop) tell(d api.Decision) {
	if f := a.functions[d.Function]; f != nil {
		f.decided(d)
	}
	a.round.decided(d)
	a.history.Decided(d)
	a.metrics.decisions.WithLabelValues(d.Action).Inc()
	level := slog.LevelDebug
	switch {
	case d.Error != "", d.Action == string(decide.Fail):
		level = slog.LevelWarn
	case d.Action == string(decide.Start), d.Action == string(decide.Wake), d.Action == string(decide.Sleep), d.Action == string(decide.Stop):
		level = slog.LevelInfo
	}
	if a.log.Enabled(a.calls.ctx, level) {
		attrs := []slog.Attr{slog.String("function", string(d.Function)), slog.String("reason", d.Reason)}
		if d.Instance != "" {
			attrs = append(attrs, slog.String("instance", string(d.Instance)))
		}
		if d.Error != "" {
			attrs = append(attrs, slog.String("error", d.Error))
		}
		a.log.LogAttrs(a.calls.ctx, level, d.Action, attrs...)
	}
	a.emitter.Emit(api.NewEvent(api.EventDecision, a.cfg.Source, d.Function, d))
}

func (a *loop) tellError(name api.FunctionName, id api.InstanceID, action string, err error) {
	if err != nil {
		a.tell(api.Decision{At: a.now, Function: name, Instance: id, Action: action, Reason: "it failed", Error: err.Error()})
	}
}

// adapt sends an instance its function's adapters until that succeeds. An instance whose runtime takes adapters only at
// its start is replaced.
func (a *calls) adapt(i *instance) {
	f := i.f
	want := f.Spec.Runtime.Adapters
	switch {
	case i.Telling, i.Outdated, f.Undeclared, !i.Reported:
		return
	case i.AdaptersKnown && slices.Equal(i.Adapters, want):
		return
	case !i.AdaptersKnown && len(want) == 0 && len(i.Status.Adapters)+len(i.Status.Standby) == 0:
		return
	case i.Status.State != api.Awake && i.Status.State != api.Asleep && i.Status.State != api.Draining:
		return // told once it is up
	}
	i.Telling = true
	status := i.Status
	pause := time.Duration(0)
	if i.AdapterFailures > 0 {
		pause = backoff(i.AdapterFailures)
	}
	a.call(&call{Kind: callAdapt, Function: f.Spec.Name, Adapters: want, i: i}, pause+adaptTimeout, func(ctx context.Context) returned {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		return returned{Err: newFailure(a.fx.Adapt(ctx, status, want))}
	})
}

// adaptTimeout bounds a change of adapters, with its downloads.
const adaptTimeout = 15 * time.Minute

func (a *calls) toldAdapters(i *instance, list []api.Adapter, err error) {
	id := i.Status.Instance
	i.Telling = false
	var refused *api.Error
	switch {
	case err == nil:
		i.AdaptersKnown, i.Adapters, i.AdapterFailures = true, list, 0
	case errors.As(err, &refused) && refused.Status == http.StatusNotImplemented:
		i.Outdated = true
		a.tell(api.Decision{At: a.now, Function: i.f.Spec.Name, Instance: id, Action: actionAdapt, Reason: "its runtime takes adapters at its start only: another takes its place"})
		return
	default:
		if i.AdapterFailures++; i.AdapterFailures == 1 {
			a.tellError(i.f.Spec.Name, id, actionAdapt, err)
		}
	}
	a.adapt(i)
}

const actionAdapt = "adapt"
