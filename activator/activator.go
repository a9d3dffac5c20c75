// Package activator is the front door and the data path. Clients send it requests in the OpenAI API, or in Ollama's
// own API if a function runs on Ollama. It forwards them to the instances of functions. If all instances of a
// function are asleep, it wakes one first: a request never fails because a model is asleep.
//
// The activator does not decide about memory: it wakes an instance only under a grant, and otherwise reports its
// demand to the autoscaler (package demand). It does not change bodies.
//
// The life of one request:
//
//  1. The router ([Activator.Handler]) separates the front door, where the field "model" names the function or one of
//     its adapters, from a function's own host, where every path is the function's. A caller that already knows the
//     function calls [Activator.ServeFunction]. In a cluster the name may be a service, whose revisions share its
//     requests ([Activator.PutTraffic]).
//  2. Package peer identifies the client. The body is read whole, within the client's limits (internal/inbound),
//     before anything else: the request can then wait, and be sent again, without its client. Package parse extracts
//     the fields that the activator needs.
//  3. If an instance is awake and has a free slot (package route), the request is sent there.
//  4. Otherwise the request waits in the function's queue (package hold), or is refused at once with a Retry-After.
//     A sleeping instance with a grant is woken (package wake), once, however many requests wait. The first request
//     is sent speculatively, right behind the call that wakes the instance. A streaming client that waits longer
//     than [Config.CommentAfter] gets server-sent comments that report the stage.
//  5. The instance answers (package forward). If it refuses, or fails before the first byte, the request goes to
//     another instance or back to its place in the queue: its client has seen nothing yet.
//  6. After the first byte the answer is passed on as it arrives. If it is cut, it ends with an error that the
//     client can tell from a complete answer.
//  7. The slot goes to the next request in the queue.
//
// A request is a call, which has four parts: the client's request (request), its place in a queue (waiting), the
// attempts at instances (delivery), and the client's answer (reply).
//
// Goroutines: each request runs on its own, from the router to the last byte, and so does each
// wake (package wake). Demand and timers run on timer goroutines. The methods of [Activator] are
// safe for concurrent use.
package activator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/activator/forward"
	"github.com/rouse-dev/rouse/activator/keys"
	"github.com/rouse-dev/rouse/activator/metrics"
	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/activator/spent"
	"github.com/rouse-dev/rouse/activator/wake"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// Deps are the activator's dependencies. Emitter, Waker and Transport are required.
type Deps struct {
	// Emitter sends the demand events. Emit must not call the activator.
	Emitter api.Emitter
	// Waker wakes instances; a *control.Client is one.
	Waker wake.Waker
	// Transport reaches instances, as [api.NewTransport] does.
	Transport http.RoundTripper
	// Peers identifies clients; nil: by their addresses, and none is trusted.
	Peers *peer.Addresses
	// Keys decides which clients may send requests; nil: all may.
	Keys *keys.Store
	// Page is the web page that browsers get at the front door; nil: none.
	Page http.Handler
	// Lists reports whether a request may see the names of functions, and the metrics; nil: all may.
	Lists func(*http.Request) bool
	// Waits returns, for clients, what keeps a function from waking; "" if nothing does or it is unknown. It must not
	// block for long. Nil: always unknown.
	Waits func(api.FunctionName) string
	// LastError returns why a function's last start failed, or "" for a caller who may not administer it. Nil: no one
	// learns it.
	LastError func(*http.Request, api.FunctionName) string
	// Sight limits which instances may see which clients' requests; nil: all may see all.
	Sight Sight
	// Traces exports the spans of wakes; nil: none are exported.
	Traces *waketrace.Exporter
	// Others tells the other activators what clients' requests have cost here; they pass it to
	// [Activator.ServedElsewhere]. Nil: no others.
	Others interface{ Served(u control.ClientUse) }
	// Access logs each request to a model; nil: none.
	Access *slog.Logger
	// Logger is the log; nil: nothing is logged.
	Logger *slog.Logger
	// Registry holds the metrics, which are served at /metrics; nil: a new one.
	Registry *prometheus.Registry
}

