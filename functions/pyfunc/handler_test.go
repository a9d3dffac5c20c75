package pyfunc_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/proxy"
	"github.com/rouse-dev/rouse/functions/pyfunc"
)

// call returns the body of a call with requests in envelopes.
func call(requests ...pyfunc.Request) string {
	body := []byte(`{"inputs": [`)
	for i, r := range requests {
		if i > 0 {
			body = append(body, ", "...)
		}
		body = pyfunc.AppendRequest(body, r)
	}
	return string(append(body, "]}"...))
}

func get(path string) pyfunc.Request {
	return pyfunc.Request{Method: "GET", Path: path, Compat: true}
}

// post sends a body to /invocations and returns the answer.
func post(ctx context.Context, h http.Handler, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/invocations", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	h.ServeHTTP(w, r)
	return w
}

// predictions returns the answers in the envelopes of an answer.
func predictions(t testing.TB, w *httptest.ResponseRecorder) []pyfunc.Response {
	t.Helper()
	var body struct {
		Predictions []string
	}
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	if got := w.Header().Get("Content-Length"); got != fmt.Sprint(w.Body.Len()) {
		t.Errorf("Content-Length is %s of %d", got, w.Body.Len())
	}
	all := make([]pyfunc.Response, len(body.Predictions))
	for i, p := range body.Predictions {
		var err error
		if all[i], err = pyfunc.ParseResponse([]byte(p)); err != nil {
			t.Fatalf("%s: %v", p, err)
		}
	}
	return all
}

// TestInputsAreConcurrentAndInOrder checks that inputs are sent at once, up to the limit, and answered in order.
func TestInputsAreConcurrentAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inside, most atomic.Int32
		h := newHandler(t, func(w http.ResponseWriter, r *http.Request) {
			if n := inside.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer inside.Add(-1)
			var n int
			_, _ = fmt.Sscanf(r.URL.Path, "/v1/%d", &n)
			time.Sleep(time.Duration(10-n) * 100 * time.Millisecond) // later inputs take less time
			fmt.Fprint(w, n)
		}, func(c *pyfunc.Config) { c.Parallel = 3 })
		var requests []pyfunc.Request
		for i := range 9 {
			requests = append(requests, get(fmt.Sprint("/", i)))
		}
		began := time.Now()
		for i, p := range predictions(t, post(t.Context(), h, call(requests...))) {
			if string(p.Body) != fmt.Sprint(i) {
				t.Errorf("prediction %d is %s", i, p.Body)
			}
		}
		if took := time.Since(began); most.Load() != 3 || took > 3*time.Second {
			t.Errorf("%d at once and %v in all; want 3, and less than 3 s of the 5.4 s that they take one by one", most.Load(), took)
		}
	})
}

// TestBusySiblings checks that inputs refused because their siblings had all slots are sent again. If other
// calls have the slots, the refusal is the answer.
func TestBusySiblings(t *testing.T) {
	for _, places := range []int32{0, 2} {
		synctest.Test(t, func(t *testing.T) {
			var inside atomic.Int32
			var asked atomic.Int32
			h := newHandler(t, func(w http.ResponseWriter, _ *http.Request) {
				asked.Add(1)
				defer inside.Add(-1)
				if inside.Add(1) > places {
					w.Header().Set(control.HeaderRefused, api.CodeBusy)
					api.WriteError(w, api.Errorf(http.StatusServiceUnavailable, api.CodeBusy, "full"))
					return
				}
				time.Sleep(time.Second)
				fmt.Fprint(w, "ok")
			})
			w := post(t.Context(), h, call(get("/1"), get("/2"), get("/3"), get("/4"), get("/5")))
			for i, p := range predictions(t, w) {
				want := 200
				if places == 0 {
					want = 503
				}
				if p.Status != want || want == 503 && p.Header.Get("Retry-After") != "1" {
					t.Errorf("%d places: prediction %d is %d %v", places, i, p.Status, p.Header)
				}
			}
			wantRefused, wantAsked := "", int32(9) // 5, 3 and 1
			if places == 0 {
				wantRefused, wantAsked = api.CodeBusy, 5
			}
			if got := w.Header().Get(control.HeaderRefused); got != wantRefused || asked.Load() != wantAsked {
				t.Errorf("%d places: refused %q, asked %d times; want %q, %d", places, got, asked.Load(), wantRefused, wantAsked)
			}
		})
	}
}

// TestPartlyRefused checks that the call is not marked as refused if the runtime may have seen one input.
func TestPartlyRefused(t *testing.T) {
	h := newHandler(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/no" {
			w.Header().Set(control.HeaderRefused, api.CodeDraining)
			api.WriteError(w, api.Errorf(http.StatusServiceUnavailable, api.CodeDraining, "no"))
		}
	})
	w := post(t.Context(), h, call(get("/no"), get("/yes")))
	p := predictions(t, w)
	if p[0].Status != 503 || p[1].Status != 200 || w.Header().Get(control.HeaderRefused) != "" || p[0].Header.Get(control.HeaderRefused) != "" {
		t.Errorf("%v %+v", w.Header(), p)
	}
}

