package hop_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/hop"
)

// answers is a handler with a path for each way to answer.
func answers(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/unread" {
		_, _ = io.WriteString(w, "I read nothing")
		return
	}
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "read: "+err.Error(), http.StatusBadRequest)
		return
	}
	flush := http.NewResponseController(w)
	w.Header().Set("X-Seen", fmt.Sprint(r.Method, r.RequestURI, r.Host, r.ContentLength, r.Header["X-A"], len(raw)))
	switch r.URL.Path {
	case "/none":
		w.WriteHeader(http.StatusNoContent)
		if _, err := w.Write([]byte("x")); err != http.ErrBodyNotAllowed {
			panic(err)
		}
	case "/unchanged":
		w.WriteHeader(http.StatusNotModified)
	case "/empty":
	case "/status":
		w.Header().Set("Content-Type", "a/b")
		w.WriteHeader(http.StatusTeapot)
		w.Header().Set("X-Late", "too late")
		_, _ = w.Write(raw)
	case "/long":
		_, _ = w.Write(bytes.Repeat([]byte("0123456789"), 10000))
	case "/length":
		w.Header().Set("Content-Length", "5")
		_, err := io.WriteString(w, "12345")
		_, err2 := io.WriteString(w, "6")
		if err != nil || err2 != http.ErrContentLength {
			panic(fmt.Sprint(err, err2))
		}
	case "/short":
		w.Header().Set("Content-Length", "5")
		_, _ = io.WriteString(w, "123")
	case "/flush":
		for range 3 {
			_, _ = io.WriteString(w, "data: x\n\n")
			if err := flush.Flush(); err != nil {
				panic(err)
			}
		}
	case "/trailer":
		w.Header().Set("Trailer", "X-End")
		_, _ = w.Write(raw)
		_ = flush.Flush()
		w.Header().Set("X-End", "end")
		w.Header().Set(http.TrailerPrefix+"X-More", "more")
	case "/interim":
		w.Header().Set("Link", "</a>")
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = w.Write(raw)
	case "/unsafe":
		w.Header().Set("X-A", "a\r\nX-B: b")
	case "/abort":
		_, _ = io.WriteString(w, "begun")
		_ = flush.Flush()
		panic(http.ErrAbortHandler)
	case "/close":
		w.Header().Set("Connection", "close")
		_, _ = w.Write(raw)
	default:
		_, _ = w.Write(raw)
	}
}

