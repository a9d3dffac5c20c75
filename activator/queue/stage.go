package queue

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// Stage describes the wait for an instance.
type Stage struct {
	Word     string
	Why      string        // obstacle; empty: unknown
	Expected time.Duration // until an instance accepts requests; 0: unknown
	Progress float64       // done share of a start; 0: unknown
}

// Stage returns the stage of f's waiting requests.
func (f *Function) Stage() Stage {
	s := f.ownStage(time.Now())
	if s.Why == "" {
		if s.Why = f.waitsFor(); s.Why != "" {
			s.Expected = 0
		}
	}
	return s
}

// The caller does not hold mu.
func (f *Function) waitsFor() string {
	if waits := f.q.cfg.Waits; waits != nil {
		return waits(f.Name)
	}
	return ""
}

func (f *Function) ownStage(now time.Time) Stage {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Stage{Expected: f.expected(now)}
	st, found := f.set.Best()
	switch {
	case f.set.Awake(now):
		s.Word = "queue"
	case f.waking.instance != "":
		s.Word = api.StepWaking
	case !found:
		s.Word = string(api.Starting)
	default:
		s.Word = cmp.Or(st.Stage, string(st.State))
	}
	if found && st.State == api.Starting {
		s.Progress = st.Progress
	}
	if st, found := f.obstacle(now); found {
		s.Why = st.Message
	}
	return s
}

// 0: now, or unknown. The caller holds mu.
func (f *Function) expected(now time.Time) time.Duration {
	if f.set.Awake(now) {
		return 0
	}
	if w := f.waking; w.instance != "" {
		return max(w.takes-now.Sub(w.began), 0)
	}
	st, found := f.set.Best()
	switch {
	case !found:
		return f.loadTime
	case st.State == api.Asleep, st.State == api.Draining:
		return f.expectedWake(st)
	case st.Unplaced():
		return 0
	case st.State == api.Starting && st.Stage == api.StepWaking:
		return max(f.wakeTime-now.Sub(st.Since), 0)
	case st.State == api.Starting:
		return max(f.loadTime-now.Sub(st.Since), 0)
	}
	return f.loadTime
}

// The caller holds mu.
func (f *Function) expectedWake(st api.InstanceStatus) time.Duration {
	if f.Spec().Unloaded(st) {
		return cmp.Or(f.loadTime, f.wakeTime)
	}
	return f.wakeTime
}

// patience returns a context that ends at limit with a refusal. Time with [Function.paused] does not count. The
// caller holds mu.
func (f *Function) patience(ctx context.Context, limit, now time.Time) (_ context.Context, done context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	paused := f.paused.at(now)
	var timer *time.Timer
	timer = time.AfterFunc(limit.Sub(now), func() {
		why := f.waitsFor()
		now := time.Now()
		f.mu.Lock()
		defer f.mu.Unlock()
		left := limit.Add(f.paused.at(now) - paused).Sub(now)
		switch {
		case left <= 0:
			cancel(f.timedOut(now, why))
		case f.paused.since.IsZero():
			timer.Reset(left)
		default: // the remaining time is unknown
			timer.Reset(max(left, time.Second))
		}
	})
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}

// The caller holds mu.
func (f *Function) obstacle(now time.Time) (st api.InstanceStatus, found bool) {
	if f.set.Awake(now) || f.waking.instance != "" {
		return st, false
	}
	st, found = f.set.Best()
	return st, found && st.Unplaced()
}

// Wake is this activator's trace of one wake. Its function owns it, under mu, until a request that waited for it
// gets a slot, which owns it from then on. It is reported after the answer's first byte and the end of all calls to
// instances. A nil Wake is no trace.
type Wake struct {
	f      *Function
	parent string // the client's span
	began  time.Time
	root   *waketrace.Span
	open   atomic.Int32 // the request and the calls

	woke     api.InstanceID // by our call
	awake    time.Time      // zero: an awake instance was avoided
	instance api.InstanceID
	picked   time.Time // when the request got its slot
	sent     time.Time
	answered time.Time
	ended    time.Time // when its first byte was sent
}

// The caller holds mu.
func (f *Function) traceWake(w *Want) {
	switch {
	case f.trace != nil:
	case w.wake != nil:
		f.trace, w.wake = w.wake, nil // the instance that had it is gone
	default:
		t := &Wake{f: f, parent: w.Trace.Span, began: w.Begun, root: f.q.cfg.Tracer.Root(f.Name, w.Trace, api.PartActivator, w.Begun)}
		t.open.Store(1)
		f.trace = t
	}
}

// The caller holds mu.
func (t *Wake) calls() *waketrace.Span {
	if t == nil {
		return nil
	}
	return t.root
}

// The caller holds mu.
func (t *Wake) begun() {
	if t != nil {
		t.open.Add(1)
	}
}

func (t *Wake) called(call *waketrace.Span, st api.InstanceStatus, err error, now time.Time) {
	if t == nil {
		return
	}
	call.DoneAt(now, err)
	call.Steps(st.Instance, st.StepsOf(call.Trace().Span), false)
	t.done()
}

// done ends the request or a call; the last sends the trace to Run.
func (t *Wake) done() {
	if t.open.Add(-1) > 0 {
		return
	}
	select {
	case t.f.q.woken <- t:
	default: // rather than block a request
	}
}

// The caller holds mu.
func (t *Wake) wokenBy(id api.InstanceID) {
	if t != nil {
		t.woke = id
	}
}

// The caller holds mu.
func (t *Wake) sawAwake(now time.Time) {
	if t != nil && t.awake.IsZero() {
		t.awake = now
	}
}

func (t *Wake) abandon() {
	if t != nil {
		t.root.Done(errLeft)
	}
}

var errLeft = errors.New("no request waits for it any more")

func (t *Wake) goesTo(id api.InstanceID, now time.Time) {
	if t != nil {
		t.instance, t.picked = id, now
	}
}

const maxWoken = 64

func (q *Queues) report(t *Wake) {
	awake := t.awake
	if awake.IsZero() || awake.After(t.picked) {
		awake = t.picked
	}
	at := t.root.Trace()
	o := api.WakeTrace{Function: t.f.Name, Instance: t.instance, Activator: q.cfg.Name, Trace: at.ID, Root: at.Span, Parent: t.parent, Unsampled: at.Unsampled,
		Start: t.began, Total: t.ended.Sub(t.began)}
	if t.woke == t.instance {
		o.By = api.PartActivator
	}
	calls := t.root.Wake().Spans(t.began, api.Span{Took: awake.Sub(t.began)})
	own := func(name string, from, to time.Time) (id string) {
		id = t.root.Start(waketrace.Step{Name: name, Part: api.PartActivator, Instance: t.instance, Began: from, Ended: to}).Trace().Span
		o.Add(api.Span{ID: id, Name: name, Part: api.PartActivator, After: from.Sub(t.began), Took: to.Sub(from)})
		return id
	}
	hold := own(api.SpanHold, t.began, awake)
	for _, s := range calls {
		s.Parent = cmp.Or(s.Parent, hold)
		o.Add(s)
	}
	own(api.SpanDispatch, awake, t.sent)
	own(api.SpanFirstToken, t.sent, t.answered)
	t.root.DoneAt(t.ended, nil)
	q.cfg.Emitter.Emit(api.NewEvent(api.EventWoken, "/activator/"+q.cfg.Name, o.Function, o))
}
