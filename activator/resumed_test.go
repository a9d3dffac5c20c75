package activator

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rouse-dev/rouse/activator/keys"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/config/apikey"
)

// uses holds an activator's last report of a function's use.
type uses struct {
	mu   sync.Mutex // guards the fields below
	last api.Usage
	cost float64 // charged to clients' turns
}

func (u *uses) Served(c control.ClientUse) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.cost += c.Cost
}

func (u *uses) Emit(e api.Event) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if e.Type == api.EventUsage {
		_ = json.Unmarshal(e.Data, &u.last)
	}
}

// metered is a bench with one key, whose streams can be resumed.
type metered struct {
	*bench
	instances *resumable
	log       *logText
	uses      uses
}

func newMetered(t *testing.T) *metered {
	t.Helper()
	m := &metered{log: &logText{}}
	access, err := AccessLog("json", m.log)
	if err != nil {
		t.Fatal(err)
	}
	s := keys.NewStore(nil)
	s.Load(&apikey.File{Keys: []apikey.Key{{Name: "a", Tenant: "acme", Hash: apikey.Hash("k-a"), Rights: apikey.Rights{RequestsPerMinute: 100, TokensPerMinute: 100000}}}})
	m.bench = startBench(t, nil, func(d *Deps) { d.Keys, d.Access, d.Emitter, d.Others = s, access, &m.uses, &m.uses })
	m.instances = streamed(m.bench, "m", api.RuntimeEngine, nil)
	return m
}

// want waits until the request has ended, and checks its use in the access log, the tenant's metric and the meter.
func (m *metered) want(input, output int, line string) {
	m.t.Helper()
	m.once()
	text := strings.ReplaceAll(m.log.String(), "}", ",")
	if !strings.Contains(text, fmt.Sprintf(`"input_tokens":%d,`, input)) || !strings.Contains(text, fmt.Sprintf(`"output_tokens":%d,`, output)) || !strings.Contains(text, line) {
		m.t.Errorf("want %d and %d tokens and %s; the access log: %s", input, output, line, text)
	}
	m.uses.mu.Lock()
	defer m.uses.mu.Unlock()
	in, out := 0, 0
	for _, u := range m.uses.last.Uses {
		in, out = in+int(u.Input), out+int(u.Output)
	}
	if in != input || out != output {
		m.t.Errorf("the meter has %d and %d tokens, want %d and %d: %+v", in, out, input, output, m.uses.last)
	}
	want := fmt.Sprintf(`
# HELP rouse_activator_tenant_tokens_total Tokens of answered requests with a key, by tenant and direction (input, output).
# TYPE rouse_activator_tenant_tokens_total counter
rouse_activator_tenant_tokens_total{direction="input",tenant="acme"} %d
rouse_activator_tenant_tokens_total{direction="output",tenant="acme"} %d
`, input, output)
	if err := testutil.GatherAndCompare(m.a.deps.Registry, strings.NewReader(want), "rouse_activator_tenant_tokens_total"); err != nil {
		m.t.Error(err)
	}
}

// once waits until the request has ended: it has one line in the access log, counts once in the meter, and nothing of
// it remains.
func (m *metered) once() {
	m.t.Helper()
	m.eventually("the request's line is there", func() bool { return strings.Contains(m.log.String(), "\n") })
	m.eventually("the meter has counted it", func() bool {
		m.a.spent.Tell(time.Now())
		m.uses.mu.Lock()
		defer m.uses.mu.Unlock()
		return len(m.uses.last.Uses) > 0
	})
	m.left(m.instances.fakes...)
	requests := int64(0)
	m.uses.mu.Lock()
	defer m.uses.mu.Unlock()
	for _, u := range m.uses.last.Uses {
		requests += u.Requests
	}
	if text := m.log.String(); strings.Count(text, "\n") != 1 || requests != 1 {
		m.t.Errorf("the meter has %d requests, want 1; the access log: %s", requests, text)
	}
}

