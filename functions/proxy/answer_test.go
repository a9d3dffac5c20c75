package proxy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/proxy"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// dialect converts requests to upper case and failures to "PATH STATUS: body".
type dialect struct{}

func (dialect) Request(path string, body *jsonfield.Object) *api.Error {
	if bytes.Contains(body.Bytes(), []byte("forbidden")) {
		return api.BadRequest("x", "%s: x is forbidden", path)
	}
	body.Replace(append(bytes.ToUpper(body.Bytes()), '!'))
	return nil
}

func (dialect) Failure(path string, status int, body []byte) []byte {
	if len(body) == 0 {
		return body
	}
	return fmt.Appendf(nil, `{"error":{"message":"%s %d: %s"}}`, path, status, body)
}

func speaks(c *proxy.Config) { c.Dialect = dialect{} }

// mortal is a dialect of a server that announces its end.
type mortal struct{ dialect }

func (mortal) Dying(status int, body []byte) bool { return status == 500 && string(body) == "I die" }

// TestDying: the announcement of a server that is about to end is not an answer. The request may be sent again, and the server's health
// is checked.
func TestDying(t *testing.T) {
	b := set(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(500)
		_, _ = io.WriteString(w, "I die")
	}, func(c *proxy.Config) { c.Dialect = mortal{} })
	resp, text, err := b.post(t, "/v1/completions", "{}")
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 502 || resp.Header.Get(control.HeaderFailed) != api.CodeRuntimeFailed || strings.Contains(text, "I die") {
		t.Errorf("status %d, %v: %s; want that the runtime failed", resp.StatusCode, resp.Header, text)
	}
	if b.gate.lost.Load() != 1 || b.gate.moved.Load() != 0 {
		t.Errorf("the gate was told %d times to look, and %d times that the runtime moves", b.gate.lost.Load(), b.gate.moved.Load())
	}
}

func TestDialect(t *testing.T) {
	large := strings.Repeat("x", 2<<20)
	b := set(t, func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		switch string(raw) {
		case "FAIL!":
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(422)
			_, _ = io.WriteString(w, "no")
		case "LARGE!":
			w.WriteHeader(500)
			_, _ = io.WriteString(w, large)
		case "EMPTY!":
			w.WriteHeader(404)
		default:
			if r.ContentLength != int64(len(raw)) {
				t.Errorf("content-length %d of %d bytes", r.ContentLength, len(raw))
			}
			_, _ = w.Write(raw)
		}
	}, speaks)
	for _, tc := range []struct {
		body   string
		status int
		want   string
	}{
		{"abc", 200, "ABC!"},
		{"fail", 422, `{"error":{"message":"/v1/completions 422: no"}}`},
		{"large", 500, large},
		{"empty", 404, ""},
	} {
		resp, body, err := b.post(t, "/v1/completions", tc.body)
		if err != nil || resp.StatusCode != tc.status || body != tc.want {
			t.Errorf("%s: %v %v, %d bytes %.80q; want %d %.80q", tc.body, resp, err, len(body), body, tc.status, tc.want)
		}
		b.wantIdle(t)
	}
	resp, body, err := b.post(t, "/v1/completions", "forbidden")
	if err != nil || resp.StatusCode != 400 || !strings.Contains(body, "x is forbidden") {
		t.Errorf("%v %v %q, want the dialect's refusal", resp, err, body)
	}
	b.wantIdle(t)
}

