package door

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/activator/forward"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/relay"
)

// Activator is told of functions at agents.
type Activator interface {
	PutFunction(spec api.Function)
	RemoveFunction(name api.FunctionName)
	ObserveInstance(status api.InstanceStatus)
	Fail(name api.FunctionName, err *api.Error)
}

// Config is a front door's configuration. The zero value is usable once it has a Name.
type Config struct {
	// Name is this front door's name, unique among front doors.
	Name string
	// Owner is the owner name of the functions that it creates in clusters. Front doors with the same functions, and
	// certificates for the same names, may share it. Default: Name.
	Owner string
	// SharesNear means that the other front doors also have this machine's functions themselves, like the activators
	// of one cluster: requests that wait at those are never for this machine's own instances.
	SharesNear bool
	// Fronts are the addresses of all front doors, host:port, as agents reach them.
	Fronts []string
	// Keep is how long a function's requests wait for its last agent to return after it was lost; an agent dials
	// every second. Then they are refused. Default 10 s.
	Keep time.Duration
}

func (c Config) withDefaults() Config {
	if c.Keep == 0 {
		c.Keep = 10 * time.Second
	}
	return c
}

// Validate returns an error for the first invalid field, with the valid values.
func (c Config) Validate() error {
	c = c.withDefaults()
	switch {
	case c.Name == "":
		return errors.New("door: the name is empty: set one that no other front door has")
	case c.Keep < 0:
		return fmt.Errorf("door: a function is kept for %s: want more than 0", c.Keep)
	}
	return nil
}

// Deps are a front door's dependencies. Activator is required.
type Deps struct {
	Activator Activator
	// Near receives the events of this machine's own functions; nil: it has none.
	Near api.Emitter
	// Transport reaches instances that are not at agents; nil: there are none.
	Transport http.RoundTripper
	// Changed is called for each function whose report from an agent, or whose name here, has changed; nil: not
	// called.
	Changed func(name api.FunctionName)
	// Tell receives a line of text when an agent comes, leaves or is gone; faults go to the log as warnings. Nil: not
	// told.
	Tell     func(line string)
	Logger   *slog.Logger
	Registry *prometheus.Registry
}

// Front is one front door. See the package comment.
type Front struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	metrics *metrics
	run     string // identifies this process, so that its calls are not taken for another's

	telling sync.Mutex // held while the activator is told of changes, to keep them in order; locked before mu

	mu         sync.Mutex // guards the fields below
	declared   map[string]Declaration
	namespaces map[string]bool     // those in declarations
	byTenant   bool                // some cluster may not see every tenant's requests
	sessions   map[string]*session // by agent
	functions  map[api.FunctionName]*function
	near       map[api.FunctionName]*near // this machine's functions
	out        []api.Event                // for this machine's own components
	passing    bool                       // a goroutine is sending out
	links      map[net.Conn]*session      // connections for requests, including those of ended sessions
	seq        uint64                     // the last number of an instance status, an attempt, or an order to an agent
	begun      time.Time
	ending     bool                               // agents have been told
	lost       map[string]lost                    // by cluster
	shut       map[string]shut                    // agents, by process
	rejected   map[string]rejection               // the last one of each declared cluster, until one of its agents comes
	owners     map[api.ModelName]api.FunctionName // of the names that clients use
	strangers  time.Time                          // when the last one was logged
}

