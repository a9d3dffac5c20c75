package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/api"
)

// Config configures an agent. Fronts, Cluster, Agent and TLS are required.
type Config struct {
	// Fronts are host:port. Front doors may name further ones.
	Fronts []string
	// Cluster is the name that the front doors declare.
	Cluster, Agent string
	Version        string
	TLS            *tls.Config
	// Token is called at each dial; may be nil.
	Token  func() (string, error)
	Accept Accept
	// Find, if not nil, is polled for front doors; those that others name are then ignored.
	Find func(ctx context.Context) ([]string, error)
	// Self is the name of the front door in this process, which is not served.
	Self string
}

const maxFronts = 4

// Validate returns an error for the first invalid field.
func (c Config) Validate() error {
	switch {
	case len(c.Fronts) == 0 && c.Find == nil:
		return errors.New("agent: no front door is named: give the address of one")
	case c.Cluster == "" || c.Agent == "":
		return errors.New("agent: the cluster or the agent has no name")
	case c.TLS == nil:
		return errors.New("agent: TLS must be given: an agent trusts no front door without a certificate")
	}
	if err := c.Accept.Validate(); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	return nil
}

// Deps connect an agent to its cluster. All but Wakes, Applier, Usage, Tell and Logger are required.
type Deps struct {
	// Serve answers a request for a function, or refuses it rather than wait.
	Serve func(w http.ResponseWriter, r *http.Request, name api.FunctionName)
	// Stats returns the activator's statistics of a function.
	Functions func() []api.Function
	Stats     func(name api.FunctionName) (api.Activity, bool)
	// Wakes returns the records of a function's last wakes; may be nil.
	Wakes func(name api.FunctionName) []api.WakeTrace
	// Emitter receives the front doors' demand.
	Emitter api.Emitter
	// Applier creates functions for front doors; may be nil.
	Applier Applier
	// Usage exchanges clients' use with a front door ([control.PathUsage]); may be nil.
	Usage http.HandlerFunc
	// Tell receives a line of text when a front door is served, is ending or has ended; may be nil.
	Tell   func(line string)
	Logger *slog.Logger
}

// Agent is safe for concurrent use.
type Agent struct {
	cfg  Config
	deps Deps
	log  *slog.Logger
	run  string // tells apart processes of the same name

	mu       sync.Mutex // guards the fields below
	fronts   map[string]*front
	servers  map[*protocol.LinkServer]bool // also of ended sessions that still answer
	attempts map[string]*attempt           // by call
	doubles  uint64
	begun    uint64
	leaving  bool
	found    chan string
	running  sync.WaitGroup

	marking sync.Mutex        // guards live, and dirty of its sessions; no other lock is taken under it
	live    map[*session]bool // sessions whose control stream has not ended
}

