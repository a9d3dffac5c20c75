package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/activator/route"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// beginWake begins a wake if requests wait, no instance is awake or being woken, and a grant allows it. The caller
// holds mu.
func (f *Function) beginWake(now time.Time) *route.Instance {
	if f.queue.Len() == 0 || f.waking.instance != "" || f.set.Awake(now) || slices.ContainsFunc(f.set.All(), wokenByOthers) {
		f.preferred = preferred{}
		return nil
	}
	want := f.queue.First().Want
	if f.queue.picky < f.queue.Len() { // wake any, for another waiting request
		want.Only = nil
	}
	sleepers, kept := f.set.Asleep(now, want)
	if f.asksFor(sleepers, kept, now) {
		return nil
	}
	for _, i := range sleepers {
		id := i.ID
		st := i.Status()
		trace := f.trace
		out, retry := f.q.grants.begin(id, st.Endpoint, f.Spec().RiseTimeout(f.Spec().Unloaded(st)), f.trace.calls(), func(call *waketrace.Span, st api.InstanceStatus, err error) {
			ended := time.Now()
			f.woke(id, st, err, trace)
			trace.called(call, st, err, ended)
		})
		switch out {
		case wakeBegun:
			f.waking = underway{instance: id, began: now, takes: f.expectedWake(st)}
			f.costs.rises(id, true, now)
			trace.begun()
			return i
		case wakeUnderWay:
			return nil
		case wakePaused:
			f.retry.arm(retry, now)
		}
	}
	return nil
}

// preferred is a sleeping instance that kept the first request's conversation: the autoscaler is asked to wake it.
type preferred struct {
	instance api.InstanceID
	until    time.Time // until then no other one is woken
}

const (
	// mostAsked is how long a granted wake waits for the autoscaler to wake that one.
	mostAsked = 250 * time.Millisecond
	// Fewer kept tokens do not justify asking: computing them is as fast.
	leastKept api.Tokens = 256
)

// asksFor reports whether a granted wake waits for the autoscaler to wake the first sleeper, which kept much more
// and has no grant. The caller holds mu.
func (f *Function) asksFor(sleepers []*route.Instance, kept api.Tokens, now time.Time) bool {
	if kept < leastKept || f.sees() != nil || f.q.grants.granted(sleepers[0].ID) {
		f.preferred = preferred{}
		return false
	}
	first := sleepers[0].ID
	if f.preferred.instance != first {
		f.preferred = preferred{first, now.Add(mostAsked)}
	}
	if !now.Before(f.preferred.until) || !slices.ContainsFunc(sleepers, func(i *route.Instance) bool { return f.q.grants.granted(i.ID) }) {
		return false
	}
	f.retry.arm(f.preferred.until, now)
	return true
}

// underway is the one wake of a function that this activator began.
type underway struct {
	instance api.InstanceID // empty: none
	began    time.Time
	takes    time.Duration // expected; 0: unknown
}

// wokenByOthers reports whether i is being woken, by the autoscaler if not by us.
func wokenByOthers(i *route.Instance) bool {
	st := i.Status()
	return st.State == api.Starting && st.Stage == api.StepWaking
}

// trace may be nil.
func (f *Function) woke(id api.InstanceID, st api.InstanceStatus, err error, trace *Wake) {
	f.Metrics.Woke(err)
	if err != nil {
		f.q.cfg.Log.Warn("wake failed", "function", f.Name, "instance", id, "error", err)
	}
	f.update(func(now time.Time) {
		f.waking = underway{}
		f.costs.rises(id, false, now)
		if err == nil {
			trace.wokenBy(id)
			f.learn(st, now)
		}
	})
	if err == nil {
		f.gather()
	} else {
		f.meter.sendNow()
	}
}

func (f *Function) update(change func(now time.Time)) {
	now := time.Now()
	f.mu.Lock()
	change(now)
	f.beginWake(now)
	names := f.adapters()
	renamed := !slices.Equal(names, f.known)
	f.known = names
	f.mu.Unlock()
	f.dispatch()
	if renamed {
		f.q.cfg.Renamed()
	}
}

// The caller holds mu.
func (f *Function) learn(st api.InstanceStatus, now time.Time) {
	if !f.set.Observe(st, now) {
		return
	}
	f.costs.rises(st.Instance, st.State == api.Starting, now)
	if st.State == api.Draining { // the function that needs its memory does not wait
		for w := range f.wants {
			if w.slot == nil || w.slot.Instance != st.Instance {
				continue
			}
			if w.Drains != nil {
				w.Drains()
			}
			if w.Background {
				w.End(api.Errorf(http.StatusTooManyRequests, CodeEvicted, "the request was ended because its instance drains: send it again"))
			}
		}
	}
	if st.WakeTime > 0 {
		f.wakeTime = st.WakeTime
	}
	if st.LoadTime > 0 {
		f.loadTime = st.LoadTime
	}
	f.model = cmp.Or(st.Model, f.model)
	if st.Ready() {
		f.trace.sawAwake(now)
		f.failed = nil
	}
	awake := f.set.Awake(now)
	f.unavailable.set(!awake, now)
	f.paused.set(!awake && slices.ContainsFunc(f.set.All(), func(i *route.Instance) bool { return i.Status().OnItsWay() }), now)
}

