package forward

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/inbound"
)

// serve runs a fake instance on a Unix socket.
func serve(t *testing.T, h http.HandlerFunc) *url.URL {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	u, err := url.Parse(api.Endpoint("unix:" + socket).URL(""))
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// send makes one attempt with the given inbound request.
func send(t *testing.T, base *url.URL, kind api.Stream, in *http.Request) (*Answer, error) {
	t.Helper()
	body, err := inbound.New(inbound.Config{}).Read(httptest.NewRecorder(), in, "")
	if err != nil {
		t.Fatal(err)
	}
	defer body.Release()
	transport := api.NewTransport(2)
	t.Cleanup(transport.CloseIdleConnections)
	a, err := NewClient(transport).Send(t.Context(), Call{In: in, Body: body, ID: "id-1", Base: base, Kind: kind})
	if a != nil {
		t.Cleanup(a.Close)
	}
	return a, err
}

func post(body string) *http.Request {
	return httptest.NewRequest(http.MethodPost, "/v1/chat/completions?x=%2F", strings.NewReader(body))
}

// sink collects what a client would see.
type sink struct {
	bytes.Buffer
	flushes int
	err     error
}

func (s *sink) Flush() error { s.flushes++; return s.err }

func TestWhatIsSent(t *testing.T) {
	var got *http.Request
	var body []byte
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		got = r
		w.Header().Set("Connection", "X-Private")
		w.Header().Set("X-Private", "1")
		w.Header().Set("X-Kept", "1")
		for _, own := range []string{"Set-Cookie", "Access-Control-Allow-Origin", "Location", "Content-Security-Policy", "Strict-Transport-Security", "Clear-Site-Data", "Www-Authenticate", "X-Accel-Redirect", "Refresh", "Link"} {
			w.Header().Set(own, "https://elsewhere.example")
		}
		w.Header().Set(HeaderID, "the runtime's")
		for _, reserved := range []string{control.HeaderRefused, "K-Own", "Ce-Id", "Knative-Serving-Revision", "Server-Timing", "X-Rouse-Instance"} {
			w.Header().Set(reserved, "forged")
		}
		fmt.Fprint(w, "ok")
	})
	in := post(`{"a": 1}`)
	in.RemoteAddr = "10.0.0.1:99"
	for key, value := range map[string]string{
		"Connection": "close, X-Hop", "X-Hop": "1", "Keep-Alive": "5", "Te": "trailers", "Upgrade": "h2c", "Expect": "100-continue",
		"Proxy-Authorization": "secret", "Authorization": "Bearer k", "Cookie": "c", "X-Api-Key": "k",
		"X-Rouse-Wait": "true", "x-rouse-tenant": "other", "X-Rouse-Trusted": "true", "K-Proxy-Request": "activator", "Knative-Serving-Revision": "r", "Ce-Type": "t", "Server-Timing": "a", "X_rouse_tenant": "other",
		"X-Stainless-Lang": "js", "X-Forwarded-For": "1.2.3.4", HeaderID: "forged",
	} {
		in.Header.Set(key, value)
	}
	a, err := send(t, base, api.StreamPlain, in)
	if err != nil {
		t.Fatal(err)
	}
	want := http.Header{
		"X-Stainless-Lang": {"js"}, "X-Forwarded-For": {"1.2.3.4, 10.0.0.1"},
		HeaderID: {"id-1"}, "Content-Length": {"8"},
	}
	if diff := cmp.Diff(want, got.Header); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	if string(body) != `{"a": 1}` || got.RequestURI != "/v1/chat/completions?x=%2F" || got.Host != "example.com" {
		t.Errorf("got %s to %s at %s", body, got.RequestURI, got.Host)
	}
	h := http.Header{HeaderID: {"id-1"}}
	a.Header(h)
	h.Del("Date")
	if diff := cmp.Diff(http.Header{"X-Kept": {"1"}, HeaderID: {"id-1"}, "Content-Type": {"text/plain; charset=utf-8"}, "Content-Length": {"2"}}, h); diff != "" {
		t.Errorf("answer's header (-want +got):\n%s", diff)
	}
	s := &sink{}
	if err := a.Copy(s); err != nil || s.String() != "ok" {
		t.Errorf("got %q, %v", s, err)
	}
}

// cut answers with a status and some of the body that the header promises.
func cut(status int, contentType, length, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		if length != "" {
			w.Header().Set("Content-Length", length)
		}
		w.WriteHeader(status)
		if body != "" {
			_, _ = io.WriteString(w, body)
		}
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
}