func TestBadBodies(t *testing.T) {
	b := set(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	for _, tc := range []struct {
		kind, encoding, body string
		status               int
		want                 string
	}{
		{"application/json", "", "{\"a\":\"\xff\"}", 400, "not valid UTF-8 at byte 6"},
		{"Application/JSON ; charset=utf-8", "", "\xfe", 400, "not valid UTF-8 at byte 0"},
		{"application/vnd.x+json", "", "\xfe", 400, "not valid UTF-8"},
		{"application/octet-stream", "", "\xff\xfe", 200, "\xff\xfe"},
		{"application/json", "gzip", "\x1f\x8b", 415, "send it uncompressed"},
		{"application/json", "identity", "{}", 200, "{}"},
	} {
		req, _ := http.NewRequest("POST", b.URL+"/v1/completions", strings.NewReader(tc.body))
		req.Header.Set("Content-Type", tc.kind)
		if tc.encoding != "" {
			req.Header.Set("Content-Encoding", tc.encoding)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != tc.status || !strings.Contains(string(raw), tc.want) {
			t.Errorf("%+v: %d %q", tc, resp.StatusCode, raw)
		}
		if accepts := resp.Header.Get("Accept-Encoding"); (accepts == "identity") != (tc.status == 415) {
			t.Errorf("%+v: Accept-Encoding %q", tc, accepts)
		}
		b.wantIdle(t)
	}
}

// A body of known length that exceeds the initial buffer comes through whole.
func TestLargeBody(t *testing.T) {
	sent := strings.Repeat("0123456789", 300<<10)
	b := set(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	if resp, body, err := b.post(t, "/v1/embeddings", sent); err != nil || resp.StatusCode != 200 || body != sent {
		t.Errorf("%v %v: %d bytes came back, want %d", resp, err, len(body), len(sent))
	}
}

// Clients of Ollama's own API read {"error":"text"}.
func TestOllamasErrors(t *testing.T) {
	b := set(t, func(http.ResponseWriter, *http.Request) { t.Error("the runtime was asked") })
	b.gate.refused = api.Errorf(503, api.CodeAsleep, "the instance is asleep")
	for path, status := range map[string]int{"/api/chat": 503, "/api/pull": 404} {
		resp, body, err := b.post(t, path, "{}")
		var e struct{ Error string }
		if err != nil || resp.StatusCode != status || json.Unmarshal([]byte(body), &e) != nil || e.Error == "" {
			t.Errorf("%s: %v %v %q, want %d and an error of text", path, resp, err, body, status)
		}
	}
}

func TestLines(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
	const token = `{"model":"m","message":{"role":"assistant","content":" w0"},"done":false}` + "\n"
	const last = `{"model":"m","done":true,"done_reason":"stop","prompt_eval_count":7,"eval_count":2}` + "\n"
	for name, tc := range map[string]struct {
		answer, want string
		cut          bool
		generated    int
	}{
		"whole":         {chunk(token) + chunk(token) + chunk(last) + chunk(""), token + token + last, false, 2},
		"its own error": {chunk(token) + chunk(`{"error":"unexpected EOF"}`+"\n") + chunk(""), token + `{"error":"unexpected EOF"}` + "\n", false, 1},
		"no end":        {chunk(token) + chunk(token) + chunk(token) + chunk(""), token + token + token, true, 3},
		"half a line":   {chunk(token) + chunk(token[:20]), token, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := set(t, raw(head+tc.answer))
			resp, body, err := b.post(t, "/api/chat", "{}")
			if err != nil || resp.StatusCode != 200 {
				t.Fatalf("%v %v", resp, err)
			}
			o := b.wantIdle(t)
			if o.GeneratedTokens != tc.generated || (tc.generated == 2) != (o.PromptTokens == 7) {
				t.Errorf("outcome %+v", o)
			}
			rest, found := strings.CutPrefix(body, tc.want)
			var e struct{ Error string }
			switch {
			case !found || (!tc.cut && (rest != "" || o.Code != "")):
				t.Errorf("got %q, code %q", body, o.Code)
			case tc.cut && (json.Unmarshal([]byte(rest), &e) != nil || e.Error == "" || !strings.HasSuffix(rest, "\n") || o.Code != api.CodeStreamCut):
				t.Errorf("after the lines: %q, outcome %+v; want one line with an error", rest, o)
			}
		})
	}
}

func TestOutcomeCountsTokens(t *testing.T) {
	const done = "data: [DONE]\n\n"
	delta := func(s string) string {
		return `data: {"choices":[{"delta":{` + s + `},"finish_reason":null}],"usage":null}` + "\n\n"
	}
	for name, tc := range map[string]struct {
		path, kind, answer string
		prompt, generated  int
		streamed           bool
	}{
		"usage of a whole answer": {"/v1/chat/completions", "application/json", `{"choices":[{"message":{"content":"\"usage\":{\"prompt_tokens\":99}"}}],"usage":{"prompt_tokens":12,"total_tokens":15,"completion_tokens": 3,"prompt_tokens_details":{}}}`, 12, 3, false},
		"llama-server's times":    {"/v1/completions", "application/json", `{"choices":[{"text":"x"}],"usage":{"completion_tokens":3,"prompt_tokens":12},"timings":{"predicted_n":3,"predicted_ms":0.012}}`, 12, 3, true},
		"llama-server's own API":  {"/completion", "application/json", `{"content":"\"predicted_ms\":5","tokens_predicted":3,"tokens_evaluated":12,"timings":{"predicted_ms":0.012}}`, 12, 3, true},
		"Ollama's own API":        {"/api/generate", "application/json", `{"response":"x","done":true,"prompt_eval_count":12,"prompt_eval_duration":1,"eval_count":3,"eval_duration":12000}`, 12, 3, true},
		"times that can't be":     {"/v1/completions", "application/json", `{"usage":{"completion_tokens":3,"prompt_tokens":12},"timings":{"predicted_ms":1e300}}`, 12, 3, false},
		"usage across buffers":    {"/v1/embeddings", "application/json", `{"data":"` + strings.Repeat("x", 32<<10-530) + `","usage":{"prompt_tokens":12,"total_tokens":12}}`, 12, 0, false},
		"usage of a stream":       {"/v1/chat/completions", "text/event-stream", delta(`"role":"assistant","content":""`) + delta(`"content":"a"`) + `data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":9}}` + "\n\n" + done, 5, 9, true},
		"a stream without usage":  {"/v1/chat/completions", "text/event-stream", delta(`"role":"assistant","content":""`) + delta(`"content":"a"`) + delta(`"reasoning_content":"b"`) + done, 0, 2, true},
		"text completions":        {"/v1/completions", "text/event-stream", `data: {"choices":[{"text":"a"}]}` + "\n\n" + done, 0, 1, true},
		"responses": {"/v1/responses", "text/event-stream", "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"x\"}\n\n" +
			"event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":4,\"output_tokens\":6}}}\n\n", 4, 6, true},
		"messages": {"/v1/messages", "text/event-stream", "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":4,\"output_tokens\":1}}}\n\n" +
			"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"x\"}}\n\n" +
			"event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":8}}\n\nevent: message_stop\ndata: {}\n\n", 4, 8, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := set(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tc.kind)
				_, _ = io.WriteString(w, tc.answer)
			})
			if resp, body, err := b.post(t, tc.path, "{}"); err != nil || resp.StatusCode != 200 || body != tc.answer {
				t.Fatalf("%v %v %q", resp, err, body)
			}
			o := b.wantIdle(t)
			want := proxy.Outcome{Path: tc.path, Status: 200, PromptTokens: tc.prompt, GeneratedTokens: tc.generated}
			times := cmpopts.IgnoreFields(proxy.Outcome{}, "Sent", "FirstByte", "FirstToken", "LastToken")
			if diff := cmp.Diff(want, o, times, cmpopts.IgnoreUnexported(proxy.Outcome{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if tc.streamed != (o.FirstToken > 0) || o.LastToken < o.FirstToken || o.Sent <= 0 {
				t.Errorf("times of %+v", o)
			}
		})
	}
}

