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
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/activator/forward"
	"github.com/rouse-dev/rouse/activator/share"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/relay"
)

// For keepFor, requests wait for a function's lost last agent; an agent dials every second.
const keepFor = 10 * time.Second

// Activator is told of functions at agents.
type Activator interface {
	PutFunction(spec api.Function)
	RemoveFunction(name api.FunctionName)
	ObserveInstance(status api.InstanceStatus)
	Fail(name api.FunctionName, err *api.Error)
}

// Config configures a front door. The zero value is usable once it has a Name.
type Config struct {
	// Name is unique among front doors.
	Name string
	// Owner owns the functions that it creates in clusters; default: Name. Front doors with the same functions, and certificates
	// for the same names, may share it.
	Owner string
	// SharesNear means that the other front doors have this machine's functions too: requests that wait there are never for
	// this machine's instances.
	SharesNear bool
	// Fronts are the addresses of all front doors, host:port, as agents reach them.
	Fronts []string
}

// Deps are a front door's dependencies. Activator is required.
type Deps struct {
	Activator Activator
	// Near receives the events of this machine's functions; may be nil.
	Near api.Emitter
	// Transport reaches instances that are not at agents; may be nil.
	Transport http.RoundTripper
	// Changed is called when a function's report from an agent, or its name here, has changed; may be nil.
	Changed func(name api.FunctionName)
	// Tell receives a line of text when an agent comes, leaves or is gone; may be nil.
	Tell     func(line string)
	Logger   *slog.Logger
	Registry *prometheus.Registry
}

// Front is safe for concurrent use.
type Front struct {
	run     string       // its calls are not taken for another process's
	share   *share.Share // nil: no other front doors count for the same clients
	telling sync.Mutex   // orders calls of the activator; locked before mu
	mu      sync.Mutex   // guards the state
	state
}

// The methods of state are called with the Front's mutex locked; they neither block nor call the activator.
type state struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	metrics *metrics
	begun   time.Time
	timeout func(*function) // has a function refreshed when its timer fires

	clusters  map[string]*cluster
	sessions  map[string]*session // by agent
	functions map[api.FunctionName]*function
	names     map[api.FunctionName]api.FunctionName // the full ones, by the activator's where that is another one
	owners    map[api.ModelName]api.FunctionName
	stale     map[*function]bool    // to be refreshed before mu is unlocked
	renamed   bool                  // owners must be computed again
	tells     []func()              // calls of the activator, after mu is unlocked
	out       []api.Event           // for this machine's own components
	flushing  bool                  // a goroutine is sending out
	links     map[net.Conn]*session // also of ended sessions
	vacancies int                   // functions that nothing has
	seq       uint64                // of an instance status, an attempt, or an order to an agent
	ending    bool
	shut      map[string]shut // by process
	strangers time.Time       // when the last one was logged
}

type cluster struct {
	Declaration
	last     *session  // the last that ended; nil: none has
	lostAt   time.Time // when that ended; without one when the front door began
	rejected rejection // until an agent comes
}

// New starts no goroutine.
func New(cfg Config, deps Deps) (*Front, error) {
	if cfg.Name == "" || deps.Activator == nil {
		return nil, errors.New("door: give a name that no other front door has, and an Activator")
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
	f := &Front{run: rand.Text(), state: state{cfg: cfg, deps: deps, log: deps.Logger, metrics: m, begun: time.Now(), clusters: map[string]*cluster{}, sessions: map[string]*session{},
		functions: map[api.FunctionName]*function{}, names: map[api.FunctionName]api.FunctionName{}, owners: map[api.ModelName]api.FunctionName{}, stale: map[*function]bool{}, links: map[net.Conn]*session{}, shut: map[string]shut{}}}
	f.timeout = func(fn *function) {
		f.change(func() {
			if now := time.Now(); fn.due(now) { // all that are due, to compute names once
				for _, other := range f.functions {
					if other.due(now) {
						f.markStale(other)
					}
				}
			}
		})
	}
	return f, nil
}

// Declare replaces the declarations, and ends sessions whose declaration has changed.
func (f *Front) Declare(list []Declaration) error {
	all := make(map[string]*cluster, len(list))
	for _, d := range list {
		if err := d.Validate(); err != nil {
			return err
		}
		if all[d.Name] != nil {
			return fmt.Errorf("cluster %s is declared twice", d.Name)
		}
		all[d.Name] = &cluster{Declaration: d, lostAt: f.begun}
	}
	f.change(func() {
		for name, c := range all {
			if was := f.clusters[name]; was != nil {
				c.last, c.lostAt, c.rejected = was.last, was.lostAt, was.rejected
			}
		}
		f.clusters, f.renamed = all, true
		for _, s := range f.sessions {
			if now := all[s.hello.Cluster]; now == nil || !reflect.DeepEqual(now.Declaration, s.declared) {
				s.end("the front door's declaration of the cluster has changed")
			}
		}
		for _, fn := range f.functions {
			f.markStale(fn)
		}
	})
	f.meetOthers()
	return nil
}

// change calls do with mu locked, refreshes what it has marked, and then calls the activator.
func (f *Front) change(do func()) {
	f.telling.Lock()
	defer f.telling.Unlock()
	f.mu.Lock()
	do()
	now := time.Now()
	for f.renamed || len(f.stale) > 0 {
		if f.renamed {
			f.renamed = false
			f.assignNames()
		}
		list := byAge(maps.Keys(f.stale))
		clear(f.stale)
		for _, fn := range list {
			f.refresh(fn, now)
		}
	}
	tells := f.tells
	f.tells = nil
	f.mu.Unlock()
	for _, tell := range tells {
		tell()
	}
	f.flushEvents()
}

func (f *state) tell(call func()) { f.tells = append(f.tells, call) }

func (f *state) markStale(fn *function) { f.stale[fn] = true }

// GoAway tells the agents that this front door ends.
func (f *Front) GoAway() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ending = true
	for _, s := range f.sessions {
		s.goAway = true
		s.wake.Ring()
	}
}