// TestResumedStreamsCountOnce: a stream that was cut twice is one request, one line of the access log, and its tokens
// count once, whether it ends well, its client leaves, or no instance resumes it.
func TestResumedStreamsCountOnce(t *testing.T) {
	const body = `{"model":"m","stream":true}`
	key := []string{"Authorization", "Bearer k-a"}
	t.Run("whole", func(t *testing.T) {
		m := newMetered(t)
		m.instances.cuts = []string{sent(0, 2), moves(2, 3), sent(3, 4)}
		resp, got := m.post(chatPath, body, key...)
		if got != whole() || resp.Header.Get("X-Ratelimit-Remaining-Requests") != "99" {
			t.Fatalf("got %v %q", resp.Header, got)
		}
		m.want(5, 4, `"attempts":4,"resumed":2,"moved":1`)
	})
	t.Run("another model is there", func(t *testing.T) {
		m := newMetered(t)
		m.instances.cuts = []string{sent(0, 3)}
		m.instances.goesOn = func(w http.ResponseWriter, _ *http.Request) bool {
			api.WriteError(w, api.Errorf(http.StatusBadRequest, api.CodeStreamCut, "another model does not go on with it"))
			return true
		}
		if _, got := m.post(chatPath, body, key...); !strings.HasPrefix(got, "data: "+words[0]) || !strings.Contains(got, "another model") {
			t.Fatalf("got %q", got)
		}
		m.want(6, 3, `"code":"stream_cut"`)
	})
	t.Run("nobody is there", func(t *testing.T) {
		m := newMetered(t)
		m.instances.cuts = []string{sent(0, 3)}
		m.instances.before = func() { m.a.RemoveFunction("default/m") }
		if _, got := m.post(chatPath, body, key...); !strings.HasPrefix(got, "data: "+words[0]) || !strings.Contains(got, `"error"`) {
			t.Fatalf("got %q", got)
		}
		m.want(6, 3, `"code"`)
	})
	t.Run("another function is there", func(t *testing.T) {
		m := newMetered(t)
		m.instances.cuts = []string{sent(0, 3)}
		m.instances.before = func() {
			m.a.PutFunction(api.Function{Name: "default/m", Concurrency: 4, Runtime: api.Runtime{Kind: api.RuntimeSGLang}, MaxScale: 2})
		}
		if _, got := m.post(chatPath, body, key...); got[:len("data: "+words[0])] != "data: "+words[0] || strings.Count(got, "one") != 1 || !strings.Contains(got, `"stream_cut"`) {
			t.Fatalf("got %q", got)
		}
		m.want(6, 3, `"code":"stream_cut"`)
	})
	t.Run("the client leaves", func(t *testing.T) {
		m := newMetered(t)
		m.instances.cuts = []string{sent(0, 2)}
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		asked, gone := make(chan struct{}), make(chan struct{})
		m.instances.goesOn = func(_ http.ResponseWriter, r *http.Request) bool {
			close(asked)
			<-r.Context().Done()
			close(gone)
			return true
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.ts.URL+chatPath, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(key[0], key[1])
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		<-asked
		leave()
		<-gone // the instance that resumes it notices
		m.want(6, 2, `"status":499`)
		if s, _ := m.a.Stats("default/m"); s.Waiting != 0 || s.Running != 0 {
			t.Errorf("a slot is taken: %+v", s)
		}
	})
}

// TestAClusterDoesNotBeginAgain: a cluster whose function has a runtime that can't resume refuses a request that a
// front door has begun elsewhere.
func TestAClusterDoesNotBeginAgain(t *testing.T) {
	b := startBench(t, nil)
	f := streamed(b, "m", api.RuntimeSGLang, nil)
	for state, want := range map[string]int{"id:1::0:11": http.StatusBadGateway, control.StateNew: http.StatusOK} {
		r := httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(`{"model":"m","stream":true}`))
		r.Header.Set(control.HeaderState, state)
		w := httptest.NewRecorder()
		if b.a.ServeAtOnce(w, r, "default/m"); w.Code != want || (want != http.StatusOK) != strings.Contains(w.Body.String(), api.CodeStreamCut) {
			t.Errorf("with the state %q: got %d %s, want %d", state, w.Code, w.Body, want)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.states) != 1 {
		t.Errorf("instances were asked %d times, want once", len(f.states))
	}
}

// TestClientsOfResumedStreams: in each API, the client gets the stream whole.
func TestClientsOfResumedStreams(t *testing.T) {
	b := startBench(t, nil)
	f := streamed(b, "m", api.RuntimeEngine, nil)
	const body = `{"model":"m","stream":true}`
	cut := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.cuts, f.states = []string{sent(0, 2), sent(2, 3) + control.StateComment + "15\ndata: {\"cho"}, nil
	}
	cut()
	if _, got := b.post(chatPath, body, "Accept-Encoding", "gzip, br"); got != whole() {
		t.Errorf("a client that takes gzip got %q", got)
	}
	cut()
	connection, err := net.Dial("tcp", b.ts.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	_, _ = fmt.Fprintf(connection, "POST %s HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", chatPath, len(body), body)
	resp, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(resp.Body)
	if resp.Body.Close(); err != nil || string(raw) != whole() {
		t.Errorf("a client of HTTP/1.0 got %q, %v", raw, err)
	}
	cut()
	server := &http.Server{Handler: b.a.Handler(), Protocols: new(http.Protocols)}
	server.Protocols.SetUnencryptedHTTP2(true)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	transport := &http.Transport{Protocols: server.Protocols}
	defer transport.CloseIdleConnections()
	resp, err = (&http.Client{Transport: transport}).Post("http://"+l.Addr().String()+chatPath, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	raw, err = io.ReadAll(resp.Body)
	if resp.Body.Close(); err != nil || resp.ProtoMajor != 2 || string(raw) != whole() {
		t.Errorf("a client of %s got %q, %v", resp.Proto, raw, err)
	}
	// An answer in an encoding that can't be read here can't be resumed, and the client notices the cut.
	f.mu.Lock()
	f.cuts, f.encoding = []string{sent(0, 2)}, "gzip"
	f.mu.Unlock()
	resp, err = http.Post(b.ts.URL+chatPath, "application/json", bytes.NewReader([]byte(body)))
	if err == nil {
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
	}
	if err == nil {
		t.Error("an encoded stream that was cut has a clean end")
	}
}