// New starts no goroutine.
func New(cfg Config, deps Deps) (*Agent, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Serve == nil || deps.Functions == nil || deps.Stats == nil || deps.Emitter == nil {
		return nil, errors.New("agent: Serve, Functions, Stats and Emitter must be given")
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if deps.Tell == nil {
		deps.Tell = func(string) {}
	}
	cfg.Accept.Max = cmp.Or(cfg.Accept.Max, 16)
	return &Agent{cfg: cfg, deps: deps, log: deps.Logger, run: rand.Text(), fronts: map[string]*front{}, servers: map[*protocol.LinkServer]bool{}, attempts: map[string]*attempt{},
		found: make(chan string, maxFronts), live: map[*session]bool{}}, nil
}

// Run keeps sessions with the front doors until ctx ends, and then gives running requests the time drain to finish.
func (a *Agent) Run(ctx context.Context, drain time.Duration) error {
	parts, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	for _, at := range a.cfg.Fronts {
		a.add(parts, at, false)
	}
	if a.cfg.Find != nil {
		a.running.Go(func() { a.followFind(parts) })
	}
	for ctx.Err() == nil {
		select {
		case at := <-a.found:
			a.add(parts, at, false)
		case <-ctx.Done():
		}
	}
	a.leave(drain)
	stop()
	a.running.Wait()
	return nil
}

func (a *Agent) add(ctx context.Context, at string, found bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fronts[at] != nil || !found && len(a.fronts) >= max(maxFronts, len(a.cfg.Fronts)) {
		return
	}
	ctx, stop := context.WithCancel(ctx)
	f := &front{a: a, at: at, found: found, stop: stop, demand: map[api.FunctionName]api.Demand{}, served: map[api.FunctionName]int{}, last: map[api.FunctionName]uint64{}}
	f.expiry = time.AfterFunc(protocol.Lease, f.expireLease)
	a.fronts[at] = f
	a.running.Go(func() { f.keepSession(ctx) })
}

// Watch takes the events of the cluster's own activator and instances.
func (a *Agent) Watch(e api.Event) {
	switch e.Type {
	case api.EventDemand, api.EventInstanceState, api.EventFunction, api.EventFunctionGone:
		a.Changed(api.FunctionName(e.Subject))
	}
}

// Changed reports a function to every front door again. It never blocks, and may be called with any lock held.
func (a *Agent) Changed(name api.FunctionName) {
	a.marking.Lock()
	defer a.marking.Unlock()
	for s := range a.live {
		s.dirty[name] = true
		s.wake.Ring()
	}
}

// The caller holds mu.
func (a *Agent) state(f *front, spec api.Function) protocol.Function {
	out := protocol.Function{
		Name: spec.Name, Model: spec.Model, Aliases: spec.Aliases, Kind: spec.Runtime.Kind,
		State: api.Gone, Concurrency: spec.Concurrency, MaxScale: spec.MaxScale,
	}
	if a.deps.Applier != nil && f.session != nil {
		out.Applied = slices.Contains(a.deps.Applier.Owners(spec.Name), f.session.welcome.Owner)
	}
	stats, ok := a.deps.Stats(spec.Name)
	if !ok {
		return out
	}
	out.Adapters = adapters(spec, stats)
	for _, st := range stats.Instances {
		out.About = cmp.Or(out.About, st.Model)
	}
	out.State, out.Expected = protocol.Soonest(stats.Instances, time.Now())
	out.Running, out.Waiting = stats.Running, stats.Waiting
	if stats.Failed != "" && out.State != api.Awake {
		out.Failed = &protocol.Failure{Status: http.StatusServiceUnavailable, Code: api.CodeStartFailed, Message: stats.Failed}
	}
	if !a.leaving {
		served := f.served[spec.Name]
		out.Places = served + a.share(f, spec.Name, max(Free(stats), 0))
		if stats.Running+stats.Waiting > served { // others have requests too
			out.Places = min(out.Places, slots(stats))
			out.Waits = mayWait*slots(stats) - out.Places
		}
	}
	return out
}

func adapters(spec api.Function, stats api.Activity) (names []api.ModelName) {
	for _, a := range spec.Runtime.Adapters {
		names = append(names, a.Name)
	}
	for _, st := range stats.Instances {
		names = append(names, st.Adapters...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// share divides free slots among the front doors with waiting requests, or among all. Each slot goes to the one with the
// fewest, then to the one whose last request began first.
func (a *Agent) share(f *front, name api.FunctionName, free int) int {
	var who []*front
	for _, wants := range []bool{true, false} {
		for _, other := range a.fronts {
			if other.session != nil && (!wants || other.demand[name].Waiting > 0) {
				who = append(who, other)
			}
		}
		if len(who) > 0 {
			break
		}
	}
	if len(who) == 0 {
		return 0
	}
	parts := map[*front]int{}
	for range free {
		parts[slices.MinFunc(who, func(x, y *front) int {
			return cmp.Or(x.served[name]+parts[x]-y.served[name]-parts[y], cmp.Compare(x.last[name], y.last[name]), cmp.Compare(x.at, y.at))
		})]++
	}
	return parts[f]
}
