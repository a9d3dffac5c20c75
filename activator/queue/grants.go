package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

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
