package autoscaler

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
)

// waiter is a caller that waits for an operator's order. done has room for the loop's one answer; it is nil in a replay.
type waiter struct {
	id   uint64
	done chan error
}

// answer sends err to all callers that wait for the order, and ends the order.
func (f *function) answer(err error) {
	for _, w := range f.waiters {
		reply(w.done, err)
	}
	f.waiters = nil
	if !f.removed {
		f.Order = decide.OrderNone
	}
}

// Wake starts or wakes an instance of a function that has none awake, and returns when one is awake. If ctx ends first and no other
// caller asked, the order is dropped. Errors are *[api.Error] if the function is unknown or can't be started.
func (a *Autoscaler) Wake(ctx context.Context, name api.FunctionName) error {
	return a.byHand(ctx, name, decide.OrderWake, 0)
}

// Sleep puts all awake instances of a function to sleep at level (0: the function's own) and returns when they sleep. Running
// requests may finish. It refuses if the function would be woken again at once: while requests wait, and if min-scale or a scale
// from outside keeps it awake.
func (a *Autoscaler) Sleep(ctx context.Context, name api.FunctionName, level api.Level) error {
	if level < api.LevelAwake || level > api.Suspended {
		return api.BadRequest("level", "level %d: want 1, 2 or 3", level)
	}
	return a.byHand(ctx, name, decide.OrderSleep, level)
}

// Stop ends all instances of a function and returns when they are gone. Running requests may finish. The next request starts the
// function again. It refuses if the function would start again at once, like [Autoscaler.Sleep].
func (a *Autoscaler) Stop(ctx context.Context, name api.FunctionName) error {
	return a.byHand(ctx, name, decide.OrderStop, 0)
}

// Activators batch changes of demand, and front doors relay them, so the last reported waiting requests may have been answered
// since. An order is retried every demandSoon, demandLate in all, before it is refused because of them.
const (
	demandSoon = 50 * time.Millisecond
	demandLate = 250 * time.Millisecond
)

// byHand gives an operator's order and waits until it is carried out.
func (a *Autoscaler) byHand(ctx context.Context, name api.FunctionName, order decide.Order, level api.Level) error {
	for late := time.Now().Add(demandLate); ; {
		again, err := a.byHandOnce(ctx, name, order, level)
		if !again || time.Now().After(late) {
			return err
		}
		select {
		case <-time.After(demandSoon):
		case <-ctx.Done():
			return err
		}
	}
}

// byHandOnce is byHand without retries; again reports whether a retry may help.
func (a *Autoscaler) byHandOnce(ctx context.Context, name api.FunctionName, order decide.Order, level api.Level) (again bool, err error) {
	in := &orderGiven{Name: name, Order: order, Level: level, Waiter: a.waiters.Add(1), done: make(chan error, 1), given: make(chan error, 1)}
	refused, err := answerTo(ctx, a, in, in.given)
	if err != nil {
		return false, err
	}
	if refused != nil {
		var e *api.Error
		return errors.As(refused, &e) && e.RetryAfter > 0, refused
	}
	select {
	case err := <-in.done:
		return false, err
	case <-a.box.closed:
		return false, errEnded
	case <-ctx.Done():
		a.put(&orderWithdrawn{Name: name, Waiter: in.Waiter})
		return false, context.Cause(ctx)
	}
}

func (p *orderGiven) apply(a *loop) {
	reply(p.given, a.giveOrder(p.Name, p.Order, p.Level, waiter{id: p.Waiter, done: p.done}))
}

func (p *orderWithdrawn) apply(a *loop) {
	a.withdraw(p.Name, p.Waiter)
}