// While a request runs its tokens are counted, and its adapter is named.
func TestLoad(t *testing.T) {
	next := make(chan struct{})
	rt := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-next
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"choices":[{"text":"a"}]}`+"\n\n")
		w.(http.Flusher).Flush()
		<-next
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}))
	defer rt.Close()
	sending := make(chan struct{})
	p := proxy.New(proxy.Config{Gate: &gate{base: rt.URL}, Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		sending <- struct{}{}
		return http.DefaultTransport.RoundTrip(r)
	}), Adapter: func(*jsonfield.Object) api.ModelName { return "lora" }})
	front := httptest.NewServer(p)
	defer front.Close()
	answered := make(chan *http.Response)
	go func() {
		resp, err := http.Post(front.URL+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"twelve"} `))
		if err != nil {
			t.Error(err)
		}
		answered <- resp
	}()
	<-sending
	want := func(l proxy.Load) {
		t.Helper()
		if diff := cmp.Diff(l, p.Load()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	want(proxy.Load{Requests: 1, Tokens: 5, Queued: 1, QueuedTokens: 5, Adapters: []api.ModelName{"lora"}})
	next <- struct{}{}
	resp := <-answered
	defer resp.Body.Close()
	_, _ = io.ReadFull(resp.Body, make([]byte, 10))
	want(proxy.Load{Requests: 1, Tokens: 6, Adapters: []api.ModelName{"lora"}})
	next <- struct{}{}
	_, _ = io.Copy(io.Discard, resp.Body)
	front.Close() // waits for the handler
	want(proxy.Load{})
}

// counter counts a handler's writes and flushes.
type counter struct {
	*httptest.ResponseRecorder
	flushes int
}

func (c *counter) Flush() { c.flushes++ }

func TestOneFlushForAnEventOfSeveralLines(t *testing.T) {
	event := "event: response.created\nid: 1\ndata: {}\n\n"
	rt := roundTripper(func(*http.Request) (*http.Response, error) {
		body := io.NopCloser(&pieces{event + event + "event: response.completed\ndata: {}\n\n", 10})
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body, ContentLength: -1}, nil
	})
	w := &counter{ResponseRecorder: httptest.NewRecorder()}
	proxy.New(proxy.Config{Gate: &gate{base: "http://x"}, Transport: rt}).ServeHTTP(w, httptest.NewRequest("POST", "/v1/responses", strings.NewReader("{}")))
	if w.flushes != 3 {
		t.Errorf("%d flushes, want one for each of 3 events", w.flushes)
	}
}

