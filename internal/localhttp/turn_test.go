package localhttp_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// evil is a server that answers one request with one surplus answer.
type evil struct {
	nodelay bool // whether writes are sent at once
	names   bool // whether answers name their request, as ours do
	// extra writes an answer to the first request and a surplus one, at a time of its choice.
	extra func(say func(string), next *bufio.Reader)
}

// listen serves on loopback until the test ends.
func (e evil) listen(t *testing.T) api.Endpoint {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	first := make(chan bool, 1) // capacity one: the first request takes the value
	first <- true
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*net.TCPConn).SetNoDelay(e.nodelay)
			go e.serve(c, first)
		}
	}()
	return api.Endpoint("http://" + l.Addr().String())
}

func (e evil) serve(c net.Conn, first <-chan bool) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		named := ""
		if e.names {
			named = api.HeaderTurn + ": " + r.Header.Get(api.HeaderTurn) + "\r\n"
		}
		say := func(s string) { fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s", named, len(s), s) }
		select {
		case <-first:
			e.extra(say, in)
		default:
			say(r.Header.Get("X-A"))
		}
	}
}

// TestAnAnswerTooMany checks that no client gets another's answer, whenever the server writes a surplus one. If the
// server names requests, some clients may get an error.
func TestAnAnswerTooMany(t *testing.T) {
	later := make(chan bool) // sent to when a request after the first has been answered
	extras := map[string]func(func(string), *bufio.Reader){
		"at once": func(say func(string), _ *bufio.Reader) { say("first"); say("EXTRA") },
		"later": func(say func(string), _ *bufio.Reader) {
			say("first")
			go func() {
				<-later
				say("EXTRA")
			}()
		},
		"with the next": func(say func(string), next *bufio.Reader) {
			say("first")
			if _, err := next.Peek(1); err == nil {
				say("EXTRA")
			}
		},
	}
	for name, extra := range extras {
		for _, e := range []evil{{false, false, extra}, {false, true, extra}, {true, false, extra}, {true, true, extra}} {
			t.Run(fmt.Sprintf("%s, nodelay %t, names %t", name, e.nodelay, e.names), func(t *testing.T) {
				at, tr := e.listen(t), newTransport(t)
				ask := func(tag string) (string, error) {
					r := request(t, t.Context(), "POST", at, "/", "{}")
					r.Header.Set("X-A", tag)
					resp, err := tr.RoundTrip(r)
					if err != nil {
						return "", err
					}
					defer resp.Body.Close()
					raw, err := io.ReadAll(resp.Body)
					return string(raw), err
				}
				if got, err := ask("first"); got != "first" || err != nil {
					t.Fatalf("first: %q, %v", got, err)
				}
				failed := 0
				for i := range 40 {
					tag := fmt.Sprint("t", i)
					if i == 1 && name == "later" {
						later <- true
					}
					switch got, err := ask(tag); {
					case err != nil && e.names:
						failed++
					case err != nil || got != tag:
						t.Errorf("%s got %q, %v", tag, got, err)
					}
				}
				if failed > 1 {
					t.Errorf("%d requests failed, want 1 at most: the connection is closed", failed)
				}
			})
		}
	}
}

// endless writes p until it fails, and returns how many bytes that were.
func endless(c net.Conn, p string) (n int) {
	_ = c.SetWriteDeadline(time.Now().Add(10 * time.Second))
	for {
		k, err := io.WriteString(c, p)
		n += k
		if err != nil {
			return n
		}
	}
}

// TestHeadersThatAreTooLarge checks that an endless header costs bounded memory, for any content and for either
// client.
func TestHeadersThatAreTooLarge(t *testing.T) {
	wrote := make(chan int, 1) // sent to by the server, once per request
	e, _ := serveForeign(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		c, _, _ := http.NewResponseController(w).Hijack()
		defer c.Close()
		switch r.URL.Path {
		case "/line":
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX-A: ")
			wrote <- endless(c, strings.Repeat("a", 1<<16))
		case "/lines":
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			wrote <- endless(c, strings.Repeat("A: b\r\n", 1<<12))
		case "/status":
			_, _ = io.WriteString(c, "HTTP/1.1 200 ")
			wrote <- endless(c, strings.Repeat("a", 1<<16))
		case "/interim":
			wrote <- endless(c, "HTTP/1.1 103 Early Hints\r\nX-A: "+strings.Repeat("a", 1<<16)+"\r\n\r\n")
		}
	}))
	tr := newTransport(t)
	for _, size := range []int{3, 300 << 10} {
		for _, path := range []string{"/line", "/lines", "/status", "/interim"} {
			resp, err := tr.RoundTrip(request(t, t.Context(), "POST", e, path, strings.Repeat("x", size)))
			if err == nil {
				resp.Body.Close()
				t.Errorf("%s, a body of %d bytes: %s, want an error", path, size, resp.Status)
			}
			if n := <-wrote; n > 2<<20 { // including the kernel's buffers
				t.Errorf("%s, a body of %d bytes: %d bytes were taken", path, size, n)
			}
		}
	}
}

// TestHeadersThatAreLarge checks that headers up to the limit, interim ones included, are read.
func TestHeadersThatAreLarge(t *testing.T) {
	e, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("X-A", strings.Repeat("a", 100<<10))
		w.WriteHeader(http.StatusEarlyHints)
		for i := range 500 {
			w.Header().Set(fmt.Sprint("X-", i), strings.Repeat("b", 50))
		}
		_, _ = io.WriteString(w, strings.Repeat("line\n", 1<<12)) // not lines of the header
	})
	tr := newTransport(t)
	for range 3 {
		resp, err := tr.RoundTrip(request(t, t.Context(), "POST", e, "/", "one"))
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if len(raw) != 5<<12 || err != nil || len(resp.Header.Get("X-A")) != 100<<10 || resp.Header.Get("X-499") == "" {
			t.Errorf("%d bytes, %v", len(raw), err)
		}
		if resp.Header.Get(api.HeaderTurn) != "" {
			t.Error("the id of the request is passed on")
		}
	}
}

// TestWhoseTurnItIs checks that an answer that names another request is rejected, and that clients cannot set the ID.
func TestWhoseTurnItIs(t *testing.T) {
	for said, right := range map[string]bool{"": true, "other": false, "twice": false, "own": true} {
		e, connections := serveForeign(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got := r.Header.Values(api.HeaderTurn)
			if len(got) != 1 || got[0] == "mine" {
				t.Errorf("the id is %q, want one that was made for this request", got)
			}
			switch said {
			case "other":
				w.Header().Set(api.HeaderTurn, "1")
			case "twice":
				w.Header()[api.HeaderTurn] = append(got, got...)
			case "own":
				w.Header()[api.HeaderTurn] = got
			}
			_, _ = io.Copy(w, r.Body)
		}))
		tr := newTransport(t)
		for range 3 {
			r := request(t, t.Context(), "POST", e, "/", "one")
			r.Header.Set(api.HeaderTurn, "mine")
			resp, err := tr.RoundTrip(r)
			if (err == nil) != right {
				t.Errorf("%q: error %v", said, err)
			}
			var dial *net.OpError
			if errors.As(err, &dial) {
				t.Errorf("%q: %v, want an error that does not say that nobody has seen the request", said, err)
			}
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}
		want := int64(3)
		if said == "own" {
			want = 1
		}
		if n := connections.Load(); n != want {
			t.Errorf("%q: %d connections, want %d", said, n, want)
		}
	}
}
