package localhttp_test

import (
	"bytes"
	"context"
	"errors"
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

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/localhttp"
)

// serve serves h on a Unix socket until the test ends, as our own processes do, and counts its connections.
func serve(t *testing.T, h http.HandlerFunc) (api.Endpoint, *atomic.Int64) {
	t.Helper()
	return serveForeign(t, api.InTurn(h))
}

// serveForeign is serve for a server that does not name the requests it answers.
func serveForeign(t *testing.T, h http.Handler) (api.Endpoint, *atomic.Int64) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var connections atomic.Int64
	s := httptest.NewUnstartedServer(h)
	s.Listener.Close()
	s.Listener = l
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return api.Endpoint("unix:" + path), &connections
}

func newTransport(t *testing.T) *localhttp.Transport {
	t.Helper()
	tr := localhttp.New(8, time.Minute)
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

func request(t *testing.T, ctx context.Context, method string, e api.Endpoint, path, body string) *http.Request {
	t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, e.URL(path), in)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// mirror answers with the request, in the way that the path says.
func mirror(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Seen", fmt.Sprintf("%s %s %s %d %q", r.Method, r.RequestURI, r.Header.Get("X-A"), r.ContentLength, r.Header.Values("X-B")))
	switch r.URL.Path {
	case "/none":
		w.WriteHeader(http.StatusNoContent)
	case "/hints":
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = w.Write(raw)
	case "/chunks":
		for _, b := range bytes.SplitAfter(raw, []byte(" ")) {
			_, _ = w.Write(b)
			_ = http.NewResponseController(w).Flush()
		}
	case "/close":
		w.Header().Set("Connection", "close")
		_, _ = w.Write(raw)
	case "/trailer":
		w.Header().Set("Trailer", "X-End")
		_, _ = w.Write(raw)
		w.Header().Set("X-End", "yes")
	case "/status":
		http.Error(w, string(raw), http.StatusTeapot)
	default:
		w.Header().Set("Content-Length", fmt.Sprint(len(raw)))
		_, _ = w.Write(raw)
	}
}

// TestAnswersAreThoseOfNetHTTP compares answers with those of net/http's client.
func TestAnswersAreThoseOfNetHTTP(t *testing.T) {
	e, _ := serve(t, mirror)
	fast, slow := newTransport(t), api.NewTransport(8)
	defer slow.CloseIdleConnections()
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/", ""}, {"POST", "/", ""}, {"POST", "/", "one two"}, {"HEAD", "/", ""}, {"DELETE", "/x?y=%20z", ""},
		{"POST", "/none", "one"}, {"POST", "/hints", "one"}, {"POST", "/chunks", "one two three"}, {"POST", "/close", "one"},
		{"POST", "/trailer", "one"}, {"POST", "/status", "one"}, {"PUT", "/", strings.Repeat("x", 200<<10)},
		{"PUT", "/", strings.Repeat("x", 300<<10)}, {"POST", "/a%2Fb/ü", "one"},
	} {
		ask := func(tr http.RoundTripper) string {
			r := request(t, t.Context(), c.method, e, c.path, c.body)
			r.Header["X-A"] = []string{"a"}
			r.Header["X-B"] = []string{"1", "2"}
			r.Header["User-Agent"] = []string{""}
			resp, err := tr.RoundTrip(r)
			if err != nil {
				t.Fatalf("%s %s: %v", c.method, c.path, err)
			}
			defer resp.Body.Close()
			raw, err := io.ReadAll(resp.Body)
			if _, err2 := resp.Body.Read(make([]byte, 1)); err2 != io.EOF {
				t.Errorf("%s %s: a read after the end: %v, want EOF", c.method, c.path, err2)
			}
			resp.Header.Del("Date")
			return fmt.Sprint(resp.Status, resp.Proto, resp.Header, resp.ContentLength, resp.TransferEncoding, resp.Close || len(c.body) > 256<<10, resp.Trailer, err, string(raw))
		}
		for range 2 { // over a new and a reused connection
			if got, want := ask(fast), ask(slow); got != want {
				t.Errorf("%s %s:\n got %s\nwant %s", c.method, c.path, got, want)
			}
		}
	}
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	e, connections := serve(t, mirror)
	tr := newTransport(t)
	for i := range 20 {
		resp, err := tr.RoundTrip(request(t, t.Context(), "POST", e, "/chunks", "one two"))
		if err != nil {
			t.Fatal(err)
		}
		if raw, err := io.ReadAll(resp.Body); string(raw) != "one two" || err != nil {
			t.Fatalf("answer %d: %q, %v", i, raw, err)
		}
		resp.Body.Close()
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("20 requests took %d connections, want 1", n)
	}
}

// TestConnectionsOfAForeignServer checks that a server that does not name requests gets a connection per request.
func TestConnectionsOfAForeignServer(t *testing.T) {
	e, connections := serveForeign(t, http.HandlerFunc(mirror))
	tr := newTransport(t)
	for _, size := range []int{1, 300 << 10, 1, 300 << 10} {
		resp, err := tr.RoundTrip(request(t, t.Context(), "POST", e, "/", strings.Repeat("x", size)))
		if err != nil {
			t.Fatal(err)
		}
		if raw, err := io.ReadAll(resp.Body); len(raw) != size || err != nil {
			t.Fatalf("%d bytes, %v, want %d", len(raw), err, size)
		}
		resp.Body.Close()
	}
	if n := connections.Load(); n != 4 {
		t.Errorf("4 requests took %d connections", n)
	}
}

