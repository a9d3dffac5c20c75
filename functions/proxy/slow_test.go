package proxy_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/functions/proxy"
)

// one is a listener of one connection.
type one struct {
	conns chan net.Conn // from the test to Accept; room for one; closed by Close
}

func (l one) Accept() (net.Conn, error) {
	c, open := <-l.conns
	if !open {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (l one) Close() error { close(l.conns); return nil }
func (one) Addr() net.Addr { return &net.UnixAddr{} }

// flood is a runtime with endless answers.
type flood struct{}

func (flood) RoundTrip(r *http.Request) (*http.Response, error) {
	event := "data: {}\n\n"
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Request: r, ContentLength: -1,
		Body: io.NopCloser(repeat(event)),
	}, nil
}

type repeat string

func (r repeat) Read(p []byte) (int, error) {
	return copy(p, strings.Repeat(string(r), len(p)/len(r))), nil
}

// connect returns the client's side of a connection to a server with a proxy.
func connect(g *gate) (ours net.Conn, outcomes <-chan proxy.Outcome, end func()) {
	seen := make(chan proxy.Outcome, 1)
	server := &http.Server{
		ReadTimeout: time.Minute,
		Handler:     proxy.New(proxy.Config{Gate: g, Transport: flood{}, Observe: func(o proxy.Outcome) { seen <- o }}),
	}
	l := one{make(chan net.Conn, 1)}
	ours, theirs := net.Pipe()
	l.conns <- theirs
	go func() { _ = server.Serve(l) }()
	return ours, seen, func() {
		_ = ours.Close()
		_ = server.Close()
	}
}

// A client that does not send its body loses its slot.
func TestClientThatDoesNotSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{base: "http://runtime"}
		ours, outcomes, end := connect(g)
		defer end()
		if _, err := io.WriteString(ours, "POST /v1/completions HTTP/1.1\r\nHost: f\r\nContent-Length: 9\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		resp, err := http.ReadResponse(bufio.NewReader(ours), nil)
		if err != nil || resp.StatusCode != http.StatusRequestTimeout {
			t.Errorf("it is told %+v, %v, want 408", resp, err)
		}
		if o := <-outcomes; time.Since(began) > 2*time.Minute || o.Status != 408 || g.inside.Load() != 0 {
			t.Errorf("it has its place for %v, with %+v and %d inside", time.Since(began), o, g.inside.Load())
		}
	})
}

// A client that does not read its answer loses its slot.
func TestClientThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{base: "http://runtime"}
		ours, outcomes, end := connect(g)
		defer end()
		if _, err := io.WriteString(ours, "POST /v1/completions HTTP/1.1\r\nHost: f\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		o := <-outcomes
		if took := time.Since(began); took > 2*time.Minute || o.Status != 499 || g.inside.Load() != 0 {
			t.Errorf("it has its place for %v, with %+v and %d inside", took, o, g.inside.Load())
		}
	})
}