// Activator holds and routes requests and wakes instances. See the package comment.
type Activator struct {
	cfg      Config
	deps     Deps
	log      *slog.Logger
	metrics  *metrics.Metrics
	unrouted *metrics.Function // for requests that found no function
	door     *inbound.Door
	client   *forward.Client
	streams  streamTransports // for requests that are forwarded while they arrive
	wakes    *wake.Once
	handler  http.Handler
	picks    picks

	names    atomic.Pointer[directory] // how requests find functions; replaced as a whole
	calls    atomic.Uint64             // the number of calls so far
	inFlight atomic.Int64              // requests between their first line and last byte
	draining atomic.Bool
	tracer   *waketrace.Tracer
	spent    *spent.Counter
	woken    chan *wakeTrace // for Run to report; requests and calls send, and drop the trace if it is full; never closed
	// idle is closed, once, when the activator drains and no request is in flight.
	idle     chan struct{}
	idleOnce sync.Once

	mu        sync.Mutex // guards the fields below and orders changes of names; locked before a function's mu
	functions map[api.FunctionName]*function
	cluster   cluster
	lost      []string // lost names that were already logged
}

// cluster holds what the activator knows of services, by name, and of namespaces.
type cluster struct {
	traffic    map[api.FunctionName][]api.Share
	created    map[api.FunctionName]time.Time
	namespaces map[string]bool
}

