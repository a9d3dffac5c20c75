// Package queue holds requests until an instance can serve them: it keeps each function's instances, slots, waiting
// requests, wake and demand. It neither reads requests nor sends them.
//
//  1. The owner of a request describes it in a [Want] and calls [Function.Acquire], which returns a free slot
//     (package route chooses the instance).
//  2. Otherwise the request waits ([waitQueue]) or is refused. If no instance is awake and a grant allows it, one
//     wake begins.
//  3. Whatever may free a slot or wake an instance dispatches.
//  4. The owner sends the request and calls [Slot.Done], or [Slot.GiveBack] and Acquire again, at its old place.
//  5. [Function.Leave] ends the request's stay.
//
// All methods are safe for concurrent use; a Want and a Slot belong to one goroutine at a time. Only Acquire and
// [Queues.Revoke] block.
package queue

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/activator/metrics"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// mostRemoved bounds the names of removed functions.
const mostRemoved = 4096

// Config is shared by all functions. Waits, Sight and Others may be nil.
type Config struct {
	Name    string
	Emitter api.Emitter
	Waker   Waker
	Metrics *metrics.Metrics
	Tracer  *waketrace.Tracer
	// Renamed is called without locks when functions or adapters' names have changed.
	Renamed func()
	// Waits returns what keeps a function from waking; "": nothing, or unknown.
	Waits func(api.FunctionName) string
	Sight Sight
	// Others is told what requests have cost here.
	Others interface{ Served(u control.ClientUse) }
	Log    *slog.Logger
}

// Sight decides which instances may see which clients' requests; nil: all may. A function is locked meanwhile: it
// must not block or call the activator. Clients are as in [peer.Peer].
type Sight interface {
	// A nil function: each may see all.
	Sees(f api.FunctionName) func(client string, i api.InstanceID) bool
	// Bars returns why no instance may ever see a client's requests; nil: one may.
	Bars(f api.FunctionName, client string) *api.Error
}

// Queues holds the functions of one activator.
type Queues struct {
	cfg    Config
	grants *grants
	woken  chan *Wake // for Run; dropped when full

	mu        sync.Mutex // guards the fields below; not locked while a function is
	functions map[api.FunctionName]*Function
	removed   map[api.FunctionName]bool // at most mostRemoved
}

// New returns Queues without functions.
func New(cfg Config) *Queues {
	return &Queues{cfg: cfg, grants: newGrants(cfg.Waker), woken: make(chan *Wake, maxWoken), functions: make(map[api.FunctionName]*Function), removed: make(map[api.FunctionName]bool)}
}

// Run reports wakes until ctx ends. Then it ends the wakes in progress and sends each function's last demand.
func (q *Queues) Run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case t := <-q.woken:
			q.report(t)
		case <-ctx.Done():
		}
	}
	q.grants.close()
	for _, f := range q.All() {
		f.close()
	}
}

// begin returns a function, which it begins if reports, grants or failures come before the declaration. One that was
// removed begins with its declaration only: until then it returns nil.
func (q *Queues) begin(name api.FunctionName, declared bool) *Function {
	q.mu.Lock()
	defer q.mu.Unlock()
	if declared {
		delete(q.removed, name)
	}
	f := q.functions[name]
	if f == nil && !q.removed[name] {
		f = newFunction(q, name)
		q.functions[name] = f
	}
	return f
}

// known returns nil for an unknown function.
func (q *Queues) known(name api.FunctionName) *Function {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.functions[name]
}

// locked calls do with a known function, whose mutex it holds.
func (q *Queues) locked(name api.FunctionName, do func(*Function)) {
	if f := q.known(name); f != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		do(f)
	}
}

// All returns all functions, declared or not, in no order.
func (q *Queues) All() []*Function {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := make([]*Function, 0, len(q.functions))
	for _, f := range q.functions {
		all = append(all, f)
	}
	return all
}