const domain = ".cluster"

func endpoint(agent string, name api.FunctionName) api.Endpoint {
	return api.Endpoint("http://" + hex.EncodeToString([]byte(name)) + "." + hex.EncodeToString([]byte(agent)) + domain)
}

// RoundTrip sends a request to the function that the host of its URL names, or to any agent of a cluster.
func (f *Front) RoundTrip(r *http.Request) (*http.Response, error) {
	host, far := strings.CutSuffix(r.URL.Host, domain)
	if !far {
		if f.deps.Transport == nil {
			return nil, fmt.Errorf("door: %s is no agent's", r.URL.Host)
		}
		return f.deps.Transport.RoundTrip(r)
	}
	function, agent, _ := strings.Cut(host, ".")
	name, err := hex.DecodeString(function)
	who, err2 := hex.DecodeString(agent)
	if err := errors.Join(err, err2); err != nil {
		return nil, fmt.Errorf("door: the host %s: %w", r.URL.Host, err)
	}
	f.mu.Lock()
	s := f.sessions[string(who)]
	for _, of := range f.sessions {
		if len(name) == 0 && of.hello.Cluster == string(who) {
			s = of
		}
	}
	f.seq++
	attempt := f.seq
	var left func()
	if fn := f.functions[api.FunctionName(name)]; s != nil && fn != nil && fn.near != nil {
		left = f.countSent(fn.near)
	}
	f.mu.Unlock()
	if s == nil {
		return nil, &net.OpError{Op: "dial", Net: "link", Err: fmt.Errorf("agent %s has no session", who)}
	}
	out := r.WithContext(r.Context())
	out.Header = maps.Clone(r.Header)
	out.Header[protocol.HeaderFunction] = []string{string(name)}
	out.Header[protocol.HeaderCall] = []string{f.run + "-" + strconv.FormatUint(forward.CallOf(r.Context()), 10)}
	out.Header[protocol.HeaderAttempt] = []string{strconv.FormatUint(attempt, 10)}
	resp, err := s.pool.RoundTrip(out)
	switch {
	case err == nil:
		f.countGivenBack(s, resp)
	case len(name) > 0 && r.Context().Err() == nil && !relay.Unreachable(err):
		f.metrics.lost.WithLabelValues(s.hello.Cluster).Inc()
	default:
	}
	switch {
	case left == nil:
	case err != nil:
		left()
	default:
		resp.Body = &body{resp.Body, left}
	}
	return resp, err
}

// Emit sends the demand for functions of agents there, and events of this machine's functions to its own autoscaler.
func (f *Front) Emit(e api.Event) {
	f.mu.Lock()
	fn := f.find(api.FunctionName(e.Subject))
	var demand api.Demand
	isDemand := fn != nil && e.Type == api.EventDemand && json.Unmarshal(e.Data, &demand) == nil
	if isDemand {
		fn.demand = demand
	}
	switch {
	case isDemand && fn.far():
		f.demandChanged(fn)
	case fn != nil && fn.far() && f.woken(fn, e):
	case fn == nil || fn.near != nil:
		if isDemand {
			fn.near.told = demand
		}
		f.out = append(f.out, e)
	default:
	}
	f.mu.Unlock()
	f.flushEvents()
}

// EmitOf receives another front door's demand.
func (f *Front) EmitOf(e api.Event) {
	var demand api.Demand
	if e.Type != api.EventDemand || json.Unmarshal(e.Data, &demand) != nil {
		return
	}
	f.mu.Lock()
	switch fn := f.functions[demand.Function]; {
	case fn == nil:
	case fn.far():
		demand.At = time.Now()
		if fn.theirs[demand.Activator] = demand; demand.Waiting == 0 {
			delete(fn.theirs, demand.Activator)
		}
		fn.wakeAt(demand.At.Add(control.DemandTTL))
		f.demandChanged(fn)
	case !f.cfg.SharesNear:
		f.out = append(f.out, e)
	default:
	}
	f.mu.Unlock()
	f.flushEvents()
}

func (f *state) demandChanged(fn *function) {
	if fn.near != nil {
		fn.near.fresh = true
	}
	f.divideDemand(fn)
	if fn.placed != nil && fn.waiting() > 0 {
		fn.wakeAt(time.Now())
	}
}

// flushEvents delivers the pending events, in order. If another goroutine already does, it returns at once.
func (f *Front) flushEvents() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.flushing {
		return
	}
	f.flushing = true
	for len(f.out) > 0 {
		out := f.out
		f.out = nil
		f.mu.Unlock()
		for _, e := range out {
			if f.deps.Near != nil {
				f.deps.Near.Emit(e)
			}
		}
		f.mu.Lock()
	}
	f.flushing = false
}
