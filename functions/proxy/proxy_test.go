package proxy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/proxy"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/relay/relaytest"
)

// gate is open for base, or refuses.
type gate struct {
	base    string
	refused *api.Error
	inside  atomic.Int32
	moved   atomic.Int32
	lost    atomic.Int32
}

func (g *gate) Enter() (string, *api.Error) {
	if g.refused != nil {
		return "", g.refused
	}
	g.inside.Add(1)
	return g.base, nil
}

func (g *gate) EnterProbe() (string, *api.Error) { return g.Enter() }

func (g *gate) EnterBehind(ctx context.Context, _ time.Duration) (string, context.Context, func() *api.Error, *api.Error) {
	base, refused := g.Enter()
	return base, ctx, nil, refused
}

func (g *gate) Leave() { g.inside.Add(-1) }

func (g *gate) Moved() { g.moved.Add(1) }

func (g *gate) Unreachable() { g.lost.Add(1) }

// bench is a client before a proxy before a runtime.
type bench struct {
	*httptest.Server
	gate     *gate
	outcomes chan proxy.Outcome
}

func set(t *testing.T, runtime http.HandlerFunc, change ...func(*proxy.Config)) *bench {
	t.Helper()
	rt := httptest.NewServer(runtime)
	t.Cleanup(rt.Close)
	b := &bench{gate: &gate{base: rt.URL}, outcomes: make(chan proxy.Outcome, 100)}
	cfg := proxy.Config{Gate: b.gate, Transport: api.NewTransport(8), Observe: func(o proxy.Outcome) { b.outcomes <- o }}
	for _, c := range change {
		c(&cfg)
	}
	b.Server = httptest.NewServer(proxy.New(cfg))
	t.Cleanup(b.Close)
	return b
}