// New returns a front door. It starts no goroutine.
func New(cfg Config, deps Deps) (*Front, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Activator == nil {
		return nil, errors.New("door: Activator must be given")
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if deps.Changed == nil {
		deps.Changed = func(api.FunctionName) {}
	}
	if deps.Tell == nil {
		deps.Tell = func(string) {}
	}
	if deps.Registry == nil {
		deps.Registry = prometheus.NewRegistry()
	}
	m, err := newMetrics(deps.Registry)
	if err != nil {
		return nil, fmt.Errorf("door: register metrics: %w", err)
	}
	return &Front{cfg: cfg.withDefaults(), deps: deps, log: deps.Logger, metrics: m, run: rand.Text(), declared: map[string]Declaration{},
		sessions: map[string]*session{}, functions: map[api.FunctionName]*function{}, near: map[api.FunctionName]*near{}, links: map[net.Conn]*session{},
		begun: time.Now(), lost: map[string]lost{}, shut: map[string]shut{}, rejected: map[string]rejection{}, owners: map[api.ModelName]api.FunctionName{}}, nil
}

// Declare replaces the declarations. Sessions end if their cluster is no longer declared, or its declaration has
// changed; their agents may come back.
func (f *Front) Declare(list []Declaration) error {
	all := make(map[string]Declaration, len(list))
	for _, d := range list {
		if err := d.Validate(); err != nil {
			return err
		}
		if _, twice := all[d.Name]; twice {
			return fmt.Errorf("cluster %s is declared twice", d.Name)
		}
		all[d.Name] = d
	}
	f.change(func() (tell []func()) {
		f.declared, f.byTenant, f.namespaces = all, false, map[string]bool{}
		for _, d := range all {
			f.byTenant = f.byTenant || len(d.Tenants) > 0 || d.Front // a front door has to choose as well
			for _, p := range d.Functions {
				if namespace, _, named := strings.Cut(p, "/"); named && !strings.ContainsAny(namespace, `*?[\\`) {
					f.namespaces[namespace] = true
				}
			}
		}
		for _, s := range f.sessions {
			if now, ok := all[s.hello.Cluster]; !ok || !equal(now, s.declared) {
				s.end("the front door's declaration of the cluster has changed")
			}
		}
		for _, fn := range f.functions {
			if fn.away != nil && !all[fn.lost].allows(fn.name) {
				tell = append(tell, f.remove(fn)...)
			}
		}
		return append(tell, f.settle()...)
	})
	return nil
}

// equal compares two declarations by their JSON.
func equal(a, b Declaration) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

func (f *Front) declaration(cluster string) (Declaration, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, ok := f.declared[cluster]
	return d, ok
}

// change calls do with mu locked, and then tells the activator the changes that do returns.
func (f *Front) change(do func() []func()) {
	f.telling.Lock()
	defer f.telling.Unlock()
	f.mu.Lock()
	tell := do()
	f.mu.Unlock()
	for _, t := range tell {
		t()
	}
	f.passOn()
}

// begin adds a session, if it is admitted, and ends the agent's earlier one.
func (f *Front) begin(s *session) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.admit(s); err != nil {
		return err
	}
	if old := f.sessions[s.agent()]; old != nil {
		old.end("another session of this agent has come")
	}
	f.sessions[s.agent()], s.goAway = s, f.ending
	delete(f.rejected, s.hello.Cluster)
	f.metrics.agents.WithLabelValues(s.hello.Cluster).Inc()
	return nil
}

// GoAway tells the agents that this front door ends: it sends no new requests, and its running ones are served to
// their end.
func (f *Front) GoAway() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ending = true
	for _, s := range f.sessions {
		s.goAway = true
		s.nudge()
	}
}

// lose removes a session, which ended with err or without a fault, and its offers unless a later session has made
// them again.
func (f *Front) lose(s *session, err error) {
	f.mu.Lock()
	replaced, leaving := f.sessions[s.agent()] != s, s.leaving
	dead := !replaced && time.Since(s.heard) >= protocol.DeadAfter
	f.mu.Unlock()
	if s.pool.Retire(); dead { // otherwise running requests finish
		f.closeLinks(s)
	}
	after := time.Since(s.since).Round(time.Millisecond)
	switch {
	case replaced:
		f.log.Info("an agent goes on with its next session", "cluster", s.hello.Cluster, "agent", s.hello.Agent, "after", after)
	case err == nil || leaving:
		f.log.Info("a cluster has gone", "cluster", s.hello.Cluster, "agent", s.hello.Agent, "after", after)
		f.deps.Tell("cluster " + s.hello.Cluster + " has gone (agent " + s.hello.Agent + ")")
	default:
		why := status.Convert(err).Message()
		if status.Code(err) == codes.Canceled {
			why = "its connection was closed without a word"
		}
		f.log.Warn("a cluster is lost", "cluster", s.hello.Cluster, "agent", s.hello.Agent, "after", after, "error", why)
	}
	f.change(func() (tell []func()) {
		f.metrics.agents.WithLabelValues(s.hello.Cluster).Dec()
		replaced := f.sessions[s.agent()] != s
		if !replaced {
			delete(f.sessions, s.agent())
			f.lost[s.hello.Cluster] = lost{s, time.Now()}
		}
		for _, fn := range f.functions {
			if o := fn.offers[s.agent()]; o != nil && o.session == s && !replaced {
				delete(fn.offers, s.agent())
				fn.lost = s.hello.Cluster
				tell = append(tell, f.observe(o, api.Gone))
				tell = append(tell, f.sync(fn)...)
			} else {
				f.reconsider(fn) // it may have been on its way there
			}
			tell = append(tell, f.placing(fn)...)
		}
		return append(tell, f.settle()...)
	})
	s.end("it has ended")
}