// TestAnotherServerAtTheSamePlace checks that a server's restart fails no request, though none is sent twice.
func TestAnotherServerAtTheSamePlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	tr := newTransport(t)
	for i := range 3 {
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(http.HandlerFunc(mirror))
		s.Listener.Close()
		s.Listener = l
		s.Start()
		resp, err := tr.RoundTrip(request(t, t.Context(), "POST", api.Endpoint("unix:"+path), "/", "one"))
		if err != nil {
			t.Fatalf("server %d: %v", i, err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
	var dial *net.OpError
	if _, err := tr.RoundTrip(request(t, t.Context(), "POST", api.Endpoint("unix:"+path), "/", "one")); !errors.As(err, &dial) || dial.Op != "dial" {
		t.Errorf("no server: %v, want an error of dialling", err)
	}
}

// TestLeaving checks that the server notices the end of the context and the close of the body.
func TestLeaving(t *testing.T) {
	left := make(chan string, 1)
	e, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/body" || r.URL.Path == "/close" {
			_, _ = io.WriteString(w, "begun")
			_ = http.NewResponseController(w).Flush()
		} else {
			left <- "asked"
		}
		<-r.Context().Done()
		left <- r.URL.Path
	})
	tr := newTransport(t)
	cause := errors.New("the client left")
	for _, path := range []string{"/header", "/body", "/close"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		if path == "/header" {
			go func() {
				<-left // the request has arrived
				cancel(cause)
			}()
		}
		resp, err := tr.RoundTrip(request(t, ctx, "POST", e, path, "one"))
		switch path {
		case "/header":
			if !errors.Is(err, cause) {
				t.Errorf("%s: %v, want %v", path, err, cause)
			}
		case "/body":
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(resp.Body, make([]byte, 5)); err != nil {
				t.Fatal(err)
			}
			cancel(cause)
			if _, err := resp.Body.Read(make([]byte, 5)); !errors.Is(err, cause) {
				t.Errorf("%s: %v, want %v", path, err, cause)
			}
		case "/close":
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if _, err := resp.Body.Read(make([]byte, 5)); !errors.Is(err, http.ErrBodyReadAfterClose) {
				t.Errorf("a read after the close: %v", err)
			}
		}
		if got := <-left; got != path {
			t.Errorf("the server saw the end of %s, want %s", got, path)
		}
		cancel(nil)
	}
}

func TestAnswersThatAreCut(t *testing.T) {
	e, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		c, rw, _ := http.NewResponseController(w).Hijack()
		defer c.Close()
		switch r.URL.Path {
		case "/nothing":
		case "/length":
			_, _ = rw.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nonly")
		case "/chunk":
			_, _ = rw.WriteString("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nonly\r\n")
		case "/noise":
			_, _ = rw.WriteString("what?\r\n\r\n")
		case "/interim":
			_, _ = rw.WriteString(strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 100))
		case "/status":
			_, _ = rw.WriteString("HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n")
			_ = rw.Flush()
			_, _ = io.Copy(io.Discard, rw) // until the client has closed the connection
		}
		_ = rw.Flush()
	})
	tr := newTransport(t)
	for _, path := range []string{"/nothing", "/length", "/chunk", "/noise", "/interim", "/status"} {
		resp, err := tr.RoundTrip(request(t, t.Context(), "POST", e, path, "one"))
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		if err == nil || err == io.EOF {
			t.Errorf("%s: %v, want an error that is no end", path, err)
		}
	}
}

// TestRequestsThatCantBeWritten checks that no part of a request can become another header or request.
func TestRequestsThatCantBeWritten(t *testing.T) {
	e, connections := serve(t, mirror)
	tr := newTransport(t)
	for name, spoil := range map[string]func(*http.Request){
		"value":  func(r *http.Request) { r.Header["X-A"] = []string{"a\r\nX-C: c"} },
		"name":   func(r *http.Request) { r.Header["X-A: b\r\nX-C"] = []string{"c"} },
		"host":   func(r *http.Request) { r.Host = "a\r\nX-C: c" },
		"method": func(r *http.Request) { r.Method = "GET / HTTP/1.1\r\nX-C: c\r\n\r\nGET" },
		"short":  func(r *http.Request) { r.ContentLength = 10 },
	} {
		r := request(t, t.Context(), "POST", e, "/", "one")
		spoil(r)
		if _, err := tr.RoundTrip(r); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if n := connections.Load(); n != 0 {
		t.Errorf("they took %d connections", n)
	}
}

func TestManyAtOnce(t *testing.T) {
	e, connections := serve(t, mirror)
	tr := newTransport(t)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for j := range 50 {
				want := fmt.Sprintf("request %d %d", i, j)
				resp, err := tr.RoundTrip(request(t, t.Context(), "POST", e, "/chunks", want))
				if err != nil {
					t.Error(err)
					return
				}
				raw, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if string(raw) != want || err != nil {
					t.Errorf("%q, %v, want %q", raw, err, want)
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d connections", connections.Load())
}
