package door_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/federation/agent"
	"github.com/rouse-dev/rouse/activator/federation/door"
	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

const chatPath = "/v1/chat/completions"

// authority returns a self-signed certificate for 127.0.0.1.
func authority(t testing.TB) (server *tls.Config, pool *x509.CertPool) {
	t.Helper()
	server, c := authorityOf(t)
	pool = x509.NewCertPool()
	pool.AddCert(c)
	return server, pool
}

// authorityOf is authority with more names.
func authorityOf(t testing.TB, names ...string) (server *tls.Config, c *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c = &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "front"}, DNSNames: names, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	c, err = x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, c
}

// wakerOf is never called: nothing is granted in these tests.
type wakerOf struct{}

func (wakerOf) Wake(context.Context, api.Endpoint, api.Grant) (api.InstanceStatus, error) {
	return api.InstanceStatus{}, fmt.Errorf("not granted")
}

func logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// newActivator makes an activator that runs until the test ends.
func newActivator(t testing.TB, name string, emit api.Emitter, transport http.RoundTripper, sight ...activator.Sight) *activator.Activator {
	t.Helper()
	deps := activator.Deps{Emitter: emit, Waker: wakerOf{}, Transport: transport, Logger: logger(t)}
	if len(sight) > 0 { // a front door trusts its clients' identities
		deps.Sight, deps.Peers = sight[0], &peer.Addresses{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	}
	a, err := activator.New(activator.Config{Name: name}, deps)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = a.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return a
}

// front is a front door with its activator, at an address.
type front struct {
	*door.Front
	activator *activator.Activator
	server    *httptest.Server
	at        string
	logged    logged
	registry  *prometheus.Registry
	watch     atomic.Pointer[agent.Agent] // makes it an agent of another front door
}

// logged keeps what a front door logs.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// has waits until all the words are in one line.
func (l *logged) has(t *testing.T, words ...string) {
	t.Helper()
	for late := time.Now().Add(30 * time.Second); time.Now().Before(late); {
		for line := range strings.Lines(l.all()) {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
				return
			}
		}
		time.Sleep(time.Millisecond) // there is no event to wait for
	}
	t.Errorf("it does not log a line with %q", words)
}

func newFront(t testing.TB, tlsConfig *tls.Config, declared ...door.Declaration) *front {
	t.Helper()
	return newFrontNamed(t, "front", tlsConfig, declared...)
}

func newFrontNamed(t testing.TB, name string, tlsConfig *tls.Config, declared ...door.Declaration) *front {
	t.Helper()
	return newFrontWith(t, name, nil, tlsConfig, declared...)
}

// newFrontWith is newFrontNamed on a machine that may have its own functions, whose autoscaler is near.
func newFrontWith(t testing.TB, name string, near api.Emitter, tlsConfig *tls.Config, declared ...door.Declaration) *front {
	t.Helper()
	f := &front{registry: prometheus.NewRegistry()}
	later := &relayed{of: f}
	f.activator = newActivator(t, "front", later, later, later)
	var err error
	owner := ""
	if group, _, shared := strings.Cut(name, "/"); shared { // like the activators of one cluster
		owner = group
	}
	if f.Front, err = door.New(door.Config{Name: name, Owner: owner}, door.Deps{Activator: f.activator, Near: near, Transport: api.NewTransport(64), Logger: slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), &f.logged), &slog.HandlerOptions{Level: slog.LevelDebug})), Changed: later.changed, Registry: f.registry}); err != nil {
		t.Fatal(err)
	}
	later.front.Store(f.Front)
	if err := f.Declare(declared); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.at = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Serve(ctx, l, door.TLS(tlsConfig)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	f.server = httptest.NewServer(f.activator.Handler())
	t.Cleanup(f.server.Close)
	return f
}

// relayed stands in for the front door before it exists.
type relayed struct {
	of    *front
	front atomic.Pointer[door.Front]
}

func (r *relayed) Emit(e api.Event) {
	if f := r.front.Load(); f != nil {
		f.Emit(e)
	}
	if a := r.of.watch.Load(); a != nil {
		a.Watch(e)
	}
}

func (r *relayed) changed(name api.FunctionName) {
	if a := r.of.watch.Load(); a != nil {
		a.Changed(name)
	}
}

func (r *relayed) RoundTrip(req *http.Request) (*http.Response, error) {
	return r.front.Load().RoundTrip(req)
}

func (r *relayed) Sees(name api.FunctionName) func(string, api.InstanceID) bool {
	return r.front.Load().Sees(name)
}

