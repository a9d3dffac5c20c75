package activator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/activator/queue"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

const chatPath = "/v1/chat/completions"

// fakeInstance is a fake instance on a Unix socket: the client path of chat, and the control path that wakes it. The
// test chooses its answers.
type fakeInstance struct {
	t        testing.TB
	id       api.InstanceID
	function api.FunctionName
	endpoint api.Endpoint
	report   func(api.InstanceStatus) // for reports that the node agent would pass on

	// oldSteps means that the steps in its status are from before the next wake.
	oldSteps bool
	// wakeTakes and wakeFails determine the next wakes.
	wakeTakes time.Duration
	// before and after are called in a wake before the instance is awake, and before it reports that; nil: not
	// called.
	before, after func()
	wakeFails     atomic.Int32
	// chat answers a request that the instance accepted; nil: one word.
	chat http.HandlerFunc

	mu     sync.Mutex // guards all below
	status api.InstanceStatus
	turned chan struct{} // closed when the state is next set, or a wake fails

	wakes, served, refused atomic.Int32
	kept                   atomic.Int32 // requests held for a wake
	most, running          atomic.Int32
}

func startFake(t testing.TB, function api.FunctionName, id string, concurrency int) *fakeInstance {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	f := &fakeInstance{t: t, id: api.InstanceID(id), function: function, endpoint: api.Endpoint("unix:" + socket), report: func(api.InstanceStatus) {}}
	f.status = api.InstanceStatus{Instance: f.id, Function: function, State: api.Asleep, Level: api.Level1, PID: 7, Endpoint: f.endpoint, Concurrency: concurrency, Since: time.Now()}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: f, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return f
}

// set changes the state and returns the new report, without passing it on.
func (f *fakeInstance) set(s api.State) api.InstanceStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status.State = s
	f.status.Seq++
	f.status.Since = time.Now()
	f.turn()
	return f.status
}

// turn releases the requests that wait for the wake. f.mu is held.
func (f *fakeInstance) turn() {
	if f.turned != nil {
		close(f.turned)
	}
	f.turned = nil
}

// await holds a request that came behind a wake, as instances do.
func (f *fakeInstance) await(r *http.Request) {
	f.mu.Lock()
	if r.Header.Get(control.HeaderWait) == "" || f.status.State != api.Asleep {
		f.mu.Unlock()
		return
	}
	if f.turned == nil {
		f.turned = make(chan struct{})
	}
	turned := f.turned
	f.mu.Unlock()
	body, _ := io.ReadAll(r.Body) // otherwise the client's leaving goes unnoticed
	r.Body = io.NopCloser(bytes.NewReader(body))
	f.kept.Add(1)
	select {
	case <-turned:
	case <-time.After(control.MostWait): // it came after the wake and the sleep that followed
	case <-r.Context().Done():
	}
}

func (f *fakeInstance) state() api.State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status.State
}

func (f *fakeInstance) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == control.PathWake {
		f.wake(w, r)
		return
	}
	if f.await(r); r.Context().Err() != nil {
		return
	}
	if s := f.state(); s != api.Awake {
		f.refused.Add(1)
		w.Header().Set(control.HeaderRefused, api.CodeAsleep)
		api.WriteError(w, api.Errorf(http.StatusServiceUnavailable, api.CodeAsleep, "the instance is %s", s))
		return
	}
	n := f.running.Add(1)
	defer f.running.Add(-1)
	for most := f.most.Load(); n > most && !f.most.CompareAndSwap(most, n); most = f.most.Load() {
	}
	f.served.Add(1)
	if f.chat != nil {
		f.chat(w, r)
		return
	}
	answerOnce(w, r)
}

func (f *fakeInstance) wake(w http.ResponseWriter, r *http.Request) {
	f.wakes.Add(1)
	time.Sleep(f.wakeTakes)
	if f.before != nil {
		f.before()
	}
	if f.wakeFails.Add(-1) >= 0 {
		f.mu.Lock()
		f.turn()
		f.mu.Unlock()
		api.WriteError(w, api.Errorf(http.StatusInternalServerError, api.CodeStartFailed, "no memory"))
		return
	}
	f.mu.Lock()
	if !f.oldSteps {
		f.status.StepsSpan = api.TraceFrom(r.Header).Span
	}
	f.mu.Unlock()
	st := f.set(api.Awake)
	if f.after != nil {
		f.after()
	}
	f.report(st)
	_ = json.NewEncoder(w).Encode(st)
}