// New returns an activator. It starts no goroutine.
func New(cfg Config, deps Deps) (*Activator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Emitter == nil || deps.Waker == nil || deps.Transport == nil {
		return nil, errors.New("activator: Emitter, Waker and Transport must be given")
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if deps.Peers == nil {
		deps.Peers = &peer.Addresses{}
	}
	if deps.Registry == nil {
		deps.Registry = prometheus.NewRegistry()
	}
	a := &Activator{
		cfg: cfg.withDefaults(), deps: deps, log: deps.Logger,
		client: forward.NewClient(deps.Transport), streams: newStreamTransports(), wakes: wake.New(deps.Waker),
		tracer:    waketrace.NewTracer(deps.Traces),
		spent:     spent.New(cfg.Name, deps.Emitter),
		functions: make(map[api.FunctionName]*function), idle: make(chan struct{}), woken: make(chan *wakeTrace, maxWoken),
		cluster: cluster{traffic: make(map[api.FunctionName][]api.Share), created: make(map[api.FunctionName]time.Time), namespaces: make(map[string]bool)},
	}
	a.door = inbound.New(a.cfg.Bodies)
	var dropped func() int64
	if d, ok := deps.Emitter.(interface{ Dropped() int64 }); ok {
		dropped = d.Dropped
	}
	m, err := metrics.New(deps.Registry, dropped)
	if err != nil {
		return nil, fmt.Errorf("activator: register metrics: %w", err)
	}
	a.metrics, a.unrouted = m, m.Of("")
	a.names.Store(newDirectory(nil, &a.cluster, a.cfg.Domain))
	a.handler = a.router()
	return a, nil
}

// Handler returns the handler for clients' requests.
func (a *Activator) Handler() http.Handler { return a.handler }

// Run reports wakes and clients' use until ctx ends. Then it ends the wakes in progress and sends each function's
// last demand. Call [Activator.Drain] before ctx ends to lose no request.
func (a *Activator) Run(ctx context.Context) error {
	tell := time.NewTicker(spent.Every)
	defer tell.Stop()
	for ctx.Err() == nil {
		select {
		case t := <-a.woken:
			a.reportWake(t)
		case now := <-tell.C:
			a.spent.Tell(now)
		case <-ctx.Done():
		}
	}
	a.wakes.Close()
	a.spent.Tell(time.Now())
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.functions {
		f.close()
	}
	return nil
}

// function returns the record of a function and creates it if needed: reports and grants may arrive before the
// declaration.
func (a *Activator) function(name api.FunctionName) *function {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.functions[name]
	if f == nil {
		f = newFunction(a, name)
		a.functions[name] = f
	}
	return f
}

// known returns the record of a function, or nil.
func (a *Activator) known(name api.FunctionName) *function {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.functions[name]
}

// PutFunction declares a function, or changes it. Waiting requests keep waiting, under the new limits.
func (a *Activator) PutFunction(spec api.Function) {
	kind := spec.Runtime.Kind
	spec = spec.WithDefaults()
	if spec.Service != "" {
		spec.Runtime.Kind = kind // for a revision without a kind, the image may decide
	}
	f := a.function(spec.Name)
	f.mu.Lock()
	for _, old := range f.spec.Runtime.Adapters {
		if !slices.ContainsFunc(spec.Runtime.Adapters, func(a api.Adapter) bool { return a.Name == old.Name }) {
			f.seen = slices.DeleteFunc(f.seen, func(n api.ModelName) bool { return n == old.Name })
		}
	}
	f.spec, f.declared = spec, true
	f.failed = nil
	f.queue.Limit(spec.Hold)
	f.set.Slots(spec.Concurrency)
	f.mu.Unlock()
	f.dispatch()
	a.index()
}

// Expect sets how long a start and a wake of a function took before this process began; 0: unknown. Waiting clients
// are told these times until this process has measured its own.
func (a *Activator) Expect(name api.FunctionName, load, wake time.Duration) {
	f := a.function(name)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.loadTime, f.wakeTime = cmp.Or(f.loadTime, load), cmp.Or(f.wakeTime, wake)
}

// Retire stops sending requests to the present instances of a function, whatever they report: the function is about
// to be redeclared, and new instances replace them. It does nothing if the function is not declared.
func (a *Activator) Retire(name api.FunctionName) {
	f := a.known(name)
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.set.Retire()
}

// Brings sets the adapters that are built into a function's runtime, until an instance reports its own. Their names
// become models of the function. It does nothing if the function is not declared.
func (a *Activator) Brings(name api.FunctionName, adapters []api.ModelName) {
	f := a.known(name)
	if f == nil {
		return
	}
	f.mu.Lock()
	if len(f.seen) == 0 {
		f.seen = adapters
	}
	f.mu.Unlock()
	a.index()
}

// RemoveFunction removes a function. Requests that wait for it are refused; running ones finish.
func (a *Activator) RemoveFunction(name api.FunctionName) {
	a.mu.Lock()
	f := a.functions[name]
	delete(a.functions, name)
	a.mu.Unlock()
	if f == nil {
		return
	}
	f.mu.Lock()
	f.declared = false
	f.mu.Unlock()
	a.index()
	f.refuseHeld(api.Errorf(http.StatusNotFound, api.CodeModelNotFound, "the function %s was removed while the request waited", name))
	f.close()
	f.metrics.Remove()
}

// Declared reports whether a function is declared.
func (a *Activator) Declared(name api.FunctionName) bool { return a.names.Load().byName[name] != nil }

// index rebuilds the directory from the declared functions.
func (a *Activator) index() {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []*function
	for _, f := range a.functions {
		f.mu.Lock()
		if f.declared {
			list = append(list, f)
		}
		f.mu.Unlock()
	}
	names := newDirectory(list, &a.cluster, a.cfg.Domain)
	a.names.Store(names)
	lost := make([]string, len(names.lost))
	for i, l := range names.lost {
		if lost[i] = l.String(); !slices.Contains(a.lost, lost[i]) {
			a.log.Warn("a model is not found by one of its names", "because", lost[i])
		}
	}
	a.lost = lost
}

// ObserveInstance applies an instance's report. Outdated reports are ignored.
func (a *Activator) ObserveInstance(st api.InstanceStatus) {
	a.function(st.Function).observe(st)
	if st.State == api.Gone {
		a.wakes.Forget(st.Instance)
	}
}

// Grant stores a grant. If requests wait, the wake begins at once.
func (a *Activator) Grant(g api.Grant) {
	if !a.wakes.Grant(g) {
		return
	}
	f := a.function(g.Function)
	f.mu.Lock()
	f.beginWake(time.Now())
	waking := f.waking.instance != ""
	f.mu.Unlock()
	if waking {
		f.meter.Changed()
	}
}

// Revoke revokes the grants of g's instance up to g's epoch. It blocks until no wake under them is in progress or can
// begin, and then returns nil.
func (a *Activator) Revoke(ctx context.Context, g api.Grant) error { return a.wakes.Revoke(ctx, g) }

// Fail records that a function can't start now. Waiting requests are refused with err. New ones are refused too,
// until an instance is awake or err's RetryAfter, if it has one, has passed. A nil err ends this.
func (a *Activator) Fail(name api.FunctionName, err *api.Error) {
	f := a.function(name)
	f.mu.Lock()
	f.failed, f.failedUntil = err, time.Time{}
	if err != nil && err.RetryAfter > 0 {
		f.failedUntil = time.Now().Add(err.RetryAfter)
	}
	f.mu.Unlock()
	if err != nil {
		f.refuseHeld(err)
	}
}

// close stops f's timers and sends its last demand.
func (f *function) close() {
	f.mu.Lock()
	f.retry.Stop()
	f.mu.Unlock()
	f.meter.Close()
}
