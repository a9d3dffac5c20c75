// Package activator is the front door and the data path. Clients send it requests in the OpenAI API, or in Ollama's
// own API if a function runs on Ollama. It forwards them to the instances of functions. If all instances of a
// function are asleep, it wakes one first: a request never fails because a model is asleep.
//
// The activator does not decide about memory: it wakes an instance only under a grant, and otherwise reports its
// demand to the autoscaler. It does not change bodies, but for the model of a fallback.
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
//  3. [call.permit] checks the client's key.
//  4. Package queue gives the request a slot of an instance: at once, or after a wait in which it wakes one. The first
//     waiting request is sent ahead, right behind the call that wakes the instance. A streaming client that waits
//     longer than [Config.CommentAfter] gets server-sent comments that report the stage.
//  5. The request is sent to the instance (package forward). If that refuses, or fails before the first byte, the
//     request goes to another instance or back to its place in the queue: its client has seen nothing yet.
//  6. After the first byte the answer is passed on as it arrives. If it is cut, it ends with an error that the
//     client can tell from a complete answer. Then the slot goes to the next request.
//
// File call.go has these steps from top to bottom. A request is a call, which has four parts: the client's request
// (request), what it wants of the queue ([queue.Want]), the attempts at instances (delivery), and the client's answer
// (reply).
//
// Goroutines: each request runs on its own, from the router to the last byte, and so does each
// wake. Demand and timers run on timer goroutines. The methods of [Activator] are
// safe for concurrent use.
package activator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
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
	"github.com/rouse-dev/rouse/activator/queue"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/lazyregexp"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// Sight limits which instances may see which clients' requests.
type Sight = queue.Sight