func TestFailuresBeforeTheFirstByte(t *testing.T) {
	gone, _ := url.Parse(api.Endpoint("unix:/nowhere").URL(""))
	refuse := func(status int, refused, code string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if refused != "" {
				w.Header().Set(control.HeaderRefused, refused)
			}
			api.WriteError(w, api.Errorf(status, code, "because"))
		}
	}
	for _, tc := range []struct {
		name  string
		do    http.HandlerFunc // nil: no server
		given bool
		code  string
	}{
		{"nobody listens", nil, false, api.CodeUnhealthy},
		{"asleep", refuse(503, api.CodeAsleep, api.CodeAsleep), false, api.CodeAsleep},
		{"draining, as 502", refuse(502, api.CodeDraining, api.CodeDraining), false, api.CodeDraining},
		{"the runtime failed", refuse(502, "", api.CodeRuntimeFailed), true, api.CodeRuntimeFailed},
		{"cut before the header", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, true, api.CodeRuntimeFailed},
		{"cut after the header", cut(200, "application/json", "", ""), true, api.CodeRuntimeFailed},
		{"cut in a short answer of known length", cut(200, "application/json", "100", `{"half":`), true, api.CodeRuntimeFailed},
		{"an empty stream", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "text/event-stream") }, true, api.CodeRuntimeFailed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			base := gone
			if tc.do != nil {
				base = serve(t, tc.do)
			}
			_, err := send(t, base, api.StreamCompletion, post("{}"))
			var f *Failure
			if !errors.As(err, &f) || f.Given != tc.given || f.Code != tc.code || f.Err.Status/100 != 5 || f.Err.Message == "" {
				t.Errorf("got %#v, want given %t, code %s", err, tc.given, tc.code)
			}
		})
	}
}

func TestAnswersOfTheRuntimeAreAnswers(t *testing.T) {
	for _, status := range []int{200, 204, 400, 404, 429, 500, 502, 503, 504} {
		base := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		a, err := send(t, base, api.StreamCompletion, post("{}"))
		if err != nil {
			t.Errorf("%d: %v", status, err)
			continue
		}
		if err := a.Copy(&sink{}); err != nil || a.Status() != status {
			t.Errorf("got %d and %v, want %d", a.Status(), err, status)
		}
	}
}

func TestSendEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	left := make(chan struct{})
	base := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		cancel(api.Errorf(504, api.CodeRequestTimeout, "too late"))
		<-r.Context().Done() // the runtime notices at once that the client is gone
		close(left)
	})
	transport := api.NewTransport(1)
	_, err := NewClient(transport).Send(ctx, Call{In: post("{}"), Body: &inbound.Body{}, Base: base})
	if e := api.AsError(err); e.Code != api.CodeRequestTimeout {
		t.Errorf("got %v, want the context's cause", err)
	}
	<-left
}

func TestErrorBodies(t *testing.T) {
	for _, tc := range []struct {
		body string
		want api.Error
	}{
		{`{"error":{"message":"m","type":"t","param":"p","code":"c"}}`, api.Error{Status: 400, Message: "m", Type: "t", Param: "p", Code: "c"}},
		{`{"error":{"message":"m","type":"BadRequestError","param":null,"code":400}}`, api.Error{Status: 400, Message: "m", Type: "BadRequestError"}},
		{`{"object":"error","message":"flat","type":"t","param":null,"code":400}`, api.Error{Status: 400, Message: "flat", Type: "t"}},
		{`{"error":"only text"}`, api.Error{Status: 400, Message: "only text"}},
		{"plain text\n", api.Error{Status: 400, Message: "plain text"}},
		{"", api.Error{Status: 400, Message: "the instance answered Bad Request without a message"}},
		{`[]`, api.Error{Status: 400, Message: "[]"}},
	} {
		if diff := cmp.Diff(&tc.want, parseError(400, []byte(tc.body))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.body, diff)
		}
	}
}

func TestLargeAnswersPassThrough(t *testing.T) {
	want := strings.Repeat("0123456789", 100_000)
	base := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(want)))
		_, _ = io.WriteString(w, want)
	})
	a, err := send(t, base, api.StreamPlain, post("{}"))
	if err != nil {
		t.Fatal(err)
	}
	s := &sink{}
	if err := a.Copy(s); err != nil || s.String() != want || s.flushes != 0 {
		t.Errorf("got %d bytes, %d flushes, %v", s.Len(), s.flushes, err)
	}
}