// TestFailedInput checks that internal headers of an inner answer do not reach the client.
func TestFailedInput(t *testing.T) {
	h := newHandler(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(control.HeaderFailed, api.CodeRuntimeFailed)
		api.WriteError(w, api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "no"))
	})
	p := predictions(t, post(t.Context(), h, call(get("/no"))))
	if p[0].Status != 502 || p[0].Header.Get(control.HeaderFailed) != "" {
		t.Errorf("%+v", p)
	}
}

// TestReservedHeadersOfAnEnvelope checks that Rouse's own headers in an inner request are dropped, and undeclared
// credentials too.
func TestReservedHeadersOfAnEnvelope(t *testing.T) {
	for _, credentials := range []bool{false, true} {
		var got http.Header
		h := newHandler(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Clone() }, func(c *pyfunc.Config) { c.Credentials = credentials })
		inner := get("/v1/x")
		for _, name := range []string{"x-rouse-wait", "X-Rouse-Tenant", "x-rouse-trusted", "k-proxy-request", "knative-serving-revision", "ce-id", "server-timing", "x_rouse_wait",
			"forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "authorization", "cookie", "x-own"} {
			inner.Header = append(inner.Header, pyfunc.Field{Name: name, Value: "inner"})
		}
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/invocations", strings.NewReader(call(inner)))
		r.Header = http.Header{"Content-Type": {"application/json"}, control.HeaderTenant: {"a"}, "X-Forwarded-For": {"192.0.2.1"}}
		h.ServeHTTP(w, r)
		predictions(t, w)
		want := http.Header{"X-Own": {"inner"}, control.HeaderTenant: {"a"}, "X-Forwarded-For": {"192.0.2.1"}}
		if credentials {
			want["Authorization"], want["Cookie"] = []string{"inner"}, []string{"inner"}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("credentials %t (-want +got):\n%s", credentials, diff)
		}
	}
}

// TestGzip checks that compressed answers are unpacked, with correct headers. An answer that can't be unpacked
// is passed on unchanged.
func TestGzip(t *testing.T) {
	const text = `{"a": "ä"}`
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	for name, tt := range map[string]struct {
		encoding, body, want string
		kept                 bool
	}{
		"gzip":       {"gzip", packed.String(), text, false},
		"x-gzip":     {"X-Gzip", packed.String(), text, false},
		"identity":   {"identity", text, text, false},
		"not packed": {"gzip", text, text, true},
		"cut":        {"gzip", packed.String()[:packed.Len()-4], packed.String()[:packed.Len()-4], true},
		"unknown":    {"br", "\x8b\x04", "\x8b\x04", true},
	} {
		h := newHandler(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Accept-Encoding") != "" {
				t.Errorf("%s: the runtime is asked to compress", name)
			}
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", tt.encoding)
			w.Header().Set("Content-Length", fmt.Sprint(len(tt.body)))
			_, _ = io.WriteString(w, tt.body)
		})
		r := get("/models")
		r.Header = []pyfunc.Field{{Name: "accept-encoding", Value: "gzip, br"}, {Name: "host", Value: "evil"}}
		p := predictions(t, post(t.Context(), h, call(r)))[0]
		if string(p.Body) != tt.want || p.Header.Get("Content-Length") != fmt.Sprint(len(tt.want)) || (p.Header.Get("Content-Encoding") != "") != tt.kept {
			t.Errorf("%s: %q %v", name, p.Body, p.Header)
		}
	}
}

// TestBadNext checks that a handler that panics, or reads on after it returned, harms its request only.
func TestBadNext(t *testing.T) {
	var log strings.Builder
	var late io.Reader
	h := newHandler(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/panic":
			panic("no memory of this")
		case "/v1/late":
			late = r.Body
		}
		fmt.Fprint(w, "fine")
	}, func(c *pyfunc.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	p := predictions(t, post(t.Context(), h, call(get("/panic"), get("/x"), pyfunc.Request{Method: "POST", Path: "/late", Body: []byte("abc"), Compat: true})))
	if p[0].Status != 500 || strings.Contains(string(p[0].Body), "memory") || string(p[1].Body) != "fine" || !strings.Contains(log.String(), "no memory of this") {
		t.Errorf("%+v, log %s", p, log.String())
	}
	if n, err := late.Read(make([]byte, 3)); n != 0 || err != http.ErrBodyReadAfterClose {
		t.Errorf("a late read got %d bytes, %v", n, err)
	}
}