func (b *bench) post(t *testing.T, path, body string) (*http.Response, string, error) {
	t.Helper()
	resp, err := http.Post(b.URL+path, "application/json", strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return resp, string(raw), err
}

// wantIdle checks that every slot was given back.
func (b *bench) wantIdle(t *testing.T) proxy.Outcome {
	t.Helper()
	o := <-b.outcomes
	late := time.After(5 * time.Second)
	for b.gate.inside.Load() != 0 { // the outcome may come before Leave
		select {
		case <-time.After(time.Millisecond):
		case <-late:
			t.Fatalf("%d places are taken after the request", b.gate.inside.Load())
		}
	}
	return o
}

func code(t *testing.T, body string) string {
	t.Helper()
	var e struct {
		Error struct{ Message, Code string }
	}
	if err := json.Unmarshal([]byte(body), &e); err != nil || e.Error.Message == "" {
		t.Errorf("body %q is no OpenAI error: %v", body, err)
	}
	return e.Error.Code
}

func TestRoute(t *testing.T) {
	open := []string{
		"GET /v1/models", "HEAD /v1/models", "GET /v1/models/a", "GET /v1/models/Qwen/Qwen3", "POST /v1/chat/completions", "POST /v1/audio/transcriptions",
		"POST /rerank", "GET /version", "POST /v1/messages/count_tokens", "GET /v1/responses/resp_1", "POST /v1/responses/resp_1/cancel",
		"POST /v2/rerank", "POST /v2/embed", "POST /v1/chat/completions/render", "POST /generate", "POST /encode", "GET /get_model_info",
		"POST /completion", "POST /infill", "POST /apply-template", "POST /api/chat", "POST /api/generate", "POST /api/embed",
		"POST /api/embeddings", "POST /api/show", "GET /api/tags", "GET /api/version", "GET /api/ps",
	}
	// These paths change the model, its sleep, or reveal the host.
	shut := []string{
		// vLLM
		"POST /sleep", "POST /wake_up", "GET /is_sleeping", "POST /collective_rpc", "POST /reset_prefix_cache", "POST /pause", "POST /resume",
		"POST /scale_elastic_ep", "POST /update_weights", "POST /init_weight_transfer_engine", "POST /abort_requests", "GET /server_info",
		"POST /v1/load_lora_adapter", "POST /v1/unload_lora_adapter", "GET /metrics", "GET /load", "POST /invocations", "GET /ping",
		// SGLang
		"POST /release_memory_occupation", "POST /resume_memory_occupation", "POST /load_lora_adapter", "POST /unload_lora_adapter",
		"POST /flush_cache", "GET /flush_cache", "POST /update_weights_from_disk", "POST /pause_generation", "POST /start_profile",
		"GET /get_server_info", "POST /set_internal_state", "POST /abort_request", "POST /open_session", "GET /health_generate",
		// Ollama
		"POST /api/pull", "POST /api/push", "POST /api/create", "POST /api/copy", "DELETE /api/delete", "POST /api/delete",
		"HEAD /api/blobs/sha256:0", "POST /api/blobs/sha256:0", "GET /api/show", "POST /api/signout", "POST /api/me",
		// llama.cpp
		"GET /props", "POST /props", "GET /slots", "POST /slots/0", "GET /lora-adapters", "POST /lora-adapters", "POST /models/load",
		"POST /models/unload", "GET /models", "POST /models", "DELETE /models",
		// ours, and what resembles a path of clients
		"GET /", "POST /rouse/v1/wake", "POST /adapters/a", "DELETE /adapters/a", "GET /adapters/info", "POST /v1/models", "DELETE /v1/models/a",
		"GET /v1/chat/completions", "POST /v1/chat/completions/", "POST //v1/chat/completions", "POST /v1/audio/", "POST /v1/audio/../../sleep",
		"POST /v1/audio//x", "POST /v1/audio/%2e%2e/x", "GET /v1/models/a/./b", "GET /v1/models/..", "GET /v1/models/..\\..",
		"GET /v1/responses/a/b", "POST /v1/responses/../sleep/cancel", "POST /v1/responses//cancel", "POST /v1/responses/a/b/cancel", "DELETE /v1/responses/a",
	}
	for want, paths := range map[bool][]string{true: open, false: shut} {
		for _, path := range paths {
			method, p, _ := strings.Cut(path, " ")
			if _, got := proxy.Route(method, p); got != want {
				t.Errorf("%s is served: %t, want %t", path, got, want)
			}
		}
	}
}

func TestUnknownPathIs404(t *testing.T) {
	b := set(t, func(http.ResponseWriter, *http.Request) { t.Error("the runtime was asked") })
	for _, path := range []string{"/sleep", "/v1/audio/..%2F..%2Fsleep", "/v1/nothing"} {
		resp, body, err := b.post(t, path, "{}")
		if err != nil || resp.StatusCode != 404 || code(t, body) != api.CodeUnknownPath {
			t.Errorf("%s: %v %v %s, want 404 %s", path, resp, err, body, api.CodeUnknownPath)
		}
	}
}

func TestBytesAreUntouched(t *testing.T) {
	const sent = `{"model": "x",  "weird":1.0e5, "unknown":{"ключ":[]}}` + "\n"
	const answer = "{ \"a\" :  1 }\n\n"
	var got http.Header
	b := set(t, func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		if string(raw) != sent || r.URL.RawQuery != "x=%20y&b" || r.ContentLength != int64(len(sent)) {
			t.Errorf("the runtime got %q, query %q, length %d", raw, r.URL.RawQuery, r.ContentLength)
		}
		got = r.Header.Clone()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Own", "1")
		w.Header().Set(control.HeaderRefused, "spoofed")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, answer)
	})
	req, _ := http.NewRequest("POST", b.URL+"/v1/chat/completions?x=%20y&b", strings.NewReader(sent))
	req.Header = http.Header{"X-Client": {"a", "b"}, "Authorization": {"Bearer k"}, "X-Rouse-Tenant": {"1.2.3.4"}, "K-Proxy-Request": {"x"}, "Ce-Id": {"x"}, "Connection": {"close, X-Hop"}, "X-Hop": {"1"}, "User-Agent": {"ua"}, "Forwarded": {"for=1.2.3.4"}, "X-Forwarded-For": {"1.2.3.4"}, "X_forwarded_proto": {"https"}, "X-Real-Ip": {"1.2.3.4"}}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, _ := io.ReadAll(resp.Body)
	if string(raw) != answer || resp.StatusCode != http.StatusTeapot || resp.Header.Get("X-Own") != "1" || resp.Header.Get(control.HeaderRefused) != "" {
		t.Errorf("the client got %d %q %v", resp.StatusCode, raw, resp.Header)
	}
	want := http.Header{"X-Client": {"a", "b"}, "User-Agent": {"ua"}, "Content-Length": {fmt.Sprint(len(sent))}, "Accept-Encoding": {"gzip"}, "Content-Type": {"application/json"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("headers at the runtime (-want +got):\n%s", diff)
	}
	if o := b.wantIdle(t); o.Status != http.StatusTeapot || o.Path != "/v1/chat/completions" || o.FirstByte <= 0 {
		t.Errorf("outcome %+v", o)
	}
}