// Waker wakes an instance. Wake blocks until the instance has generated a token.
type Waker interface {
	Wake(ctx context.Context, at api.Endpoint, under api.Grant) (api.InstanceStatus, error)
}

// Backoff after a failed wake, doubled each time. After the last attempt the grant is dropped.
const (
	pauseFirst = 100 * time.Millisecond
	attempts   = 3
)

// ErrClosed is the cause of wakes cancelled at shutdown.
var ErrClosed = errors.New("the activator shuts down")

// grants wakes instances under valid grants, at most one call per instance at a time.
//
//  1. The autoscaler gives a standing grant while an instance sleeps.
//  2. [grants.begin] starts the wake.
//  3. The callback gets the status once the instance has generated a token. The grant stays.
//  4. [grants.revoke] returns when no wake is in progress or can begin. No grant up to its epoch is accepted
//     afterwards.
//
// It is safe for concurrent use; [grants.close] waits for the wakes.
type grants struct {
	waker  Waker
	ctx    context.Context
	cancel context.CancelCauseFunc
	wakes  sync.WaitGroup

	mu        sync.Mutex // guards all below
	closed    bool
	instances map[api.InstanceID]*permit
}

type permit struct {
	held   Permission
	flight *flight   // nil: no wake in progress
	failed int       // in a row under this grant
	pause  time.Time // no wake before
}

type flight struct {
	epoch uint64
	// Closed when the call has returned.
	done chan struct{}
}

func newGrants(w Waker) *grants {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &grants{waker: w, ctx: ctx, cancel: cancel, instances: make(map[api.InstanceID]*permit)}
}

func (o *grants) permit(id api.InstanceID) *permit {
	p := o.instances[id]
	if p == nil {
		p = &permit{}
		o.instances[id] = p
	}
	return p
}

// false: outdated
func (o *grants) grant(g api.Grant) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.permit(g.Instance)
	held, accepted := p.held.Accept(g, time.Now())
	if accepted {
		p.held, p.failed, p.pause = held, 0, time.Time{}
	}
	return accepted
}

// revoke is [Queues.Revoke].
func (o *grants) revoke(ctx context.Context, g api.Grant) error {
	o.mu.Lock()
	p := o.permit(g.Instance)
	p.held = p.held.Revoke(g.Epoch)
	f := p.flight
	o.mu.Unlock()
	if f == nil || f.epoch > g.Epoch {
		return nil
	}
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("revoke the grant of %s: a wake is under way: %w", g.Instance, context.Cause(ctx))
	}
}

func (o *grants) granted(id api.InstanceID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.instances[id]
	return p != nil && p.held.Grant.Valid(time.Now())
}

func (o *grants) forget(id api.InstanceID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.instances, id)
}

type outcome int

const (
	noGrant    outcome = iota
	wakePaused         // a wake failed a moment ago
	wakeUnderWay
	wakeBegun
)

// begin starts a wake of id at e within limit, and does not block. finished is called from another goroutine at its
// end, and must end its span. After wakePaused, retry is when to ask again.
func (o *grants) begin(id api.InstanceID, e api.Endpoint, limit time.Duration, trace *waketrace.Span, finished func(*waketrace.Span, api.InstanceStatus, error)) (out outcome, retry time.Time) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.instances[id]
	switch {
	case p == nil || o.closed:
		return noGrant, time.Time{}
	case p.flight != nil:
		return wakeUnderWay, time.Time{}
	case !p.held.Grant.Valid(now):
		return noGrant, time.Time{}
	case now.Before(p.pause):
		return wakePaused, p.pause
	}
	f := &flight{epoch: p.held.Grant.Epoch, done: make(chan struct{})}
	p.flight = f
	grant := p.held.Grant
	o.wakes.Go(func() {
		call := trace.Start(waketrace.Step{Name: api.SpanWake, Part: api.PartActivator, Instance: id, Began: now})
		ctx, cancel := context.WithTimeout(api.WithTrace(o.ctx, call.Trace()), limit)
		st, err := o.waker.Wake(ctx, e, grant)
		cancel()
		if err == nil && !st.Ready() {
			err = fmt.Errorf("wake %s: it answered that it is %s", id, st.State)
		}
		o.end(p, f, err)
		finished(call, st, err)
	})
	return wakeBegun, time.Time{}
}

func (o *grants) end(p *permit, f *flight, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p.flight = nil
	close(f.done)
	var refused *api.Error
	switch {
	case err == nil:
		p.failed = 0
	case f.epoch != p.held.Grant.Epoch: // revoked or replaced
	case errors.As(err, &refused) && refused.Code == api.CodeStaleEpoch:
		p.held.Grant = api.Grant{} // the autoscaler has decided since; its message is on the way
	default:
		p.pause = time.Now().Add(pauseFirst << p.failed)
		if p.failed++; p.failed >= attempts {
			p.held.Grant = api.Grant{}
		}
	}
}

func (o *grants) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.cancel(ErrClosed)
	o.wakes.Wait()
}