// servers are ours and net/http's, which is the twin that ours is compared with.
func servers(t *testing.T, h http.HandlerFunc) (fast, slow api.Endpoint) {
	t.Helper()
	dir := t.TempDir()
	listen := func(name string) net.Listener {
		l, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	ours := &hop.Server{Handler: h, HeaderTimeout: 300 * time.Millisecond, MaxHeaderBytes: 32 << 10}
	go func() { _ = ours.Serve(listen("fast")) }() // ends with Close
	theirs := &http.Server{Handler: h, ReadHeaderTimeout: 300 * time.Millisecond, MaxHeaderBytes: 32 << 10, ErrorLog: nil}
	go func() { _ = theirs.Serve(listen("slow")) }() // as above
	t.Cleanup(func() { _ = ours.Close(); _ = theirs.Close() })
	for _, name := range []string{"fast", "slow"} {
		for {
			if c, err := net.Dial("unix", filepath.Join(dir, name)); err == nil {
				c.Close()
				break
			}
		}
	}
	return api.Endpoint("unix:" + filepath.Join(dir, "fast")), api.Endpoint("unix:" + filepath.Join(dir, "slow"))
}

// dial connects to e.
func dial(t *testing.T, e api.Endpoint) net.Conn {
	t.Helper()
	network, address := e.Network()
	c, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// talk sends texts over one connection and describes all answers.
func talk(t *testing.T, e api.Endpoint, method string, texts ...string) string {
	t.Helper()
	c := dial(t, e)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	in := bufio.NewReader(c)
	var out strings.Builder
	for _, text := range texts {
		if _, err := io.WriteString(c, text); err != nil {
			fmt.Fprintf(&out, "write fails; ")
			break
		}
		for {
			resp, err := http.ReadResponse(in, &http.Request{Method: method})
			if err != nil {
				fmt.Fprintf(&out, "no answer; ")
				return out.String()
			}
			raw, err := io.ReadAll(resp.Body)
			for _, name := range []string{"Date"} {
				resp.Header.Del(name)
			}
			if len(raw) > 200 {
				raw = fmt.Appendf(raw[:20], "… %d", len(raw))
			}
			if resp.StatusCode >= 400 && resp.Close && resp.Header.Get("X-Seen") == "" { // the server's own refusal: what it says is its own affair
				fmt.Fprintf(&out, "refused with %d", resp.StatusCode)
				break
			}
			fmt.Fprintf(&out, "%s %v length %d %v close %t trailer %v body %q %v; ", resp.Status, resp.Header, resp.ContentLength, resp.TransferEncoding, resp.Close, resp.Trailer, raw, err)
			if resp.StatusCode >= 200 {
				break
			}
		}
	}
	return out.String()
}

// Whatever is asked, our server answers as net/http's does.
func TestServerAnswersAsNetHTTP(t *testing.T) {
	fast, slow := servers(t, answers)
	post := func(path, body string) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: h\r\nX-A: a\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
	}
	get := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: h\r\n\r\n" }
	for name, texts := range map[string][]string{
		"get": {get("/"), get("/empty")}, "post": {post("/", "one"), post("/", ""), post("/", "two")},
		"none": {post("/none", "x"), get("/unchanged"), get("/")}, "status": {post("/status", "x"), get("/")},
		"length": {get("/length")}, "short": {get("/short")}, "long": {get("/long"), get("/")},
		"flush": {get("/flush"), get("/")}, "trailer": {post("/trailer", "x"), get("/")}, "interim": {post("/interim", "x"), get("/")},
		"unsafe": {get("/unsafe"), get("/")}, "abort": {get("/abort")}, "close": {post("/close", "x")}, "not read": {post("/unread", "some"), get("/")},
		"asked to close": {"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"},
		"1.0":            {"GET / HTTP/1.0\r\n\r\n"},
		"1.0 kept":       {"POST / HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx", "GET / HTTP/1.0\r\n\r\n"},
		"1.0 flush":      {"GET /flush HTTP/1.0\r\n\r\n"},
		"chunks":         {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n0\r\n\r\n", get("/")},
		"bad chunk":      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"},
		"expect":         {"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx", get("/")},
		"expect else":    {"POST / HTTP/1.1\r\nHost: h\r\nExpect: more\r\n\r\n"},
		"no host":        {"GET / HTTP/1.1\r\n\r\n"}, "two hosts": {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"}, "bad host": {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n"},
		"noise": {"hello\r\n\r\n"}, "version": {"GET / HTTP/2.0\r\nHost: h\r\n\r\n"}, "version 3": {"GET / HTTP/3.1\r\nHost: h\r\n\r\n"},
		"encoding": {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n"}, "length and chunks": {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n0\r\n\r\n", get("/")},
		"bad length": {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n"}, "two lengths": {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx"},
		"bad name": {"GET / HTTP/1.1\r\nHost: h\r\nX A: a\r\n\r\n"}, "bad value": {"GET / HTTP/1.1\r\nHost: h\r\nX-A: a\x01\r\n\r\n"}, "space before colon": {"GET / HTTP/1.1\r\nHost: h\r\nX-A : a\r\n\r\n"},
		"large header": {"GET / HTTP/1.1\r\nHost: h\r\nX-A: " + strings.Repeat("a", 100<<10) + "\r\n\r\n"},
		"header":       {"GET / HTTP/1.1\r\nHost: h\r\nX-A: " + strings.Repeat("a", 20<<10) + "\r\n\r\n", get("/")},
		"absolute":     {"GET http://h/x HTTP/1.1\r\nHost: other\r\n\r\n"}, "pipelined": {get("/") + post("/", "x"), ""},
	} {
		if got, want := talk(t, fast, "GET", texts...), talk(t, slow, "GET", texts...); got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
	}
	for _, path := range []string{"/", "/length", "/long", "/empty", "/flush"} {
		text := "HEAD " + path + " HTTP/1.1\r\nHost: h\r\n\r\n"
		if got, want := talk(t, fast, "HEAD", text, text), talk(t, slow, "HEAD", text, text); got != want {
			t.Errorf("HEAD %s:\n got %s\nwant %s", path, got, want)
		}
	}
}

// A client that leaves ends the request's context, whether it waits for the
// first byte or reads, and one that stays keeps its connection after a long answer.
func TestServerNoticesWhoLeaves(t *testing.T) {
	ended := make(chan error, 1)
	fast, _ := servers(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/stay":
			time.Sleep(50 * time.Millisecond)
			_, _ = io.WriteString(w, "late")
			ended <- r.Context().Err()
			return
		case "/stream":
			_, _ = io.WriteString(w, "begun")
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
		ended <- r.Context().Err()
	})
	for _, path := range []string{"/wait", "/stream"} {
		c := dial(t, fast)
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx", path)
		if path == "/stream" {
			if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
				t.Fatal(err)
			}
		}
		c.Close()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the context ended with %v", path, err)
		}
	}
	c := dial(t, fast)
	defer c.Close()
	in := bufio.NewReader(c)
	for range 3 {
		fmt.Fprint(c, "POST /stay HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx")
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if raw, err := io.ReadAll(resp.Body); string(raw) != "late" || err != nil {
			t.Errorf("the answer is %q, %v", raw, err)
		}
		if err := <-ended; err != nil {
			t.Errorf("the context of a client who stayed: %v", err)
		}
	}
}

