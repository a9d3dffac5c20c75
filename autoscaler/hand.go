package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
)

// waiter waits for an operator's order. done has room for the one answer; it is nil in a replay.
type waiter struct {
	id   uint64
	done chan error
}

// answer also ends the order.
func (f *function) answer(err error) {
	for _, w := range f.waiters {
		reply(w.done, err)
	}
	f.waiters = nil
	if !f.removed {
		f.Order = decide.OrderNone
	}
}

// Wake returns when an instance of a function is awake. If ctx ends first and no other caller asked, the order is
// dropped. Errors are *[api.Error] if the function is unknown or can't be started.
func (a *Autoscaler) Wake(ctx context.Context, name api.FunctionName) error {
	return a.byHand(ctx, name, decide.OrderWake, 0)
}

// Sleep returns when all instances of a function sleep at level (0: the function's own). Running requests may finish. It
// refuses if the function would be woken again at once.
func (a *Autoscaler) Sleep(ctx context.Context, name api.FunctionName, level api.Level) error {
	if level < api.LevelAwake || level > api.Suspended {
		return api.BadRequest("level", "level %d: want 1, 2 or 3", level)
	}
	return a.byHand(ctx, name, decide.OrderSleep, level)
}

// Stop returns when all instances of a function are gone. Otherwise it is like [Autoscaler.Sleep].
func (a *Autoscaler) Stop(ctx context.Context, name api.FunctionName) error {
	return a.byHand(ctx, name, decide.OrderStop, 0)
}

// Reported waiting requests may have been answered since: activators batch changes. An order is retried every
// demandSoon, demandLate in all, before it is refused because of them.
const (
	demandSoon = 50 * time.Millisecond
	demandLate = 250 * time.Millisecond
)

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

// byHandOnce does not retry; again reports whether that may help.
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
		none := scaled && f.Function.Scale.Bound(f.Spec) == 0 // waiting requests start nothing
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

const (
	mostReplicas = 10000
	longestScale = 24 * time.Hour
)

// Scale sets how many instances are kept awake for a time, within min-scale and max-scale; see [decide.Scale]. It
// returns an *[api.Error] if a value is out of range or the function is unknown.
func (a *Autoscaler) Scale(ctx context.Context, name api.FunctionName, replicas int, lifetime time.Duration, by string) error {
	switch {
	case replicas < 0 || replicas > mostReplicas:
		return api.BadRequest("replicas", "replicas is %d: want 0 to %d", replicas, mostReplicas)
	case lifetime < time.Second || lifetime > longestScale:
		return api.BadRequest("for", "for is %s: want 1s to %s, after which demand decides again; set it again before to keep it", lifetime, longestScale)
	}
	in := &scaleSet{Name: name, Replicas: replicas, Life: lifetime, By: by, refused: make(chan error, 1)}
	refused, err := answerTo(ctx, a, in, in.refused)
	if err != nil {
		return err
	}
	return refused
}

func (p *scaleSet) apply(a *loop) {
	f := a.functions[p.Name]
	if f == nil || f.Undeclared || f.removed {
		reply(p.refused, error(api.Errorf(http.StatusNotFound, api.CodeModelNotFound, "there is no function %s", p.Name)))
		return
	}
	a.setScale(f, decide.Scale{Replicas: p.Replicas, Until: a.now.Add(p.Life), By: p.By})
	reply(p.refused, nil)
}

func (a *loop) setScale(f *function, s decide.Scale) {
	now := a.now
	old := f.Function.Scale
	f.Function.Scale = s
	if old.On(now) && old.Replicas == s.Replicas && old.By == s.By {
		return // only renewed
	}
	reason := s.String()
	if n := s.Bound(f.Spec); n != s.Replicas {
		reason += fmt.Sprintf("; within min-scale %d and max-scale %d that is %d", f.Spec.MinScale, f.Spec.MaxScale, n)
	}
	a.tell(api.Decision{At: now, Function: f.Spec.Name, Action: "scale", Reason: reason})
}

// replicas is how many instances of each function should be awake, and how many are, under Rouse's own names and those
// of llm-d's Workload Variant Autoscaler. Prometheus renames their label namespace to exported_namespace.
type replicas struct {
	desired, current                  *prometheus.Desc
	wvaDesired, wvaCurrent, wvaDegree *prometheus.Desc
}

type count struct {
	function         api.FunctionName
	model            api.ModelName
	desired, current int
}

func newReplicas() replicas {
	ours, theirs := []string{"namespace", "variant_name", "model"}, []string{"namespace", "variant_name"}
	return replicas{
		desired:    prometheus.NewDesc("rouse_desired_replicas", "Instances of a function that should be awake.", ours, nil),
		current:    prometheus.NewDesc("rouse_current_replicas", "Instances of a function that are awake.", ours, nil),
		wvaDesired: prometheus.NewDesc("wva_desired_replicas", "rouse_desired_replicas by the name of the Workload Variant Autoscaler.", theirs, nil),
		wvaCurrent: prometheus.NewDesc("wva_current_replicas", "rouse_current_replicas by the name of the Workload Variant Autoscaler.", theirs, nil),
		wvaDegree:  prometheus.NewDesc("wva_desired_ratio", "Desired by current replicas; where none is awake, the desired ones.", theirs, nil),
	}
}

func (r replicas) describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{r.desired, r.current, r.wvaDesired, r.wvaCurrent, r.wvaDegree} {
		c <- d
	}
}

func (r replicas) collect(gauge func(*prometheus.Desc, float64, ...string), counts []count) {
	for _, n := range counts {
		namespace, name := n.function.Namespace(), n.function.Name()
		desired, current := float64(n.desired), float64(n.current)
		gauge(r.desired, desired, namespace, name, string(n.model))
		gauge(r.current, current, namespace, name, string(n.model))
		gauge(r.wvaDesired, desired, namespace, name)
		gauge(r.wvaCurrent, current, namespace, name)
		gauge(r.wvaDegree, desired/max(1, current), namespace, name)
	}
}

func (a *loop) counts(now time.Time) []count {
	out := make([]count, 0, len(a.order))
	for _, f := range a.order {
		if f.Undeclared || f.removed {
			continue
		}
		n := count{function: f.Spec.Name, model: f.Spec.Model, desired: a.desired(f, now)}
		for _, i := range f.Instances {
			if i.Status.State == api.Awake {
				n.current++
			}
		}
		out = append(out, n)
	}
	return out
}

// desired also counts instances needed within SleepAfter: the signal would drop in every pause between two requests.
func (a *loop) desired(f *function, now time.Time) int {
	d := decide.Desired(&f.Function, now)
	if f.Order != decide.OrderNone || f.Function.Scale.On(now) {
		return d
	}
	for n := min(len(f.NeededAt), max(1, f.Spec.MaxScale)); n > d; n-- {
		if f.Spec.SleepAfter == 0 || f.NeededAt[n-1].Add(f.Spec.SleepAfter).After(now) {
			return n
		}
	}
	return d
}