// serveH2 is set for clients that speak HTTP/2 without TLS.
func serveH2(t *testing.T, runtime http.HandlerFunc) (*http.Client, string, chan proxy.Outcome) {
	t.Helper()
	b := set(t, runtime)
	front := httptest.NewUnstartedServer(b.Config.Handler)
	front.Config.Protocols = new(http.Protocols)
	front.Config.Protocols.SetUnencryptedHTTP2(true)
	front.Start()
	t.Cleanup(front.Close)
	transport := &http.Transport{Protocols: front.Config.Protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}, front.URL, b.outcomes
}

func TestHTTP2(t *testing.T) {
	const body = "data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: [DONE]\n\n"
	client, url, _ := serveH2(t, func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		if r.ProtoMajor != 1 || r.ContentLength != int64(len(raw)) || string(raw) != "{}" {
			t.Errorf("the runtime got HTTP/%d, %q of %d", r.ProtoMajor, raw, r.ContentLength)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Connection", "keep-alive")
		w.Header().Set("Keep-Alive", "timeout=5")
		w.Header().Set("Trailer", "X-Late")
		_, _ = io.WriteString(w, body)
		w.Header().Set("X-Late", "1")
	})
	for name, sent := range map[string]io.Reader{"known length": strings.NewReader("{}"), "unknown length": io.MultiReader(strings.NewReader("{}"))} {
		resp, err := client.Post(url+"/v1/completions", "application/json", sent)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		raw, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.ProtoMajor != 2 || string(raw) != body || resp.Header.Get("Keep-Alive") != "" || resp.Trailer.Get("X-Late") != "1" {
			t.Errorf("%s: %v, HTTP/%d %v %q, trailer %v", name, err, resp.ProtoMajor, resp.Header, raw, resp.Trailer)
		}
	}
}

