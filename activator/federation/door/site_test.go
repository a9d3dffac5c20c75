package door_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/federation/agent"
	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/api"
)

// site is a remote cluster with functions that front doors have created.
type site struct {
	name      string
	activator *activator.Activator
	agent     *agent.Agent
	stop      func()
	changes   chan string // of calls to Apply and Remove
	wake      chan struct{}

	mu      sync.Mutex // guards the fields below
	has     map[api.FunctionName]*made
	refuses *api.Error
	waiting map[api.FunctionName]map[string]int // by sender
}

// made is a function of a site.
type made struct {
	yaml   string
	owners []string
	idle   bool // it is unloaded whenever it has no demand
	status api.InstanceStatus
}

type siteConfig struct {
	accept agent.Accept
	own    []api.FunctionName // declared there by others
}

func newSite(t testing.TB, name string, pool *x509.CertPool, cfg siteConfig, fronts ...string) *site {
	t.Helper()
	s := &site{name: name, has: map[api.FunctionName]*made{}, waiting: map[api.FunctionName]map[string]int{}, wake: make(chan struct{}, 1), changes: make(chan string, 100)}
	s.activator = newActivator(t, name, api.EmitterFunc(s.brain), api.NewTransport(64))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"from":%q}`, name)
	}))
	t.Cleanup(server.Close)
	at := api.Endpoint(server.URL)
	for _, f := range cfg.own {
		s.put(f, "", at)
	}
	var err error
	if s.agent, err = agent.New(agent.Config{Fronts: fronts, Cluster: name, Agent: "agent-1", TLS: &tls.Config{RootCAs: pool}, Accept: cfg.accept,
		Token: func() (string, error) { return name, nil }},
		agent.Deps{Serve: s.activator.ServeAtOnce, Functions: s.functions, Stats: s.activator.Stats, Emitter: api.EmitterFunc(s.brain), Logger: logger(t), Applier: applier{s, at}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go s.scale(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.agent.Run(ctx, 10*time.Second) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(s.stop)
	return s
}

// put adds a function to the site.
func (s *site) put(name api.FunctionName, yaml string, at api.Endpoint, owners ...string) {
	s.mu.Lock()
	s.has[name] = &made{yaml: yaml, owners: owners, status: api.InstanceStatus{Instance: api.InstanceID(s.name + "-1"), Function: name, State: api.Gone, Endpoint: at, Concurrency: 2, Seq: 1}}
	s.mu.Unlock()
	s.activator.PutFunction(api.Function{Name: name, Concurrency: 2, MaxScale: 1})
	s.nudge()
}

func (s *site) functions() (list []api.Function) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.has {
		list = append(list, api.Function{Name: name, Concurrency: 2, MaxScale: 1}.WithDefaults())
	}
	slices.SortFunc(list, func(a, b api.Function) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// brain receives the demand.
func (s *site) brain(e api.Event) {
	if s.agent != nil {
		s.agent.Watch(e)
	}
	var d api.Demand
	if e.Type != api.EventDemand || json.Unmarshal(e.Data, &d) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[d.Function] == nil {
		s.waiting[d.Function] = map[string]int{}
	}
	s.waiting[d.Function][d.Activator] = d.Waiting
	s.nudge()
}

func (s *site) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// scale starts functions with demand, and unloads idle ones, until ctx ends.
func (s *site) scale(ctx context.Context) {
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return
		}
		to := map[api.FunctionName]api.State{}
		s.mu.Lock()
		for name, m := range s.has {
			wanted := 0
			for _, n := range s.waiting[name] {
				wanted += n
			}
			switch {
			case wanted > 0 && m.status.State != api.Awake:
				to[name] = api.Awake
			case wanted == 0 && m.idle && m.status.State == api.Awake:
				to[name] = api.Gone
			}
		}
		s.mu.Unlock()
		for name, state := range to {
			s.set(name, state)
		}
	}
}

// unload makes a function's instance end whenever it has no demand.
func (s *site) unload(name api.FunctionName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.has[name].idle = true
	s.nudge()
}

// set changes the state of a function's instance.
func (s *site) set(name api.FunctionName, state api.State) {
	s.mu.Lock()
	m := s.has[name]
	if m == nil {
		s.mu.Unlock()
		return
	}
	m.status.State = state
	m.status.Seq++
	st := m.status
	s.mu.Unlock()
	s.activator.ObserveInstance(st)
	s.agent.Changed(name)
}

// count returns the number of the site's functions.
func (s *site) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.has)
}

// applier is the site's agent.Applier.
type applier struct {
	s  *site
	at api.Endpoint
}

func (a applier) Apply(_ context.Context, m protocol.Manifest, front string) error {
	a.s.mu.Lock()
	has, refuses := a.s.has[m.Name], a.s.refuses
	a.s.mu.Unlock()
	switch {
	case refuses != nil:
		a.s.changes <- "refuse " + string(m.Name)
		return refuses
	case has == nil:
		a.s.put(m.Name, m.YAML, a.at, front)
	case len(has.owners) == 0 || has.yaml != m.YAML:
		return api.Errorf(http.StatusConflict, "", "another function is called %s there", m.Name)
	default:
		a.s.mu.Lock()
		has.owners = append(slices.DeleteFunc(has.owners, func(o string) bool { return o == front }), front)
		a.s.mu.Unlock()
	}
	a.s.changes <- "apply " + string(m.Name)
	a.s.agent.Changed(m.Name)
	return nil
}

func (a applier) Remove(_ context.Context, name api.FunctionName, front string) error {
	a.s.mu.Lock()
	m := a.s.has[name]
	m.owners = slices.DeleteFunc(m.owners, func(o string) bool { return o == front })
	last := len(m.owners) == 0
	if last {
		delete(a.s.has, name)
	}
	a.s.mu.Unlock()
	if last {
		a.s.activator.RemoveFunction(name)
		a.s.agent.Changed(name)
	}
	a.s.changes <- "remove " + string(name)
	return nil
}

func (a applier) Owners(name api.FunctionName) []string {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	if m := a.s.has[name]; m != nil {
		return slices.Clone(m.owners)
	}
	return nil
}

// placed returns a function that a front door places by a selector.
func placed(selector string) api.Function {
	return api.Function{Name: "default/chat", Clusters: selector, Manifest: "chat", RemoveAfter: time.Second, Hold: api.Hold{Timeout: 20 * time.Second}}.WithDefaults()
}

// joined waits until front doors know what sites accept.
func (f *front) joined(t testing.TB, name api.FunctionName, sites ...string) {
	t.Helper()
	for _, site := range sites {
		for !slices.ContainsFunc(f.Far(name)[0].Why, func(d api.Decision) bool {
			return strings.HasPrefix(string(d.Instance), site+"/") && !strings.Contains(d.Reason, "accepts no function")
		}) {
			time.Sleep(time.Millisecond) // there is no event to wait for
		}
	}
}

var everything = agent.Accept{Functions: []string{"*/*"}}