// PutFunction declares or changes a function. Waiting requests keep waiting, under the new limits.
func (q *Queues) PutFunction(spec api.Function) {
	kind := spec.Runtime.Kind
	spec = spec.WithDefaults()
	if spec.Service != "" {
		spec.Runtime.Kind = kind // for a revision without a kind, the image may decide
	}
	f := q.begin(spec.Name, true)
	f.mu.Lock()
	for _, old := range f.Spec().Runtime.Adapters {
		if !slices.ContainsFunc(spec.Runtime.Adapters, func(a api.Adapter) bool { return a.Name == old.Name }) {
			f.seen = slices.DeleteFunc(f.seen, func(n api.ModelName) bool { return n == old.Name })
		}
	}
	f.spec.Store(&spec)
	f.declared = true
	f.failed = nil
	f.queue.Limit(spec.Hold)
	f.set.Slots(spec.Concurrency)
	f.mu.Unlock()
	f.dispatch()
	q.cfg.Renamed()
}

// RemoveFunction refuses waiting requests; running ones finish.
func (q *Queues) RemoveFunction(name api.FunctionName) {
	f := q.known(name)
	if f == nil {
		return
	}
	f.mu.Lock()
	f.declared = false
	f.mu.Unlock()
	q.mu.Lock()
	delete(q.functions, name)
	if len(q.removed) == mostRemoved {
		clear(q.removed) // the oldest have no instance any more
	}
	q.removed[name] = true
	q.mu.Unlock()
	q.cfg.Renamed()
	f.RefuseWaiting(api.Errorf(http.StatusNotFound, api.CodeModelNotFound, "the function %s was removed while the request waited", name))
	f.close()
	f.Metrics.Remove()
}

// Expect sets how long a start and a wake took before this process; 0: unknown.
func (q *Queues) Expect(name api.FunctionName, load, wake time.Duration) {
	q.locked(name, func(f *Function) {
		f.loadTime, f.wakeTime = cmp.Or(f.loadTime, load), cmp.Or(f.wakeTime, wake)
	})
}

// Retire stops sending requests to the present instances of a function, whatever they report.
func (q *Queues) Retire(name api.FunctionName) {
	q.locked(name, func(f *Function) { f.set.Retire() })
}

// Brings sets the adapters built into a runtime until an instance reports.
func (q *Queues) Brings(name api.FunctionName, adapters []api.ModelName) {
	q.locked(name, func(f *Function) {
		if len(f.seen) == 0 {
			f.seen = adapters
		}
	})
	q.cfg.Renamed()
}

// ObserveInstance applies an instance's report, unless it is outdated or the instance's function was removed.
func (q *Queues) ObserveInstance(st api.InstanceStatus) {
	if f := q.begin(st.Function, false); f != nil {
		f.update(func(now time.Time) { f.learn(st, now) })
		if st.Ready() {
			f.gather()
		}
	}
	if st.State == api.Gone {
		q.grants.forget(st.Instance)
	}
}

// Grant stores a grant. If requests wait, the wake begins at once.
func (q *Queues) Grant(g api.Grant) {
	taken, f := q.grants.grant(g), q.begin(g.Function, false)
	if !taken || f == nil {
		return
	}
	f.mu.Lock()
	f.beginWake(time.Now())
	waking := f.waking.instance != ""
	f.mu.Unlock()
	if waking {
		f.meter.changed()
	}
}

// Revoke revokes the grants of g's instance up to g's epoch, and blocks until no wake under them is in progress. If
// ctx ends first it returns an error.
func (q *Queues) Revoke(ctx context.Context, g api.Grant) error { return q.grants.revoke(ctx, g) }

// Fail records that a function can't start: requests are refused until an instance is awake or err's RetryAfter, if
// any, has passed. A nil err ends this, and so does a declaration.
func (q *Queues) Fail(name api.FunctionName, err *api.Error) {
	f := q.begin(name, false)
	if f == nil {
		return
	}
	f.mu.Lock()
	f.failed, f.failedUntil = err, time.Time{}
	if err != nil && err.RetryAfter > 0 {
		f.failedUntil = time.Now().Add(err.RetryAfter)
	}
	f.mu.Unlock()
	if err != nil {
		f.RefuseWaiting(err)
	}
}

// Report sends a function's demand now: an operator's command is judged by it.
func (q *Queues) Report(name api.FunctionName) {
	if f := q.known(name); f != nil {
		f.meter.sendNow()
	}
}

// ServedElsewhere charges a client's turns here for requests at another activator.
func (q *Queues) ServedElsewhere(u control.ClientUse) {
	q.locked(u.Function, func(f *Function) {
		f.queue.order.Elsewhere(clientOf(u.Source, u.Client), u.Priority, u.Cost)
	})
}