// hear applies an agent's message.
func (f *Front) hear(s *session, up *protocol.Up) error {
	var err error
	f.change(func() (tell []func()) {
		if f.sessions[s.agent()] != s {
			err = status.Error(codes.Aborted, "another session of this agent has come")
			return nil
		}
		s.heard = time.Now()
		if up.Beat > 0 {
			s.beat, s.way = up.Beat, up.Way
			s.nudge()
			tell = f.moved(s)
		}
		if up.Doubles > s.doubles {
			f.metrics.doubles.WithLabelValues(s.hello.Cluster).Add(float64(up.Doubles - s.doubles))
			s.doubles = up.Doubles
		}
		changed := map[api.FunctionName]*function{}
		if up.Leaving && !s.leaving {
			s.leaving = true
			tell = append(tell, func() {
				s.pool.Retire()
				f.log.Info("a cluster is leaving", "cluster", s.hello.Cluster, "agent", s.hello.Agent)
				f.deps.Tell("cluster " + s.hello.Cluster + " is leaving (agent " + s.hello.Agent + "): it finishes what runs there, and takes nothing new")
			})
			for name, fn := range f.functions {
				if fn.offers[s.agent()] != nil {
					changed[name] = fn
					tell = append(tell, f.observe(fn.offers[s.agent()], ""))
				}
			}
		}
		renamed := false
		for _, state := range up.Functions {
			fn, other, t := f.offered(s, state)
			renamed, tell = renamed || other, append(tell, t...)
			if fn != nil {
				changed[state.Name] = fn
			}
		}
		tell = append(tell, f.answered(s, up)...)
		f.happened(s, up.Wakes)
		if up.Complete && !s.complete {
			s.complete = true
			for _, fn := range f.functions {
				f.reconsider(fn) // it may have waited for this
				if fn.lost == s.hello.Cluster && len(fn.offers) == 0 {
					tell, renamed = append(tell, f.remove(fn)...), true // its cluster returned without it
				}
			}
			t, fns := f.notOffered(s)
			tell, renamed = append(tell, t...), renamed || len(fns) > 0
			for _, fn := range fns {
				changed[fn.name] = fn
			}
		}
		if renamed {
			tell = append(tell, f.settle()...)
		}
		for _, fn := range changed {
			tell = append(tell, f.sync(fn)...)
		}
		for _, state := range up.Functions { // the activator knows the functions by now
			if fn := changed[state.Name]; fn != nil && fn.offers[s.agent()] != nil {
				tell = append(tell, f.observe(fn.offers[s.agent()], ""))
			}
		}
		return tell
	})
	return err
}

// moved tells the activator the round-trip time to an agent, if it has changed. The caller holds mu.
func (f *Front) moved(s *session) (tell []func()) {
	if (s.way - s.wayTold).Abs() < api.SameWay/4 {
		return nil
	}
	s.wayTold = s.way
	for _, fn := range f.functions {
		if o := fn.offers[s.agent()]; o != nil && o.session == s {
			tell = append(tell, f.observe(o, ""))
		}
	}
	return tell
}

// domain is the suffix of the addresses of functions at agents.
const domain = ".cluster"

// endpoint returns the address of a function at an agent, for the activator.
func endpoint(agent string, name api.FunctionName) api.Endpoint {
	return api.Endpoint("http://" + hex.EncodeToString([]byte(name)) + "." + hex.EncodeToString([]byte(agent)) + domain)
}

// RoundTrip sends a request to the function that the host of its URL names, over a connection of its agent.
func (f *Front) RoundTrip(r *http.Request) (*http.Response, error) {
	host, far := strings.CutSuffix(r.URL.Host, domain)
	if !far {
		if f.deps.Transport == nil {
			return nil, fmt.Errorf("door: %s is no agent's", r.URL.Host)
		}
		return f.deps.Transport.RoundTrip(r) // the transport's error
	}
	name, agent, _ := strings.Cut(host, ".")
	function, err := hex.DecodeString(name)
	who, err2 := hex.DecodeString(agent)
	if err := errors.Join(err, err2); err != nil {
		return nil, fmt.Errorf("door: the host %s: %w", r.URL.Host, err)
	}
	f.mu.Lock()
	s := f.sessions[string(who)]
	f.seq++
	attempt := f.seq
	left := f.near[api.FunctionName(function)].away(f)
	f.mu.Unlock()
	if s == nil {
		counted(nil, left)
		return nil, &net.OpError{Op: "dial", Net: "link", Err: fmt.Errorf("agent %s has no session", who)}
	}
	out := r.WithContext(r.Context())
	out.Header = maps.Clone(r.Header)
	out.Header[protocol.HeaderFunction] = []string{string(function)}
	out.Header[protocol.HeaderCall] = []string{f.run + "-" + strconv.FormatUint(forward.CallOf(r.Context()), 10)}
	out.Header[protocol.HeaderAttempt] = []string{strconv.FormatUint(attempt, 10)}
	resp, err := s.pool.RoundTrip(out)
	if err == nil {
		f.took(s, resp)
	}
	if err != nil && r.Context().Err() == nil && !relay.Unreachable(err) {
		cluster, _, _ := strings.Cut(string(who), "/")
		f.metrics.lost.WithLabelValues(cluster).Inc()
	}
	return counted(resp, left), err
}