// Over HTTP/2 a broken answer is a reset stream, and the connection stays open.
func TestHTTP2Abort(t *testing.T) {
	client, url, outcomes := serveH2(t, raw("HTTP/1.1 200 OK\r\nContent-Type: audio/wav\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nRIFF.\r\n"))
	for range 2 {
		resp, err := client.Post(url+"/v1/audio/speech", "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil || string(raw) != "RIFF." {
			t.Errorf("read %q, %v; want what came and a broken stream", raw, err)
		}
		if o := <-outcomes; o.Code != api.CodeStreamCut {
			t.Errorf("outcome %+v", o)
		}
	}
}

func TestHTTP2ClientLeaves(t *testing.T) {
	began, left := make(chan struct{}), make(chan struct{})
	client, url, outcomes := serveH2(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(began)
		<-r.Context().Done()
		close(left)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-began
		cancel()
	}()
	req, _ := http.NewRequestWithContext(ctx, "POST", url+"/v1/completions", strings.NewReader("{}"))
	if _, err := client.Do(req); !errors.Is(err, context.Canceled) {
		t.Errorf("the client's error: %v", err)
	}
	<-left
	if o := <-outcomes; o.Status != api.StatusClientClosed {
		t.Errorf("outcome %+v, want status 499", o)
	}
}

// Each part of an answer counts as the runtime's progress.
func TestMoved(t *testing.T) {
	b := set(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write(api.StreamCompletion.Error(api.BadRequest("", "x"), 0))
	})
	b.post(t, "/v1/completions", "{}")
	b.wantIdle(t)
	if b.gate.moved.Load() == 0 {
		t.Error("the gate was told of no part")
	}
}

// Only the proxy may promise that the runtime has not seen a request.
func TestHeadRequest(t *testing.T) {
	b := set(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(control.HeaderRefused, "spoofed")
		w.Header().Set("X-Method", r.Method)
	})
	resp, err := http.Head(b.URL + "/v1/models")
	if err != nil || resp.StatusCode != 200 || resp.Header.Get("X-Method") != "HEAD" || resp.Header.Get(control.HeaderRefused) != "" {
		t.Errorf("%v %v", resp, err)
	}
	b.wantIdle(t)
}

// A busy runtime's refusal sends the request elsewhere, or to a retry. An idle runtime's refusal goes to the client.
func TestBusyRuntime(t *testing.T) {
	entered, end := make(chan struct{}), make(chan struct{})
	b := set(t, func(w http.ResponseWriter, r *http.Request) {
		switch q := r.URL.Query(); {
		case q.Has("long"):
			entered <- struct{}{}
			<-end
		case q.Get("status") == "503":
			w.WriteHeader(http.StatusServiceUnavailable)
		case q.Get("status") == "429":
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			w.WriteHeader(http.StatusInternalServerError)
		}
		fmt.Fprint(w, `{"error":{"message":"server overloaded","type":"x","code":null}}`)
	}, func(c *proxy.Config) { c.Dialect = failing{} })
	ask := func(query string, status int, refused string) {
		t.Helper()
		resp, body, err := b.post(t, "/v1/chat/completions?"+query, "{}")
		if err != nil || resp.StatusCode != status || resp.Header.Get(control.HeaderRefused) != refused || refused != "" && (code(t, body) != refused || resp.Header.Get("Retry-After") != "1") {
			t.Errorf("%s: %d %v %s, %v; want %d, refused %q", query, resp.StatusCode, resp.Header, body, err, status, refused)
		}
	}
	ask("status=503", 503, "")
	ask("status=429", 429, "")
	long := make(chan error, 1)
	go func() {
		_, _, err := b.post(t, "/v1/chat/completions?long", "{}")
		long <- err
	}()
	<-entered
	ask("status=503", 503, api.CodeBusy)
	ask("status=429", 503, api.CodeBusy)
	ask("status=500", 500, "")
	close(end)
	if err := <-long; err != nil {
		t.Error(err)
	}
}