func TestRefused(t *testing.T) {
	b := set(t, func(http.ResponseWriter, *http.Request) { t.Error("the runtime was asked") })
	b.gate.refused = api.Errorf(503, api.CodeAsleep, "the instance is asleep")
	resp, body, err := b.post(t, "/v1/completions", strings.Repeat("x", 1<<20)) // more than a server reads by itself
	if err != nil || resp.StatusCode != 503 || code(t, body) != api.CodeAsleep || resp.Header.Get(control.HeaderRefused) != api.CodeAsleep {
		t.Errorf("%v %v %s, want 503 asleep and the header", resp, err, body)
	}
	b.wantIdle(t)
}

func TestBodyTooLarge(t *testing.T) {
	b := set(t, func(http.ResponseWriter, *http.Request) { t.Error("the runtime was asked") }, func(c *proxy.Config) { c.Door = inbound.New(inbound.Config{MaxBody: 10}) })
	for name, body := range map[string]io.Reader{"known length": strings.NewReader("12345678901"), "unknown length": io.MultiReader(strings.NewReader("12345678901"))} {
		resp, err := http.Post(b.URL+"/v1/completions", "application/json", body)
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 413 || code(t, string(raw)) != api.CodeTooLarge || resp.Header.Get(control.HeaderRefused) != "" {
			t.Errorf("%s: %d %s, want 413", name, resp.StatusCode, raw)
		}
		b.wantIdle(t)
	}
}

func TestNoConnectionIsARefusal(t *testing.T) {
	b := set(t, nil)
	b.gate.base = "http://127.0.0.1:1"
	resp, body, err := b.post(t, "/v1/completions", "{}")
	if err != nil || resp.StatusCode != 503 || resp.Header.Get(control.HeaderRefused) != api.CodeUnhealthy {
		t.Errorf("%v %v %s, want 503 and the header: the runtime has not seen it", resp, err, body)
	}
	if n := b.gate.lost.Load(); n != 1 {
		t.Errorf("the gate was told %d times that there is no connection", n)
	}
	b.wantIdle(t)
}

// raw answers with raw bytes and then closes the connection.
func raw(answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(conn, answer)
		_ = conn.Close()
	}
}

const (
	chunked   = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	plainHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
)

func TestRuntimeFails(t *testing.T) {
	big := strings.Repeat("x", 100<<10)
	for name, tt := range map[string]struct {
		answer  string
		aborted bool
	}{
		"no answer":               {"", false},
		"no headers":              {"HTTP/1.1 200 OK\r\nConte", false},
		"stream without a byte":   {chunked, false},
		"half a line of stream":   {chunked + "8\r\ndata: {\"\r\n", false},
		"short answer cut":        {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"a\":", false},
		"chunked JSON cut":        {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"a\":\r\n", false},
		"long answer cut":         {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 200000\r\n\r\n" + big, true},
		"audio of unknown length": {"HTTP/1.1 200 OK\r\nContent-Type: audio/wav\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nRIFF.\r\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			b := set(t, raw(tt.answer))
			resp, body, err := b.post(t, "/v1/chat/completions", "{}")
			o := b.wantIdle(t)
			switch {
			case tt.aborted:
				if resp == nil || !errors.Is(err, io.ErrUnexpectedEOF) || o.Code != api.CodeStreamCut {
					t.Errorf("%v, error %v, outcome %+v; want an answer that breaks off", resp, err, o)
				}
			case err != nil || resp.StatusCode != 502 || code(t, body) != api.CodeRuntimeFailed || resp.Header.Get(control.HeaderRefused) != "":
				t.Errorf("%v %v %s, want 502 runtime_failed and no promise", resp, err, body)
			case resp.Header.Get(control.HeaderFailed) != api.CodeRuntimeFailed:
				t.Errorf("%v, want %s: not every API has codes in its errors", resp.Header, control.HeaderFailed)
			}
		})
	}
}

func chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

func TestStreamEnds(t *testing.T) {
	relaytest.Ends{Through: func(t *testing.T, s relaytest.Stream) string {
		text := "HTTP/1.1 200 OK\r\nContent-Type: " + s.ContentType + "\r\nTransfer-Encoding: chunked\r\n\r\n"
		for _, p := range s.Pieces {
			text += chunk(p)
		}
		if !s.Broken {
			text += chunk("")
		}
		b := set(t, raw(text))
		resp, body, err := b.post(t, s.Path, "{}")
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%v %v", resp, err)
		}
		if o := b.wantIdle(t); (o.Code != "") != strings.Contains(body, "before the answer was complete") || o.Code != "" && o.Code != api.CodeStreamCut {
			t.Errorf("the outcome is %+v of %q", o, body)
		}
		return body
	}}.Run(t)
}

// wrapped is a writer wrapped for a [http.ResponseController], as a translator wraps it.
type wrapped struct{ w http.ResponseWriter }

func (w wrapped) Header() http.Header         { return w.w.Header() }
func (w wrapped) Write(p []byte) (int, error) { return w.w.Write(p) }
func (w wrapped) WriteHeader(status int)      { w.w.WriteHeader(status) }
func (w wrapped) Unwrap() http.ResponseWriter { return w.w }

// Each event reaches the client while the runtime waits with the next one.
func TestStreamIsPassedAtOnce(t *testing.T) {
	t.Run("plain", func(t *testing.T) { testPassedAtOnce(t, func(h http.Handler) http.Handler { return h }) })
	t.Run("wrapped", func(t *testing.T) {
		testPassedAtOnce(t, func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(wrapped{w}, r) })
		})
	})
}

func testPassedAtOnce(t *testing.T, around func(http.Handler) http.Handler) {
	next := make(chan struct{})
	b := set(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for range 3 {
			_, _ = io.WriteString(w, ": ping\n\n")
			w.(http.Flusher).Flush()
			select {
			case <-next:
			case <-t.Context().Done():
			}
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	})
	b.Config.Handler = around(b.Config.Handler)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // an event that is held back ends nothing
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.URL+"/v1/completions", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for range 3 {
		if line, err := lines.ReadString('\n'); line != ": ping\n" || err != nil {
			t.Fatalf("got %q, %v", line, err)
		}
		_, _ = lines.ReadString('\n')
		next <- struct{}{}
	}
	if rest, err := io.ReadAll(lines); string(rest) != "data: [DONE]\n\n" || err != nil {
		t.Errorf("rest %q, %v", rest, err)
	}
}

func TestClientLeaves(t *testing.T) {
	for _, stream := range []bool{false, true} {
		began, left := make(chan struct{}), make(chan struct{})
		b := set(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if stream {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "data: {}\n\n")
				w.(http.Flusher).Flush()
			}
			close(began)
			<-r.Context().Done()
			close(left)
		})
		ctx, cancel := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, "POST", b.URL+"/v1/completions", strings.NewReader("{}"))
		go func() {
			<-began
			cancel()
		}()
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the client's error: %v", err)
		}
		<-left
		if o := b.wantIdle(t); o.Status != api.StatusClientClosed {
			t.Errorf("stream %t: outcome %+v, want status 499", stream, o)
		}
	}
}

// A container that cuts its answer has its client's connection cut, and the outcome says so.
func TestContainerCutsItsAnswer(t *testing.T) {
	b := set(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}, everything)
	if resp, body, err := b.post(t, "/cut", "{}"); err == nil {
		t.Errorf("got %v %q, whole", resp, body)
	}
	if o := b.wantIdle(t); o.Code != api.CodeStreamCut || o.Status != http.StatusOK {
		t.Errorf("outcome %+v, want 200 with %s", o, api.CodeStreamCut)
	}
}