// Deps are the activator's dependencies. Emitter, Waker and Transport are required.
type Deps struct {
	// Emitter sends the demand events. Emit must not call the activator.
	Emitter api.Emitter
	// Waker wakes instances; a *control.Client is one.
	Waker queue.Waker
	// Transport reaches instances, as [api.NewTransport] does.
	Transport http.RoundTripper
	// Dial reaches instances for requests that stream both ways; nil: as [api.NewTransport] does.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
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

// queues gives the activator the methods by which the autoscaler and the instances reach its functions.
type queues = queue.Queues

// Activator holds and routes requests and wakes instances. See the package comment.
type Activator struct {
	*queues
	cfg      Config
	deps     Deps
	log      *slog.Logger
	metrics  *metrics.Metrics
	unrouted *metrics.Function // for requests that found no function
	door     *inbound.Door
	client   *forward.Client
	streams  streamTransports // for requests that are forwarded while they arrive
	handler  http.Handler
	picks    picks

	names    atomic.Pointer[directory] // how requests find functions; replaced as a whole
	calls    atomic.Uint64             // the number of calls so far
	inFlight flight
	tracer   *waketrace.Tracer
	spent    *usageCounter

	mu      sync.Mutex // guards the fields below and orders changes of names
	cluster cluster
	lost    []string // lost names that were already logged
}

// cluster holds what the activator knows of services, by name, and of namespaces.
type cluster struct {
	traffic    map[api.FunctionName][]Share
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
		client: forward.NewClient(deps.Transport), streams: newStreamTransports(deps.Dial),
		tracer:   waketrace.NewTracer(deps.Traces),
		spent:    newUsageCounter(cfg.Name, deps.Emitter),
		inFlight: flight{idle: make(chan struct{})},
		cluster:  cluster{traffic: make(map[api.FunctionName][]Share), created: make(map[api.FunctionName]time.Time), namespaces: make(map[string]bool)},
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
	a.queues = queue.New(queue.Config{Name: a.cfg.Name, Emitter: deps.Emitter, Waker: deps.Waker, Metrics: m, Tracer: a.tracer, Renamed: a.index, Waits: deps.Waits, Sight: deps.Sight, Others: deps.Others, Log: a.log})
	a.names.Store(newDirectory(nil, &a.cluster, a.cfg.Domain))
	a.handler = a.router()
	return a, nil
}

// Handler returns the handler for clients' requests.
func (a *Activator) Handler() http.Handler { return a.handler }

// Run reports wakes and clients' use until ctx ends. Then it ends the wakes in progress and sends each function's
// last demand. Call [Activator.Drain] before ctx ends to lose no request.
func (a *Activator) Run(ctx context.Context) error {
	var told sync.WaitGroup
	told.Go(func() {
		tell := time.NewTicker(usageEvery)
		defer tell.Stop()
		for ctx.Err() == nil {
			select {
			case now := <-tell.C:
				a.TellUse(now)
			case <-ctx.Done():
			}
		}
	})
	a.queues.Run(ctx)
	told.Wait()
	a.TellUse(time.Now())
	return nil
}

// TellUse reports to the autoscaler what clients have used until now. [Activator.Run] does so every few seconds.
func (a *Activator) TellUse(now time.Time) {
	a.queues.Charge()
	a.spent.Tell(now)
}

// Declared reports whether a function is declared.
func (a *Activator) Declared(name api.FunctionName) bool { return a.names.Load().byName[name] != nil }

// index rebuilds the directory from the declared functions.
func (a *Activator) index() {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := slices.DeleteFunc(a.All(), func(f *queue.Function) bool { return !f.Declared() })
	names := newDirectory(list, &a.cluster, a.cfg.Domain)
	for _, f := range list {
		f.SetGroup(names.groups[f])
	}
	a.names.Store(names)
	lost := make([]string, len(names.lost))
	for i, l := range names.lost {
		if lost[i] = l.String(); !slices.Contains(a.lost, lost[i]) {
			a.log.Warn("a model is not found by one of its names", "because", lost[i])
		}
	}
	a.lost = lost
}

// Config is the activator's configuration. The zero value is usable once it has a Name.
type Config struct {
	// Name is the sender's name in events, unique among activators.
	Name string
	// Bodies bounds request bodies, each and in total: those that arrive, wait or run.
	Bodies inbound.Config
	// CommentAfter is how long a streaming client is held before it gets its header and the first comment. Default 1 s.
	CommentAfter time.Duration
	// CommentEvery is the time between further comments. Default 5 s.
	CommentEvery time.Duration
	// WriteTimeout is how long a client may leave an answer unread before its request is ended. Default 1 min.
	WriteTimeout time.Duration
	// Domain is the suffix of functions' own hosts, NAME.NAMESPACE.Domain. Default "localhost";
	// [NoDomain]: functions have no own hosts, and every host is the front door's.
	Domain string
	// Stored tells clients how a response can be stored. The activator itself stores none: the server in front that
	// does removes the fields that ask for it. Empty: responses can't be stored.
	Stored string
	// Version is the response body of /version.
	Version string
	// PrivateMetrics keeps /metrics off the front door: the caller serves [Deps.Registry] elsewhere.
	PrivateMetrics bool
}

// NoDomain is the [Config.Domain] of an activator whose functions have no own hosts.
const NoDomain = "-"

func (c Config) withDefaults() Config {
	c.Bodies = c.Bodies.WithDefaults()
	c.CommentAfter = cmp.Or(c.CommentAfter, time.Second)
	c.CommentEvery = cmp.Or(c.CommentEvery, 5*time.Second)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, time.Minute)
	c.Domain = cmp.Or(c.Domain, "localhost")
	return c
}

var domain = lazyregexp.New(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

// Validate returns an error for the first invalid field, with the valid values. Zero fields take their defaults.
func (c Config) Validate() error {
	c = c.withDefaults()
	if err := c.Bodies.Validate(); err != nil {
		return fmt.Errorf("activator: %w", err)
	}
	switch {
	case c.Name == "":
		return fmt.Errorf("activator: the name is empty: set one that no other activator has")
	case c.CommentAfter < 0 || c.CommentEvery <= 0:
		return fmt.Errorf("activator: comments after %s, then every %s: want times above 0", c.CommentAfter, c.CommentEvery)
	case c.WriteTimeout < 0:
		return fmt.Errorf("activator: a client may leave an answer unread for %s: want a time above 0", c.WriteTimeout)
	case c.Domain != NoDomain && !domain().MatchString(c.Domain):
		return fmt.Errorf("activator: domain %q: want lower-case labels separated by dots, such as localhost or example.com", c.Domain)
	}
	return nil
}
