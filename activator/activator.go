// Package activator is the front door and the data path. It forwards requests in the API of OpenAI or Ollama to the
// instances of functions, and wakes one, under a grant of the autoscaler, if all are asleep. It decides nothing about
// memory, and changes no body but for the model of a fallback.
//
//  1. The router ([Activator.Handler]) separates the front door, where the field "model" names the function, from a
//     function's own host.
//  2. Package peer identifies the client. The body is read whole: the request can wait and be sent again. Package
//     parse extracts fields.
//  3. [call.permit] checks the client's key.
//  4. Package queue gives the request a slot. The first waiting request is sent right behind the call that wakes
//     the instance; a streaming client gets comments.
//  5. Package forward sends the request. If it fails before the first byte, it goes to another instance or back to
//     the queue.
//  6. The answer is passed on. If it is cut, it goes on elsewhere or ends with an error.
//
// File call.go has these steps. The methods of [Activator] are safe for concurrent use.
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
	// Emit must not call the activator.
	Emitter api.Emitter
	Waker   queue.Waker
	// Transport is as [api.NewTransport]'s.
	Transport http.RoundTripper
	// Dial serves requests that stream both ways; nil: the usual one.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Nil: clients are identified by address, and none is trusted.
	Peers *peer.Addresses
	// Nil: all clients may send requests.
	Keys *keys.Store
	// Page is for browsers at the front door.
	Page http.Handler
	// Lists reports whether a request may see names of functions and metrics; nil: all may.
	Lists func(*http.Request) bool
	// Waits returns what keeps a function from waking; "": nothing, or unknown. It must not block for long.
	Waits func(api.FunctionName) string
	// LastError returns why a start failed, to a caller who may know.
	LastError func(*http.Request, api.FunctionName) string
	Sight     Sight
	Traces    *waketrace.Exporter
	Others    interface{ Served(u control.ClientUse) }
	Access    *slog.Logger
	Logger    *slog.Logger
	// Nil: a new one.
	Registry *prometheus.Registry
}

type queues = queue.Queues

// Activator holds and routes requests and wakes instances.
type Activator struct {
	*queues
	cfg      Config
	deps     Deps
	log      *slog.Logger
	metrics  *metrics.Metrics
	unrouted *metrics.Function // found no function
	door     *inbound.Door
	client   *forward.Client
	streams  streamTransports
	handler  http.Handler
	picks    picks

	names    atomic.Pointer[directory] // replaced as a whole
	calls    atomic.Uint64
	inFlight flight
	tracer   *waketrace.Tracer
	spent    *usageCounter

	mu      sync.Mutex // guards the fields below and orders changes of names
	cluster cluster
	lost    []string // already logged
}

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

// Handler handles clients' requests.
func (a *Activator) Handler() http.Handler { return a.handler }

// Run reports wakes and use until ctx ends, then ends wakes and sends last demands. To lose no request, call
// [Activator.Drain] before.
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

// TellUse reports what clients have used until now.
func (a *Activator) TellUse(now time.Time) {
	a.queues.Charge()
	a.spent.Tell(now)
}

// Declared reports whether a function is declared.
func (a *Activator) Declared(name api.FunctionName) bool { return a.names.Load().byName[name] != nil }

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

// Config is the activator's configuration. Only Name is required.
type Config struct {
	// Unique among activators.
	Name   string
	Bodies inbound.Config
	// CommentAfter is the wait of a streaming client for its first comment. Default 1 s.
	CommentAfter time.Duration
	// Default 5 s.
	CommentEvery time.Duration
	// WriteTimeout bounds how long a client may leave an answer unread. Default 1 min.
	WriteTimeout time.Duration
	// Domain is the suffix of functions' own hosts, NAME.NAMESPACE.Domain. Default "localhost".
	Domain string
	// Stored tells clients how a response can be stored by a server in front; empty: not at all.
	Stored  string
	Version string
	// PrivateMetrics keeps /metrics off the front door.
	PrivateMetrics bool
}

// NoDomain is a [Config.Domain] without own hosts.
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

// Validate returns an error for the first invalid field. Zero fields take their defaults.
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
