package localhttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/localhttp"
)

// post sends a body and returns the answer's body.
func post(t *testing.T, tr *localhttp.Transport, e api.Endpoint, path, body string) (string, error) {
	t.Helper()
	r := request(t, t.Context(), "POST", e, path, body)
	r.Header.Set("X-Request-Id", body[:min(8, len(body))])
	resp, err := tr.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return string(raw), err
}

// TestReuse checks that only connections to a trusted server are reused.
func TestReuse(t *testing.T) {
	trusted, toTrusted := serveForeign(t, http.HandlerFunc(mirror))
	other, toOther := serveForeign(t, http.HandlerFunc(mirror))
	tr := newTransport(t)
	tr.Reuse(trusted)
	if !tr.Reuses(trusted) || tr.Reuses(other) {
		t.Error("it does not know whom it trusts")
	}
	ask := func(e api.Endpoint, path string, size int) {
		t.Helper()
		body := strings.Repeat("x", size)
		if got, err := post(t, tr, e, path, body); strings.TrimSuffix(got, "\n") != body || err != nil {
			t.Fatalf("%s: %d bytes, %v, want %d", path, len(got), err, size)
		}
	}
	for range 5 {
		ask(trusted, "/", 1)
		ask(trusted, "/chunks", 3)
		ask(other, "/", 1)
	}
	if a, b := toTrusted.Load(), toOther.Load(); a != 1 || b != 5 {
		t.Errorf("%d connections to the trusted server, want 1, and %d to the other, want 5", a, b)
	}
	for _, c := range []struct {
		path string
		size int
		took int32
		why  string
	}{
		{"/status", 1, 0, "the idle one"},
		{"/", 1, 1, "after an error"},
		{"/close", 1, 0, "the idle one"},
		{"/", 1, 1, "after Connection: close"},
		{"/", 300 << 10, 1, "one of its own for a large body"},
		{"/", 1, 1, "the large one closed the idle one first"},
		{"/", 1, 0, "the idle one"},
	} {
		before := toTrusted.Load()
		ask(trusted, c.path, c.size)
		if took := int32(toTrusted.Load() - before); took != c.took {
			t.Errorf("%s: %d new connections, want %d: %s", c.path, took, c.took, c.why)
		}
	}
}

// scripted serves loopback connections, each with its own function; the last one serves all that follow.
func scripted(t *testing.T, serve ...func(net.Conn, *bufio.Reader)) api.Endpoint {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for i := 0; ; i++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve[min(i, len(serve)-1)](c, bufio.NewReader(c))
			}()
		}
	}()
	return api.Endpoint("http://" + l.Addr().String())
}

// read reads a request with its body.
func read(in *bufio.Reader) (*http.Request, error) {
	r, err := http.ReadRequest(in)
	if err == nil {
		_, _ = io.Copy(io.Discard, r.Body)
	}
	return r, err
}

func say(c net.Conn, header, body string) {
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s", header, len(body), body)
}

// TestSurplusOnAnIdleConnection checks that unsolicited bytes end an idle connection and are never taken for an
// answer.
func TestSurplusOnAnIdleConnection(t *testing.T) {
	said := make(chan bool, 1) // capacity one: the server does not wait
	e := scripted(t, func(c net.Conn, in *bufio.Reader) {
		_, _ = read(in)
		say(c, "", "first")
		time.Sleep(time.Millisecond) // a separate packet: surplus bytes that come with the answer are seen without a poll
		say(c, "", "SURPLUS")
		said <- true
		_, _ = read(in)
	}, func(c net.Conn, in *bufio.Reader) {
		_, _ = read(in)
		say(c, "", "second")
	})
	tr := newTransport(t)
	tr.Reuse(e)
	if got, err := post(t, tr, e, "/", "one"); got != "first" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	<-said
	if got, err := post(t, tr, e, "/", "two"); got != "second" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// TestNothingIsSentTwice checks that a request is not resent once a byte was written, even if the server closes the
// connection while reading.
func TestNothingIsSentTwice(t *testing.T) {
	asked := make(chan string, 4)
	e := scripted(t, func(c net.Conn, in *bufio.Reader) {
		_, _ = read(in)
		say(c, "", "first")
		if r, err := read(in); err == nil {
			asked <- "on the first connection: " + r.URL.Path
		}
	}, func(_ net.Conn, in *bufio.Reader) {
		if r, err := read(in); err == nil {
			asked <- "on another one: " + r.URL.Path
		}
	})
	tr := newTransport(t)
	tr.Reuse(e)
	if _, err := post(t, tr, e, "/", "one"); err != nil {
		t.Fatal(err)
	}
	if got, err := post(t, tr, e, "/second", "two"); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%q, %v, want an unexpected EOF", got, err)
	}
	if got := <-asked; got != "on the first connection: /second" || len(asked) > 0 {
		t.Errorf("asked %q and %d times more", got, len(asked))
	}
}

// TestRequestIDs checks that X-Request-Id is compared for servers that repeat it.
func TestRequestIDs(t *testing.T) {
	e := scripted(t, func(c net.Conn, in *bufio.Reader) {
		for {
			r, err := read(in)
			if err != nil {
				return
			}
			id := r.Header.Get("X-Request-Id")
			switch id {
			case "plain": // a refusal, for example
				say(c, "", "to "+id)
				continue
			case "three":
				id = "two"
			}
			say(c, "X-Request-Id: "+id+"\r\n", "to "+id)
		}
	})
	tr := newTransport(t)
	tr.Reuse(e)
	for _, c := range []struct {
		id    string
		wrong bool
	}{{"one", false}, {"two", false}, {"plain", false}, {"three", true}, {"four", false}} {
		if got, err := post(t, tr, e, "/", c.id); (err != nil) != c.wrong || !c.wrong && got != "to "+c.id {
			t.Errorf("%s: %q, %v", c.id, got, err)
		}
	}
}

// TestConcurrent checks the detection of servers that serve one connection at a time.
func TestConcurrent(t *testing.T) {
	single := make(chan bool, 1) // holds the only thread
	oneByOne := scripted(t, func(c net.Conn, in *bufio.Reader) {
		single <- true
		defer func() { <-single }()
		for {
			if _, err := read(in); err != nil {
				return
			}
			say(c, "", "yes")
		}
	})
	closing := scripted(t, func(c net.Conn, in *bufio.Reader) {
		_, _ = read(in)
		say(c, "Connection: close\r\n", "yes")
	})
	good := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(good.Close)
	endless := scripted(t, func(c net.Conn, in *bufio.Reader) {
		_, _ = read(in)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		for {
			if _, err := c.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	})
	for name, c := range map[string]struct {
		e    api.Endpoint
		want bool
	}{
		"one thread": {oneByOne, false}, "closes": {closing, false}, "answers, though with 404": {api.Endpoint(good.URL), true},
		"endless": {endless, false}, "nobody": {"http://127.0.0.1:1", false},
	} {
		limit, times := time.Minute, 1
		if name == "one thread" { // the end of the attempt frees the thread for its second connection
			limit, times = 5*time.Millisecond, 100
		}
		for range times {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			if got := newTransport(t).Concurrent(request(t, ctx, "GET", c.e, "/", "")); got != c.want {
				t.Errorf("%s: %t, want %t", name, got, c.want)
			}
			cancel()
		}
	}
}