func (a *loop) giveOrder(name api.FunctionName, order decide.Order, level api.Level, w waiter) error {
	f := a.functions[name]
	if f == nil || f.Undeclared || f.removed {
		return api.Errorf(http.StatusNotFound, api.CodeModelNotFound, "there is no function %s", name)
	}
	if a.stopping {
		return errEnded
	}
	if order != decide.OrderWake {
		scaled := f.Function.Scale.On(a.now)
		none := scaled && f.Function.Scale.Bound(f.Spec) == 0 // scaled to 0: waiting requests start nothing
		switch {
		case f.Waiting > 0 && !none:
			return api.Errorf(http.StatusConflict, api.CodeBusy, "%s has %d waiting, which would bring it back at once: let them be answered first", name, f.Waiting).WithRetryAfter(demandSoon)
		case f.Spec.MinScale > 0:
			return api.Errorf(http.StatusConflict, api.CodeBusy, "%s has min-scale %d, which would bring it back at once: set it to 0 first", name, f.Spec.MinScale)
		case scaled && !none:
			return api.Errorf(http.StatusConflict, api.CodeBusy, "of %s %s, which would bring it back at once: set the scale to 0 first, or wait", name, f.Function.Scale)
		}
	}
	if err := f.whyNotSuspended(level); err != nil {
		return err
	}
	if f.Order != decide.OrderNone && f.Order != order {
		f.answer(api.Errorf(http.StatusConflict, "", "%s was asked for something else in the meantime", name))
	}
	if level == 0 {
		level = max(api.Level1, f.Spec.SleepLevel)
	}
	f.Order, f.OrderLevel, f.OrderedAt = order, level, a.now
	f.waiters = append(f.waiters, w)
	return nil
}

// whyNotSuspended returns an error if level is [api.Suspended] and f can't be.
func (f *function) whyNotSuspended(level api.Level) error {
	if level != api.Suspended {
		return nil
	}
	if f.Spec.Suspend == api.SuspendOff {
		return api.Errorf(http.StatusConflict, "", "%s is not to be suspended: set rouse.dev/suspend to auto or on first, or ask for level 1 or 2", f.Spec.Name)
	}
	for _, i := range f.Instances {
		s := &i.Status
		switch {
		case s.NoSuspend != "":
			return api.Errorf(http.StatusConflict, "", "%s can't be suspended: %s; ask for level 1 or 2", s.Instance, s.NoSuspend)
		case f.Need.Devices == 0 && len(s.Devices) == 0:
			return api.Errorf(http.StatusConflict, "", "%s can't be suspended: it has no GPU; ask for level 1 or 2", s.Instance)
		}
	}
	return nil
}

// withdraw forgets a caller that no longer waits, and the order if it was the last one.
func (a *loop) withdraw(name api.FunctionName, id uint64) {
	f := a.functions[name]
	if f == nil {
		return
	}
	for k, v := range f.waiters {
		if v.id == id {
			f.waiters = append(f.waiters[:k], f.waiters[k+1:]...)
			if len(f.waiters) == 0 {
				f.answer(nil)
			}
			return
		}
	}
}

// settle ends the orders that are carried out.
func (a *loop) settle() {
	for _, f := range a.order {
		if f.Order == decide.OrderNone || f.removed {
			continue
		}
		if f.carriedOut() {
			f.answer(nil)
		} else if f.Order == decide.OrderSleep { // the try may have failed
			if err := f.whyNotSuspended(f.OrderLevel); err != nil {
				f.answer(err)
			}
		}
	}
	if a.stopping && len(a.instances) == 0 {
		for _, c := range a.emptied {
			close(c)
		}
		a.emptied = nil
	}
}

// carriedOut reports whether f's order is carried out.
func (f *function) carriedOut() bool {
	awake, down := false, true
	for _, i := range f.Instances {
		awake = awake || i.Status.State == api.Awake && i.Doing == decide.Nothing
		down = down && i.Status.State == api.Asleep && i.Status.Level >= f.OrderLevel && i.Doing == decide.Nothing
	}
	switch f.Order {
	case decide.OrderWake:
		return awake
	case decide.OrderSleep:
		return down
	case decide.OrderStop:
		return len(f.Instances) == 0
	}
	return true
}

// StopAll stops every instance and prevents new ones. It returns nil when the last is gone. Run must run until then.
func (a *Autoscaler) StopAll(ctx context.Context) error {
	c := make(chan struct{})
	if !a.put(&allStopped{emptied: c}) {
		return errEnded
	}
	select {
	case <-c:
		return nil
	case <-a.box.closed:
		return errEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