func TestTimeout(t *testing.T) {
	b := set(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}, func(c *proxy.Config) { c.Timeout, c.Everything = 300*time.Millisecond, true })
	if resp, body, err := b.post(t, "/slow", "{}"); err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(body, "time limit") {
		t.Errorf("a container's answer that has begun: %v %s (%v); want 200, ending with the reason", resp, body, err)
	}

	for _, stream := range []bool{false, true} {
		b := set(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if stream {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "data: {}\n\n")
				w.(http.Flusher).Flush()
			}
			<-r.Context().Done()
		}, func(c *proxy.Config) { c.Timeout = 300 * time.Millisecond })
		resp, body, err := b.post(t, "/v1/completions", "{}")
		if err != nil {
			t.Fatal(err)
		}
		if stream {
			body = strings.TrimPrefix(body, "data: {}\n\ndata: ")
		}
		if got := code(t, body); got != api.CodeRequestTimeout || (resp.StatusCode == 504) == stream {
			t.Errorf("stream %t: %d %s, want %s", stream, resp.StatusCode, body, api.CodeRequestTimeout)
		}
		b.wantIdle(t)
	}
}

// An idle connection turns out to be closed before a byte is written to it: the request goes over a new one.
func TestIdleConnectionWasClosed(t *testing.T) {
	var conns []*brokenConn
	transport := api.NewTransport(8)
	transport.DialContext = func(_ context.Context, network, addr string) (net.Conn, error) {
		c, err := net.Dial(network, addr)
		conns = append(conns, &brokenConn{Conn: c})
		return conns[len(conns)-1], err
	}
	b := set(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	}, func(c *proxy.Config) { c.Transport = transport })
	for i := range 3 {
		resp, body, err := b.post(t, "/v1/completions", "{}")
		if err != nil || resp.StatusCode != 200 || body != "{}" || len(conns) != i+1 {
			t.Fatalf("%v %v %q over %d connections", resp, err, body, len(conns))
		}
		conns[i].broken.Store(true)
	}
}

type brokenConn struct {
	net.Conn
	broken atomic.Bool
}

func (c *brokenConn) Write(p []byte) (int, error) {
	if c.broken.Load() {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

func FuzzEnding(f *testing.F) {
	f.Add("data: [DONE]\n\n", 3)
	f.Add("data: {\"finish_reason\": null, \"finish_reason\":\"x\"}\n", 1)
	f.Add("event: message_stop\r\n\r\n", 7)
	f.Add("data: {}\n\ndata: {}\ndata: {", 2)
	f.Fuzz(func(t *testing.T, stream string, size int) {
		// Any stream in any pieces reaches the client unchanged. Of a cut stream, an unfinished last line is dropped.
		size = max(1, min(size, 100))
		rt := roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(&pieces{stream, size}), ContentLength: -1}, nil
		})
		w := httptest.NewRecorder()
		func() {
			defer func() { _ = recover() }() // http.ErrAbortHandler
			proxy.New(proxy.Config{Gate: &gate{base: "http://x"}, Transport: rt}).ServeHTTP(w, httptest.NewRequest("POST", "/v1/completions", strings.NewReader("{}")))
		}()
		want := stream
		if strings.Contains(w.Body.String(), api.CodeStreamCut) {
			want = stream[:strings.LastIndexByte(stream, '\n')+1]
		}
		if got := w.Body.String(); w.Code == 200 && !strings.HasPrefix(got, want) {
			t.Errorf("sent %q, got %q", stream, got)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type pieces struct {
	rest string
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.rest == "" {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.size)], p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// TestJSONType: JSON without a type, or with curl's, gets the JSON type: vLLM and SGLang refuse it otherwise. Other types stay.
func TestJSONType(t *testing.T) {
	b := set(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Header.Get("Content-Type")) })
	for kind, want := range map[string]string{
		"": "application/json", "application/x-www-form-urlencoded": "application/json", "text/plain": "application/json",
		"application/json; charset=utf-8": "application/json; charset=utf-8", "application/merge-patch+json": "application/merge-patch+json", "audio/wav": "audio/wav",
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.URL+"/v1/chat/completions", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", kind)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if got := string(raw); got != want {
			t.Errorf("of %q the runtime sees %q, want %q", kind, got, want)
		}
	}
}

// TestHost: the runtime sees the client's host, unless another one was configured.
func TestHost(t *testing.T) {
	for configured, want := range map[string]string{"": "evil.example", "localhost": "localhost"} {
		b := set(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Host) }, func(c *proxy.Config) { c.Host = configured })
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.URL+"/v1/completions", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "evil.example"
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(got) != want {
			t.Errorf("configured %q: the runtime sees %q, want %q", configured, got, want)
		}
	}
}
