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

// beginWake begins a wake if requests wait, no instance is awake or being woken, and a grant allows it. It returns
// the instance, or nil. Among instances that wake equally fast it prefers the one that kept the conversation of the
// first waiting request. The caller holds mu.
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

// preferred is a sleeping instance that kept the conversation of the first waiting request, and which the autoscaler
// is asked to wake. The zero value: none.
type preferred struct {
	instance api.InstanceID
	until    time.Time // until then no other instance is woken
}

const (
	// mostAsked is how long a granted wake waits for the autoscaler to wake a better instance instead. The autoscaler
	// has free memory for it, or declines by waking another.
	mostAsked = 250 * time.Millisecond
	// leastKept is how many kept tokens justify this: computing fewer takes no longer than asking.
	leastKept api.Tokens = 256
)

// asksFor reports whether a granted wake has to wait because the autoscaler is asked for the first sleeper. That one
// kept much more of the conversation than others and has no grant: the autoscaler grants one sleeper per function.
// The caller holds mu.
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

// underway is the wake of an instance that this activator began and that has not ended. A function has at most one;
// package wake only knows what a revocation must wait for. The zero value: none.
type underway struct {
	instance api.InstanceID
	began    time.Time
	takes    time.Duration // expected duration; 0: unknown
}

// wokenByOthers reports whether i reports that it is being woken: by the autoscaler, if not by us.
func wokenByOthers(i *route.Instance) bool {
	st := i.Status()
	return st.State == api.Starting && st.Stage == api.StepWaking
}

// woke records the end of a call to wake an instance; trace is nil if the call is not traced.
func (f *Function) woke(id api.InstanceID, st api.InstanceStatus, err error, trace *Wake) {
	f.Metrics.Woke("direct", err)
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
		f.meter.sendNow() // the autoscaler has to act now
	}
}

// update changes f's instances under mu, and then acts on the change.
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

// learn applies a report. The caller holds mu.
func (f *Function) learn(st api.InstanceStatus, now time.Time) {
	if !f.set.Observe(st, now) {
		return
	}
	f.costs.rises(st.Instance, st.State == api.Starting, now)
	if st.State == api.Draining { // the function that needs its memory does not wait for them
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

// Waker wakes an instance. Wake blocks until the instance has generated a token. Package api/control has an
// implementation.
type Waker interface {
	Wake(ctx context.Context, at api.Endpoint, under api.Grant) (api.InstanceStatus, error)
}

// Backoff after a failed wake: the first pause, doubled each time. After the last attempt the grant is dropped, and
// the autoscaler sees demand without a wake.
const (
	pauseFirst = 100 * time.Millisecond
	attempts   = 3
)

// ErrClosed is the cause of wakes that [grants.close] cancels.
var ErrClosed = errors.New("the activator shuts down")

// grants wakes instances under grants of the autoscaler: at most one call per instance at a time, however many requests
// wait for it. It starts no wake without a grant that is valid at that moment. The life of a wake:
//
//  1. The autoscaler gives a standing grant ([grants.grant]) while an instance sleeps.
//  2. The first call of [grants.begin] starts the wake and returns; further ones return wakeUnderWay.
//  3. The instance answers once it has generated a token, and the callback gets its status. The grant stays: the
//     instance may fall asleep and be woken again.
//  4. The autoscaler revokes the grant ([grants.revoke]). From that moment no wake can begin, and revoke returns when
//     the one in progress has ended. No grant with this epoch or a lower one is accepted afterwards, however late it
//     arrives.
//
// It is safe for concurrent use, and starts one goroutine per wake; [grants.close] waits for them.
type grants struct {
	waker  Waker
	ctx    context.Context
	cancel context.CancelCauseFunc
	wakes  sync.WaitGroup

	mu        sync.Mutex // guards all below
	closed    bool
	instances map[api.InstanceID]*permit
}

// permit is the state of one instance.
type permit struct {
	held   Permission
	flight *flight   // nil: no wake in progress
	failed int       // failures in a row under this grant
	pause  time.Time // no wake begins before this time
}

// flight is one wake in progress.
type flight struct {
	epoch uint64
	// done is closed by the wake's goroutine when the call has returned.
	done chan struct{}
}

// newGrants returns grants that wake with w.
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

// grant applies a grant. It returns false for an outdated one.
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

// revoke revokes every grant of g's instance up to g's epoch. It blocks until no wake under them is in progress or
// can begin, and returns nil. If ctx ends first the grants are revoked too, but a wake may still be in progress.
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

// granted reports whether a wake of id may begin now, under a grant.
func (o *grants) granted(id api.InstanceID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.instances[id]
	return p != nil && p.held.Grant.Valid(time.Now())
}

// forget removes the state of an instance that is gone.
func (o *grants) forget(id api.InstanceID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.instances, id)
}

// outcome is the result of [grants.begin].
type outcome int

// The outcomes.
const (
	noGrant      outcome = iota // no valid grant
	wakePaused                  // a wake failed a moment ago
	wakeUnderWay                // a wake is in progress
	wakeBegun                   // a wake begins now
)

// begin starts a wake of id at e, bounded by limit and in a span below trace, unless one is in progress or no valid
// grant allows it. It does not block. finished is called from another goroutine when the wake that this call began
// has ended, and must end its span. If the outcome is wakePaused, retry is when to ask again.
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
	case f.epoch != p.held.Grant.Epoch: // revoked or replaced: the result does not matter
	case errors.As(err, &refused) && refused.Code == api.CodeStaleEpoch:
		p.held.Grant = api.Grant{} // the autoscaler has decided since; its message is on the way
	default:
		p.pause = time.Now().Add(pauseFirst << p.failed)
		if p.failed++; p.failed >= attempts {
			p.held.Grant = api.Grant{}
		}
	}
}

// close cancels the wakes in progress, prevents others and waits for their ends.
func (o *grants) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.cancel(ErrClosed)
	o.wakes.Wait()
}
