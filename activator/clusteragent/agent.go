package clusteragent

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/activator/clusters/choose"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/exchange"
	"github.com/rouse-dev/rouse/internal/link"
)

// Config is an agent's configuration. Fronts, Cluster, Agent and TLS must be given.
type Config struct {
	// Fronts are the addresses of front doors, host:port. They may name others.
	Fronts []string
	// Cluster is the name that the front doors declare, Agent this process of it.
	Cluster, Agent string
	Version        string
	Labels         map[string]string
	// TLS says whom to trust, and may have a certificate to show.
	TLS *tls.Config
	// Token is read at each dial, so that it may be replaced; nil: none is shown.
	Token func() (string, error)
	// MaxFronts bounds the front doors at once that others name. Default 4.
	MaxFronts int
	// Accept says which functions front doors may have created here. Default: none.
	Accept Accept
	// Find, if not nil, says which front doors there are besides Fronts, and is asked again and again; what others
	// name does not count then.
	Find func(ctx context.Context) ([]string, error)
	// Self is the name of the front door that this process is itself, and so serves not; empty: it is none.
	Self string
	// Dial reaches an address; nil: TCP, through the proxy that the environment names for it.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

func (c Config) withDefaults() Config {
	c.MaxFronts = cmp.Or(c.MaxFronts, 4)
	c.Accept.Max = cmp.Or(c.Accept.Max, 16)
	if c.Dial == nil {
		c.Dial = dialer{}.dial
	}
	return c
}

// Validate reports the first field that is wrong, and what it should be.
func (c Config) Validate() error {
	c = c.withDefaults()
	switch {
	case len(c.Fronts) == 0 && c.Find == nil:
		return errors.New("clusteragent: no front door is named: give the address of one")
	case c.Cluster == "" || c.Agent == "":
		return errors.New("clusteragent: the cluster or the agent has no name")
	case c.TLS == nil:
		return errors.New("clusteragent: TLS must be given: an agent trusts no front door without a certificate")
	case c.MaxFronts < 0:
		return fmt.Errorf("clusteragent: at most %d front doors: want 1 or more", c.MaxFronts)
	}
	for _, at := range c.Fronts {
		if _, _, err := net.SplitHostPort(at); err != nil {
			return fmt.Errorf("clusteragent: the front door %q: want host:port", at)
		}
	}
	if err := c.Accept.Validate(); err != nil {
		return fmt.Errorf("clusteragent: %w", err)
	}
	return nil
}

// Deps are what an agent needs of its cluster. All but Wakes, Applier, Tell and Logger must be given.
type Deps struct {
	// Serve answers a request for a function, or refuses it where it would have to wait.
	Serve func(w http.ResponseWriter, r *http.Request, name api.FunctionName)
	// Functions are those that the cluster serves, Stats what the activator knows of one.
	Functions func() []api.Function
	Stats     func(name api.FunctionName) (api.Activity, bool)
	// Wakes are the records of the last wakes of a function; nil: nobody has them.
	Wakes func(name api.FunctionName) []api.WakeTrace
	// Emitter takes the front doors' demand.
	Emitter api.Emitter
	// Applier creates functions for front doors; nil: nobody does.
	Applier Applier
	// Tell is told in a line for people which front doors are served, are ending and have ended; what is wrong is a warning in the
	// log. nil: nobody is.
	Tell   func(line string)
	Logger *slog.Logger
}

// Agent is one agent. See the package comment.
type Agent struct {
	cfg  Config
	deps Deps
	log  *slog.Logger
	run  string // of this process, so that another one of its name is not taken for it

	mu       sync.Mutex // guards what follows
	fronts   map[string]*front
	servers  map[*link.Server]bool // of all sessions, those that have ended and still answer included
	attempts map[string]*attempt   // by the request's id
	doubles  uint64
	seq      uint64
	leaving  bool
	found    chan string // front doors that others name; one place for each
	running  sync.WaitGroup

	noting sync.Mutex // guards noted; nothing else is taken while it is held
	noted  map[api.FunctionName]bool
	note   chan struct{} // something was noted; one place
}

// New makes an agent. It starts nothing.
func New(cfg Config, deps Deps) (*Agent, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Serve == nil || deps.Functions == nil || deps.Stats == nil || deps.Emitter == nil {
		return nil, errors.New("clusteragent: Serve, Functions, Stats and Emitter must be given")
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if deps.Tell == nil {
		deps.Tell = func(string) {}
	}
	cfg = cfg.withDefaults()
	return &Agent{cfg: cfg, deps: deps, log: deps.Logger, run: rand.Text(), fronts: map[string]*front{}, servers: map[*link.Server]bool{}, attempts: map[string]*attempt{}, found: make(chan string, cfg.MaxFronts),
		noted: map[api.FunctionName]bool{}, note: make(chan struct{}, 1)}, nil
}

// Run holds sessions with the front doors until ctx ends, then says that it leaves, lets what runs finish within drain, and ends.
func (a *Agent) Run(ctx context.Context, drain time.Duration) error {
	parts, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	for _, at := range a.cfg.Fronts {
		a.add(parts, at, false)
	}
	if a.cfg.Find != nil {
		a.running.Go(func() { a.follow(parts) })
	}
	for ctx.Err() == nil {
		select {
		case at := <-a.found:
			a.add(parts, at, false)
		case <-a.note:
			a.passOn()
		case <-ctx.Done():
		}
	}
	a.leave(drain)
	stop()
	a.running.Wait()
	return nil
}

// add holds a session with one more front door, where there are not too many; found: [Config.Find] named it.
func (a *Agent) add(ctx context.Context, at string, found bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fronts[at] != nil || !found && len(a.fronts) >= max(a.cfg.MaxFronts, len(a.cfg.Fronts)) {
		return
	}
	ctx, stop := context.WithCancel(ctx)
	f := &front{a: a, at: at, found: found, stop: stop, demand: map[api.FunctionName]api.Demand{}, served: map[api.FunctionName]int{}}
	a.fronts[at] = f
	a.running.Go(func() { f.hold(ctx) })
}

// Watch takes the events of the cluster's own activator and instances: what they are about has changed.
func (a *Agent) Watch(e api.Event) {
	switch e.Type {
	case api.EventDemand, api.EventInstanceState, api.EventFunction, api.EventFunctionGone:
		a.Changed(api.FunctionName(e.Subject))
	}
}

// Changed has every front door told of a function anew. It never blocks, whatever its caller holds.
func (a *Agent) Changed(name api.FunctionName) {
	a.noting.Lock()
	a.noted[name] = true
	a.noting.Unlock()
	select {
	case a.note <- struct{}{}:
	default:
	}
}

// passOn has the sessions say what was noted.
func (a *Agent) passOn() {
	a.noting.Lock()
	names := a.noted
	a.noted = map[api.FunctionName]bool{}
	a.noting.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	for name := range names {
		a.changed(name)
	}
}

// changed has every front door told of a function anew. The caller holds mu.
func (a *Agent) changed(name api.FunctionName) {
	for _, f := range a.fronts {
		if s := f.session; s != nil {
			s.dirty[name] = true
			s.nudge()
		}
	}
}

// state is what a front door is told of a function. The caller holds mu.
func (a *Agent) state(f *front, spec api.Function) exchange.Function {
	a.seq++
	out := exchange.Function{
		Name: spec.Name, Model: spec.Model, Aliases: spec.Aliases, Kind: spec.Runtime.Kind, Seq: a.seq,
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
	out.State, out.Expected = choose.Soonest(stats.Instances, time.Now())
	slots := 0
	for _, st := range stats.Instances {
		if st.Ready() {
			slots += cmp.Or(st.Concurrency, max(spec.Concurrency, 1))
		}
	}
	out.Running, out.Waiting = stats.Running, stats.Waiting
	if stats.Failed != "" && out.State != api.Awake {
		out.Failed = &exchange.Failure{Status: http.StatusServiceUnavailable, Code: api.CodeStartFailed, Message: stats.Failed}
	}
	if !a.leaving {
		out.Places = f.served[spec.Name] + a.share(f, spec.Name, max(slots-stats.Running, 0))
	}
	return out
}

// adapters are those that a request may name: declared, or loaded by an instance.
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

// share is the part of the free places that a front door gets: those that want some share all; where none wants any, all share
// them. What can't be divided goes to those whose address comes first.
func (a *Agent) share(f *front, name api.FunctionName, free int) int {
	var who []string
	for _, wants := range []bool{true, false} {
		for at, other := range a.fronts {
			if other.session != nil && (!wants || other.demand[name].Waiting > 0) {
				who = append(who, at)
			}
		}
		if len(who) > 0 {
			break
		}
	}
	slices.Sort(who)
	at := slices.Index(who, f.at)
	if at < 0 {
		return 0
	}
	part := free / len(who)
	if at < free%len(who) {
		part++
	}
	return part
}