// TestClientLeaves checks that the inner requests of a client that left are cancelled, and the connection aborted.
func TestClientLeaves(t *testing.T) {
	for _, body := range []string{call(get("/a"), get("/b")), `{"messages": []}`} {
		synctest.Test(t, func(t *testing.T) {
			var left atomic.Int32
			ctx, cancel := context.WithCancel(t.Context())
			h := newHandler(t, func(_ http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				left.Add(1)
				panic(http.ErrAbortHandler)
			})
			time.AfterFunc(time.Second, cancel)
			defer func() {
				if p := recover(); p != http.ErrAbortHandler || left.Load() == 0 {
					t.Errorf("%v, %d requests ended; want an aborted connection", p, left.Load())
				}
			}()
			post(ctx, h, body)
		})
	}
}

// TestStreamIsPassedAtOnce checks that events reach the client at once.
func TestStreamIsPassedAtOnce(t *testing.T) {
	next := make(chan struct{})
	h := newHandler(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range 3 {
			fmt.Fprint(w, "event: x\ndata: {}\n\n")
			w.(http.Flusher).Flush()
			<-next
		}
	})
	s := httptest.NewServer(h)
	defer s.Close()
	resp, err := http.Post(s.URL+"/invocations", "application/json", strings.NewReader(`{"input": [{}], "stream": true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for range 3 {
		event := make([]byte, len("data: {}\n\n"))
		if _, err := io.ReadFull(resp.Body, event); err != nil || string(event) != "data: {}\n\n" {
			t.Fatalf("%q, %v", event, err)
		}
		next <- struct{}{}
	}
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "data: [DONE]\n\n" {
		t.Errorf("%q, %v", rest, err)
	}
}

// TestBehindProxy checks that only client paths can be reached through the function's own proxy.
func TestBehindProxy(t *testing.T) {
	var seen []string
	runtime := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"object":"list"}`)
	}))
	defer runtime.Close()
	p := proxy.New(proxy.Config{Gate: gate(runtime.URL), Transport: http.DefaultTransport})
	h := newHandler(t, p.ServeHTTP)
	for path, want := range map[string]int{
		"/v1/models": 200, "/sleep": 404, "/wake_up": 404, "/v1/load_lora_adapter": 404, "/metrics": 404, "/rouse/v1/stop": 404, "/collective_rpc": 404,
		"/invocations": 404, "/v1/../sleep": 400, "/v1/models/%2e%2e%2f%2e%2e%2fsleep": 400, "/v1/models/%252e%252e": 400, "/v1/models/..\\..\\sleep": 400,
		"//evil/v1/models": 400, "http://evil/v1/models": 400, "http:/evil": 400, "/v1//models": 400, "/v1/models#x": 400, "/v1/models\x00": 400, "/\x7f": 400,
		"/v1/models?x=/../sleep": 200, "/v1/models/%zz": 404,
	} {
		got := predictions(t, post(t.Context(), h, call(pyfunc.Request{Method: "GET", Path: path})))[0]
		if got.Status != want || want >= 400 && !strings.Contains(string(got.Body), `"error":{"message":"`) {
			t.Errorf("%q: %d %s, want %d with an OpenAI error body", path, got.Status, got.Body, want)
		}
	}
	if len(seen) != 2 || seen[0] != "/v1/models" || seen[1] != "/v1/models" {
		t.Errorf("the runtime saw %q", seen)
	}
}

// gate is always open, for a runtime at its URL.
type gate string

func (g gate) Enter() (string, *api.Error)      { return string(g), nil }
func (g gate) EnterProbe() (string, *api.Error) { return string(g), nil }
func (g gate) EnterBehind(ctx context.Context, _ time.Duration) (string, context.Context, func() *api.Error, *api.Error) {
	return string(g), ctx, nil, nil
}
func (g gate) Leave()       {}
func (g gate) Moved()       {}
func (g gate) Unreachable() {}

func TestServes(t *testing.T) {
	for path, want := range map[string]bool{
		"/invocations": true, "/ping": true, "/health": true, "/version": true, "/serving-endpoints/a/invocations": true,
		"/": false, "/v1/models": false, "/serving-endpoints//invocations": false, "/serving-endpoints/a/b/invocations": false, "/serving-endpoints/invocations": false, "/invocations/": true, "/ping//": false, "//": false,
	} {
		if got := pyfunc.Serves(path); got != want {
			t.Errorf("%s: %t", path, got)
		}
	}
}

func TestTimeoutFrom(t *testing.T) {
	timeout, err := pyfunc.TimeoutFrom([]string{"A=b", "MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT=90"})
	if timeout != 90*time.Second || err != nil {
		t.Errorf("%v %v", timeout, err)
	}
	for _, bad := range []string{"1m", "-1", "1e9"} {
		if _, err := pyfunc.TimeoutFrom([]string{"MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT=" + bad}); err == nil {
			t.Errorf("a timeout of %s is taken", bad)
		}
	}
}

func newRecorder(h http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}