func (r *relayed) Bars(name api.FunctionName, client string) *api.Error {
	return r.front.Load().Bars(name, client)
}

// ask sends a chat and returns the status and the body.
func (f *front) ask(t *testing.T, model string) (int, string) {
	t.Helper()
	return f.send(t, chatPath, "", model)
}

// askAt is ask at another API's path.
func (f *front) askAt(t *testing.T, path, model string) (int, string) {
	t.Helper()
	return f.send(t, path, "", model)
}

// askAs is ask as a tenant.
func (f *front) askAs(t *testing.T, tenant, model string) (int, string) {
	t.Helper()
	return f.send(t, chatPath, tenant, model)
}

// send is ask at a path, as a tenant.
func (f *front) send(t *testing.T, path, tenant, model string) (int, string) {
	t.Helper()
	body, _ := json.Marshal(map[string]any{"model": model, "messages": []any{}})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.server.URL+path, bytes.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	req.Header.Set("Content-Type", "application/json")
	if tenant != "" {
		req.Header.Set(control.HeaderTenant, tenant)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(got)
}

// cluster is a remote cluster: an activator, an agent, and one instance that a brain wakes on demand.
type cluster struct {
	name      string
	activator *activator.Activator
	agent     *agent.Agent
	instance  *httptest.Server
	answer    http.HandlerFunc
	stop      func()

	mu     sync.Mutex // guards the fields below
	status api.InstanceStatus
	wakes  int
	trace  string // of the last demand
}

func newCluster(t testing.TB, name, token string, pool *x509.CertPool, spec api.Function, fronts ...string) *cluster {
	t.Helper()
	c := &cluster{name: name}
	c.answer = func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"from":%q}`, name)
	}
	c.instance = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.answer(w, r) }))
	t.Cleanup(c.instance.Close)
	c.status = api.InstanceStatus{Instance: api.InstanceID(name + "-1"), Function: spec.Name, State: api.Asleep, Endpoint: api.Endpoint(c.instance.URL), Concurrency: 2, Seq: 1,
		Model: &api.ModelFacts{Size: 7, Context: 64, Details: api.ModelDetails{Family: "llama", Families: []string{"llama"}}}}
	c.activator = newActivator(t, name, api.EmitterFunc(c.brain), api.NewTransport(64))
	c.activator.PutFunction(spec)
	var err error
	if c.agent, err = agent.New(agent.Config{Fronts: fronts, Cluster: name, Agent: "agent-1", TLS: &tls.Config{RootCAs: pool}, Token: func() (string, error) { return token, nil }},
		agent.Deps{Serve: c.activator.ServeAtOnce, Functions: func() []api.Function { return []api.Function{spec.WithDefaults()} }, Stats: c.activator.Stats,
			Wakes: c.woken, Emitter: api.EmitterFunc(c.brain), Logger: logger(t)}); err != nil {
		t.Fatal(err)
	}
	c.activator.ObserveInstance(c.status)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.agent.Run(ctx, 10*time.Second) }()
	c.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(c.stop)
	return c
}

// brain wakes the instance as soon as a request waits.
func (c *cluster) brain(e api.Event) {
	if c.agent != nil {
		c.agent.Watch(e)
	}
	var d api.Demand
	if e.Type != api.EventDemand || json.Unmarshal(e.Data, &d) != nil || d.Waiting == 0 {
		return
	}
	c.mu.Lock()
	c.trace = d.Trace
	c.mu.Unlock()
	go c.set(api.Awake)
}

// woken returns the record of the last wake, by a clock that is an hour wrong.
func (c *cluster) woken(name api.FunctionName) []api.WakeTrace {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, _ := api.ParseTrace(c.trace)
	return []api.WakeTrace{{Function: name, Instance: c.status.Instance, Trace: at.ID, Root: at.Span, Path: "hot", By: api.PartAutoscaler, Reason: "1 request waits", Start: time.Now().Add(-time.Hour),
		Total: time.Microsecond, Spans: []api.Span{{ID: "1111111111111111", Parent: at.Span, Name: api.SpanWake, Part: api.PartAutoscaler, Took: time.Microsecond}}}}
}

// set changes the state of the instance.
func (c *cluster) set(state api.State) {
	c.mu.Lock()
	if state == api.Awake && c.status.State != api.Awake {
		c.wakes++
	}
	c.status.State = state
	c.status.Seq++
	st := c.status
	c.mu.Unlock()
	c.activator.ObserveInstance(st)
	c.agent.Changed(st.Function)
}

var chat = api.Function{Name: "default/chat", Model: "chat", Concurrency: 2, MaxScale: 1, Runtime: api.Runtime{Kind: api.RuntimeCommand}}

func declared(name, token string, functions ...string) door.Declaration {
	return door.Declaration{Name: name, TokenHashes: []string{door.HashToken(token)}, Functions: functions}
}

// declaredBy declares a cluster with a certificate.
func declaredBy(name, certificate string) door.Declaration {
	return door.Declaration{Name: name, Certificate: certificate, Functions: []string{"*/*"}}
}

// known waits until the front door knows a function.
func (f *front) known(t testing.TB, name api.FunctionName) {
	t.Helper()
	for !f.activator.Declared(name) {
		time.Sleep(time.Millisecond) // there is no event to wait for
	}
}

// TestHeldAtTheFrontDoor: a request for an instance that sleeps in a cluster is held, wakes it there, and is
// answered.
func TestHeldAtTheFrontDoor(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	f := newFront(t, server, declared("west", "secret", "default/*"))
	west := newCluster(t, "west", "secret", pool, chat, f.at)
	f.known(t, chat.Name)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if status, body := f.ask(t, "chat"); status != 200 || body != `{"from":"west"}` {
				t.Errorf("%d %s", status, body)
			}
		})
	}
	all.Wait()
	if west.wakes != 1 {
		t.Errorf("woken %d times", west.wakes)
	}
	stats, _ := f.activator.Stats(chat.Name)
	if len(stats.Instances) != 1 || stats.Instances[0].Model == nil || stats.Instances[0].Model.Size != 7 || stats.Instances[0].Model.Details.Family != "llama" {
		t.Errorf("of the model there it knows %+v", stats.Instances)
	}
}

// TestAwakeFirst: if one cluster is awake and another asleep, nothing is woken.
func TestAwakeFirst(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	f := newFront(t, server, declared("west", "w", "default/chat"), declared("east", "e", "default/chat"))
	west := newCluster(t, "west", "w", pool, chat, f.at)
	f.known(t, chat.Name)
	west.set(api.Awake)
	if status, body := f.ask(t, "chat"); status != 200 || body != `{"from":"west"}` {
		t.Errorf("%d %s", status, body)
	}
	east := newCluster(t, "east", "e", pool, chat, f.at)
	for n := 0; n < 50; n++ {
		if status, body := f.ask(t, "chat"); status != 200 || body != `{"from":"west"}` {
			t.Errorf("%d %s", status, body)
		}
	}
	if east.wakes != 0 {
		t.Error("the sleeper was woken")
	}
}

// TestClusterLeaves: an agent that ends finishes its running requests; waiting ones go to another cluster.
func TestClusterLeaves(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	f := newFront(t, server, declared("west", "w", "default/chat"), declared("east", "e", "default/chat"))
	west := newCluster(t, "west", "w", pool, chat, f.at)
	begun, finish := make(chan struct{}), make(chan struct{})
	west.answer = func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-finish
		fmt.Fprint(w, `{"from":"west"}`)
	}
	f.known(t, chat.Name)
	first := make(chan string, 1)
	go func() {
		_, body := f.ask(t, "chat")
		first <- body
	}()
	<-begun
	left := make(chan struct{})
	go func() { defer close(left); west.stop() }()
	newCluster(t, "east", "e", pool, chat, f.at)
	if status, body := f.ask(t, "chat"); status != 200 || body != `{"from":"east"}` {
		t.Errorf("%d %s", status, body)
	}
	close(finish)
	if body := <-first; body != `{"from":"west"}` {
		t.Errorf("the one that ran: %s", body)
	}
	<-left
}

// TestNotAllowed: an agent with a wrong token, or with a function that it may not serve, gets nothing, and disturbs
// no one.
func TestNotAllowed(t *testing.T) {
	t.Parallel()
	server, pool := authority(t)
	f := newFront(t, server, declared("west", "w", "default/chat"), declared("east", "e", "default/other"))
	newCluster(t, "west", "another token", pool, chat, f.at)
	newCluster(t, "east", "e", pool, chat, f.at)
	newCluster(t, "nobody", "e", pool, chat, f.at)
	newCluster(t, "west", "w", pool, chat, f.at)
	f.known(t, chat.Name)
	for range 5 {
		if status, body := f.ask(t, "chat"); status != 200 || body != `{"from":"west"}` {
			t.Errorf("%d %s", status, body)
		}
	}
}
