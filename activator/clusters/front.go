package clusters

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

	"github.com/rouse-dev/rouse/activator/forward"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/exchange"
	"github.com/rouse-dev/rouse/internal/relay"
)

// Activator is what is told of far functions.
type Activator interface {
	PutFunction(spec api.Function)
	RemoveFunction(name api.FunctionName)
	ObserveInstance(status api.InstanceStatus)
	Fail(name api.FunctionName, err *api.Error)
}

// Config is a front door's configuration. The zero value is usable once it has a Name.
type Config struct {
	// Name is this front door's, unique among front doors.
	Name string
	// Owner is the name by which it owns what it has created in clusters; front doors that declare the same functions, and whose
	// certificates are for the same names, may share it. Default: Name.
	Owner string
	// SharesNear says that the other front doors have the functions of this machine themselves, as the activators of one cluster
	// do: what waits at those is not for them.
	SharesNear bool
	// Fronts are the addresses of all front doors, host:port, as agents reach them.
	Fronts []string
	// Keep is how long the requests of a function wait for the last agent that served it to come again after it was lost: an agent dials each
	// second. Then they are refused. Default 10 s.
	Keep time.Duration
}

func (c Config) withDefaults() Config {
	if c.Keep == 0 {
		c.Keep = 10 * time.Second
	}
	return c
}

// Validate reports the first field that is wrong, and what it should be.
func (c Config) Validate() error {
	c = c.withDefaults()
	switch {
	case c.Name == "":
		return errors.New("clusters: the name is empty: set one that no other front door has")
	case c.Keep < 0:
		return fmt.Errorf("clusters: a function is kept for %s: want more than 0", c.Keep)
	}
	return nil
}

// Deps are what a front door needs of others. Activator must be given.
type Deps struct {
	Activator Activator
	// Near takes the events of functions that this machine has; nil: it has none.
	Near api.Emitter
	// Transport reaches what is no agent; nil: there is nothing else.
	Transport http.RoundTripper
	// Changed is told of each function of which an agent says something else than before, or that has another name here; nil: nobody is.
	Changed func(name api.FunctionName)
	// Tell is told in a line for people who has come, is leaving and has gone; what is wrong is a warning in the log. nil: nobody is.
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
	run     string // of this process, so that its calls are nobody else's

	telling sync.Mutex // held while the activator is told what has changed, so that it hears it in order; taken before mu

	mu         sync.Mutex // guards what follows
	declared   map[string]Declaration
	namespaces map[string]bool     // that declarations name
	byTenant   bool                // some cluster may not see each tenant's requests
	sessions   map[string]*session // by agent
	functions  map[api.FunctionName]*function
	near       map[api.FunctionName]*near // those of this machine
	out        []api.Event                // for this machine's parts
	passing    bool                       // somebody passes out on
	links      map[net.Conn]*session      // connections for requests, those of sessions that have ended included
	seq        uint64                     // of the last status of an instance, the last attempt, or the last order to an agent
	begun      time.Time
	ending     bool                               // agents are told so
	lost       map[string]lost                    // by cluster
	shut       map[string]shut                    // agents, by process
	rejected   map[string]rejection               // the last of each declared cluster, until one of its agents comes
	owners     map[api.ModelName]api.FunctionName // of names that clients use
	strangers  time.Time                          // when the last of them was logged
}

// New makes a front door. It starts nothing.
func New(cfg Config, deps Deps) (*Front, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Activator == nil {
		return nil, errors.New("clusters: Activator must be given")
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
		return nil, fmt.Errorf("clusters: register metrics: %w", err)
	}
	return &Front{cfg: cfg.withDefaults(), deps: deps, log: deps.Logger, metrics: m, run: rand.Text(), declared: map[string]Declaration{},
		sessions: map[string]*session{}, functions: map[api.FunctionName]*function{}, near: map[api.FunctionName]*near{}, links: map[net.Conn]*session{},
		begun: time.Now(), lost: map[string]lost{}, shut: map[string]shut{}, rejected: map[string]rejection{}, owners: map[api.ModelName]api.FunctionName{}}, nil
}

// Declare replaces the declarations. Sessions of clusters that are not declared any more, or whose
// declaration allows less than before, end; their agents may come again.
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
			f.byTenant = f.byTenant || len(d.Tenants) > 0 || d.Front // it has to choose as well
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

// equal compares what JSON makes of two declarations.
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

// change has do change what mu guards, and then the activator told what do returns.
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

// begin takes a session in, if it may begin. One of the same agent ends.
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

// GoAway tells the agents that this front door ends: it takes no new requests, and those that it has are served to their end.
func (f *Front) GoAway() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ending = true
	for _, s := range f.sessions {
		s.goAway = true
		s.nudge()
	}
}

// lose forgets a session, which ended by err or without a fault, and what it offered where no later one has offered it anew.
func (f *Front) lose(s *session, err error) {
	f.mu.Lock()
	replaced, leaving := f.sessions[s.agent()] != s, s.leaving
	dead := !replaced && time.Since(s.heard) >= exchange.DeadAfter
	f.mu.Unlock()
	if s.pool.Retire(); dead { // else what runs goes on to its end
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

// hear takes in what an agent says.
func (f *Front) hear(s *session, up *exchange.Up) error {
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
					tell, renamed = append(tell, f.remove(fn)...), true // it has come again, and has it no more
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
		for _, state := range up.Functions { // the activator has heard of the functions
			if fn := changed[state.Name]; fn != nil && fn.offers[s.agent()] != nil {
				tell = append(tell, f.observe(fn.offers[s.agent()], ""))
			}
		}
		return tell
	})
	return err
}

// moved tells the activator how long the way to an agent is, where that is news. The caller holds mu.
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

// addresses of functions at agents end in it.
const domain = ".cluster"

// endpoint is where the activator sends what is for a function at an agent.
func endpoint(agent string, name api.FunctionName) api.Endpoint {
	return api.Endpoint("http://" + hex.EncodeToString([]byte(name)) + "." + hex.EncodeToString([]byte(agent)) + domain)
}

// RoundTrip sends a request to the function that the host of its URL names, by a connection of its agent.
func (f *Front) RoundTrip(r *http.Request) (*http.Response, error) {
	host, far := strings.CutSuffix(r.URL.Host, domain)
	if !far {
		if f.deps.Transport == nil {
			return nil, fmt.Errorf("clusters: %s is no agent's", r.URL.Host)
		}
		return f.deps.Transport.RoundTrip(r) // the transport's own
	}
	name, agent, _ := strings.Cut(host, ".")
	function, err := hex.DecodeString(name)
	who, err2 := hex.DecodeString(agent)
	if err := errors.Join(err, err2); err != nil {
		return nil, fmt.Errorf("clusters: the host %s: %w", r.URL.Host, err)
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
	out.Header[exchange.HeaderFunction] = []string{string(function)}
	out.Header[exchange.HeaderCall] = []string{f.run + "-" + strconv.FormatUint(forward.CallOf(r.Context()), 10)}
	out.Header[exchange.HeaderAttempt] = []string{strconv.FormatUint(attempt, 10)}
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