// answerOnce answers with the request's own body, so that a test can match answers to requests.
func answerOnce(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if strings.Contains(string(body), `"stream":true`) {
		streamEvents(w, "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":null}]}\n\n",
			"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n", "data: [DONE]\n\n")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"object":"chat.completion","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":%q}}]}`, body)
}

// streamEvents writes events, each flushed.
func streamEvents(w http.ResponseWriter, events ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		_, _ = io.WriteString(w, e)
		w.(http.Flusher).Flush()
	}
}

// bench is an activator behind a real server, with what it emitted.
type bench struct {
	t  testing.TB
	a  *Activator
	ts *httptest.Server
	// comments counts the comments that clients got.
	comments atomic.Int32

	mu     sync.Mutex // guards events
	events []api.Demand
}

func (b *bench) Emit(e api.Event) {
	if e.Type != api.EventDemand {
		return
	}
	var d api.Demand
	if err := json.Unmarshal(e.Data, &d); err != nil {
		b.t.Errorf("event %s: %v", e.Type, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, d)
}

func (b *bench) demands() []api.Demand {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]api.Demand(nil), b.events...)
}

func startBench(t testing.TB, change func(*Config), further ...func(*Deps)) *bench {
	t.Helper()
	b := &bench{t: t}
	cfg := Config{Name: "test"}
	if change != nil {
		change(&cfg)
	}
	transport := api.NewTransport(64)
	deps := Deps{Emitter: b, Waker: control.New(transport, nil), Transport: transport}
	for _, f := range further {
		f(&deps)
	}
	a, err := New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	b.a = a
	b.ts = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.Handler().ServeHTTP(commentCounter{w, &b.comments}, r)
	}))
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { _ = a.Run(ctx) })
	t.Cleanup(func() {
		b.ts.Close()
		cancel()
		run.Wait()
		transport.CloseIdleConnections()
	})
	return b
}

// commentCounter counts the comments that are written to a client.
type commentCounter struct {
	http.ResponseWriter
	comments *atomic.Int32
}

// Write implements [http.ResponseWriter].
func (w commentCounter) Write(p []byte) (int, error) {
	if bytes.HasPrefix(p, []byte(": rouse ")) {
		w.comments.Add(1)
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap is for [http.ResponseController].
func (w commentCounter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// queue returns a declared function.
func (b *bench) queue(name api.FunctionName) *queue.Function { return b.a.names.Load().byName[name] }

// demand returns the present demand of a function.
func (b *bench) demand(name api.FunctionName) api.Demand {
	b.a.Report(name)
	all := b.demands()
	return all[len(all)-1]
}

// function declares a function and returns its name.
func (b *bench) function(name string, change func(*api.Function)) api.FunctionName {
	f := api.Function{Name: api.NewFunctionName("", name), Concurrency: 4}
	if change != nil {
		change(&f)
	}
	b.a.PutFunction(f)
	return f.Name
}

// instance starts a fake instance in a state.
func (b *bench) instance(function api.FunctionName, id string, s api.State) *fakeInstance {
	f := startFake(b.t, function, id, 4)
	f.report = b.a.ObserveInstance
	b.a.ObserveInstance(f.set(s))
	return f
}

// grant gives a standing grant.
func (b *bench) grant(f *fakeInstance, epoch uint64) api.Grant {
	g := api.Grant{Instance: f.id, Function: f.function, Epoch: epoch, Expires: time.Now().Add(time.Hour)}
	b.a.Grant(g)
	return g
}

// post sends a chat request and returns the answer with its body read.
func (b *bench) post(path, body string, header ...string) (*http.Response, string) {
	b.t.Helper()
	req, err := http.NewRequest(http.MethodPost, b.ts.URL+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		} else {
			req.Header.Set(header[i], header[i+1])
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatalf("POST %s: %v", path, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatalf("POST %s: read the answer: %v", path, err)
	}
	return resp, string(raw)
}

// eventually waits until ok, or fails the test.
func (b *bench) eventually(what string, ok func() bool) {
	b.t.Helper()
	deadline := time.NewTimer(5 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			b.t.Fatalf("not within 5 s: %s", what)
		case <-tick.C:
		}
	}
}