// A header that does not come to its end, and a connection that says nothing, are closed.
func TestServerHeaderTimeout(t *testing.T) {
	fast, slow := servers(t, answers)
	for _, text := range []string{"", "GET / HT", "GET / HTTP/1.1\r\nHost: h\r\n"} {
		got, want := ending(t, fast, text), ending(t, slow, text)
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// ending is what comes back on a connection until its end.
func ending(t *testing.T, e api.Endpoint, text string) string {
	t.Helper()
	c := dial(t, e)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(c)
	if err != nil {
		t.Errorf("%q: no end: %v", text, err)
	}
	return string(raw)
}

// Shutdown answers what runs, closes what waits, and takes nothing new.
func TestServerShutdown(t *testing.T) {
	running, release := make(chan bool), make(chan bool)
	s := &hop.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/run" {
			running <- true
			<-release
		}
		_, _ = io.WriteString(w, "done")
	})}
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	dial := func() net.Conn {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		return c
	}
	ask := func(c net.Conn, path string) { fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path) }
	answer := func(c net.Conn) string {
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return "no answer"
		}
		raw, _ := io.ReadAll(resp.Body)
		return fmt.Sprint(string(raw), resp.Close)
	}
	unused, idle, busy := dial(), dial(), dial()
	ask(idle, "/")
	if got := answer(idle); got != "donefalse" {
		t.Fatal(got)
	}
	ask(busy, "/run")
	<-running
	hurried, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(hurried); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a shutdown while a request runs: %v", err)
	}
	for name, c := range map[string]net.Conn{"unused": unused, "idle": idle} {
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the %s connection: %v, want its end", name, err)
		}
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("Serve: %v", err)
	}
	close(release)
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if got := answer(busy); got != "donetrue" {
		t.Errorf("the request that ran: %q", got)
	}
	if _, err := net.Dial("unix", path); err == nil {
		t.Error("it still takes connections")
	}
}

// A client that does not read is given up when the handler says so.
func TestServerWriteDeadline(t *testing.T) {
	failed := make(chan error, 1)
	fast, _ := servers(t, func(w http.ResponseWriter, r *http.Request) {
		out := http.NewResponseController(w)
		if err := out.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			failed <- err
			return
		}
		for {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				<-r.Context().Done()
				failed <- err
				return
			}
		}
	})
	c := dial(t, fast)
	defer c.Close()
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	var timeout net.Error
	if err := <-failed; !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("the write fails with %v, want a timeout", err)
	}
}

// FuzzServer sends any bytes: the server answers nothing that is no answer, and goes on.
func FuzzServer(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: h\r\n\r\n"))
	f.Add([]byte("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n0\r\n\r\n"))
	f.Add([]byte("POST /trailer HTTP/1.0\r\nContent-Length: 3\r\n\r\none\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		near, far := net.Pipe()
		s := &hop.Server{Handler: http.HandlerFunc(answers), HeaderTimeout: time.Second}
		l := &oneListener{c: make(chan net.Conn, 1), done: make(chan struct{})}
		l.c <- far
		go func() { _ = s.Serve(l) }() // ends with Close
		go func() {
			_, _ = near.Write(text)
			_ = near.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		}()
		raw, _ := io.ReadAll(near)
		near.Close()
		_ = s.Close()
		if len(raw) > 0 && !slices.ContainsFunc([]string{"HTTP/1.1 ", "HTTP/1.0 "}, func(p string) bool { return strings.HasPrefix(string(raw), p) }) {
			t.Errorf("%q is answered with %q", text, raw)
		}
	})
}

// oneListener accepts one connection.
type oneListener struct {
	c    chan net.Conn
	done chan struct{}
}

func (l *oneListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.c:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *oneListener) Close() error {
	select {
	case <-l.done:
	default:
		close(l.done)
	}
	return nil
}

func (*oneListener) Addr() net.Addr { return &net.UnixAddr{} }
