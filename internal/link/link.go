// Package link carries HTTP requests against the direction in which a connection
// was dialled: an agent behind NAT dials a front door, and then serves; the front
// door accepts, and then sends. Both halves of HTTP/2 are the standard library's.
//
// It does not dial, and knows nothing of TLS: who gives it a connection has made
// sure whose it is, as far as the transport can tell. It tries nothing again.
//
// The life of a link:
//
//  1. The agent dials, with [Protocol] as the ALPN protocol, and calls [Serve]: the
//     [Hello] goes first: two bytes of length, and JSON.
//  2. The front door accepts, and calls [Accept]. It reads the Hello, within bounds of
//     size and time, and decides whether it wants the link.
//  3. From then on it is HTTP/2: the front door sends requests ([Link.RoundTrip]), any
//     number at once, and the agent's handler answers them. Headers, trailers and bodies
//     go as they come, in both directions at once; a request that is given up is reset,
//     and who reads slowly stops nobody else.
//  4. An agent that ends calls Shutdown of [Server]: no new request is taken, running
//     ones finish. A peer that does not answer a ping is dead: each request ends with an error.
package link

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Protocol is the ALPN protocol of a link.
const Protocol = "rouse-link/1"

// Hello is the first message of a link, from the agent.
type Hello struct {
	// Agent is the process that dialled, and Session the control stream of it that the link belongs to.
	Agent   string `json:"agent"`
	Session string `json:"session"`
	// Secret is what the control stream was given for its links, so that nobody else's joins them.
	Secret string `json:"secret"`
}

// Config bounds a link. The zero value is usable.
type Config struct {
	// HelloTimeout bounds the wait for the Hello. Default 5 s.
	HelloTimeout time.Duration
	// PingAfter is the silence after which the peer is pinged, PingTimeout how long it has to answer. Default 3 s and 5 s.
	PingAfter, PingTimeout time.Duration
	// Streams bounds the requests at once on one link. Default 65,536.
	Streams int
	// Window is how much of one body may be on its way and unread. Default 256 KiB.
	Window int
	// MaxHeader bounds a request's or an answer's header. Default 64 KiB.
	MaxHeader int
}

// maxHello bounds the first message.
const maxHello = 4 << 10

// WithDefaults fills the zero fields.
func (c Config) WithDefaults() Config {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&c.HelloTimeout, 5*time.Second)
	set(&c.PingAfter, 3*time.Second)
	set(&c.PingTimeout, 5*time.Second)
	for at, to := range map[*int]int{&c.Streams: 1 << 16, &c.Window: 256 << 10, &c.MaxHeader: 64 << 10} {
		if *at == 0 {
			*at = to
		}
	}
	return c
}

// Validate reports the first field that is wrong, and what it should be.
func (c Config) Validate() error {
	c = c.WithDefaults()
	switch {
	case c.HelloTimeout < 0 || c.PingAfter < 0 || c.PingTimeout < 0:
		return fmt.Errorf("link: times of %s, %s and %s: want more than 0", c.HelloTimeout, c.PingAfter, c.PingTimeout)
	case c.Streams < 1:
		return fmt.Errorf("link: %d requests at once: want 1 or more", c.Streams)
	case c.Window < 64<<10 || c.Window >= 4<<20:
		return fmt.Errorf("link: a window of %d bytes: want 64 KiB to less than 4 MiB", c.Window)
	case c.MaxHeader < 4<<10 || c.MaxHeader > 1<<20:
		return fmt.Errorf("link: headers of up to %d bytes: want 4 KiB to 1 MiB", c.MaxHeader)
	}
	return nil
}

// http2 are the settings of both halves.
func (c Config) http2() *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams: c.Streams, StrictMaxConcurrentRequests: true,
		MaxReceiveBufferPerStream: c.Window,
		SendPingTimeout:           c.PingAfter, PingTimeout: c.PingTimeout, WriteByteTimeout: c.PingAfter + c.PingTimeout,
	}
}

// onlyHTTP2 is HTTP/2 from the first byte.
func onlyHTTP2() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

// Link is the front door's half. It is safe for many goroutines.
type Link struct {
	conn *http.ClientConn
	done chan struct{}
	once sync.Once
}

// Accept reads the Hello of a connection that an agent dialled, and asks admit whether
// it is wanted. Without an error the connection is the Link's; with one it is closed.
func Accept(ctx context.Context, conn net.Conn, cfg Config, admit func(Hello) error) (*Link, error) {
	cfg = cfg.WithDefaults()
	hello, err := readHello(ctx, conn, cfg.HelloTimeout)
	if err == nil {
		err = admit(hello)
	}
	if err != nil {
		_ = conn.Close() // nothing was promised on it
		return nil, err
	}
	l := &Link{done: make(chan struct{})}
	t := &http.Transport{
		Protocols: onlyHTTP2(), HTTP2: cfg.http2(), DisableCompression: true, MaxResponseHeaderBytes: int64(cfg.MaxHeader),
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return &watched{Conn: conn, closed: l.ended}, nil
		},
	}
	if l.conn, err = t.NewClientConn(ctx, "http", "agent:80"); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("link: begin HTTP/2: %w", err)
	}
	return l, nil
}

// RoundTrip sends a request to the agent. The scheme and host of its URL are not looked at.
func (l *Link) RoundTrip(r *http.Request) (*http.Response, error) {
	return l.conn.RoundTrip(r)
}

// Taking says whether the agent takes a new request: it has not said go-away, and the bound of requests at once is not reached.
func (l *Link) Taking() bool { return l.conn.Available() > 0 }

// InFlight is the number of requests that were sent and whose answers have not ended.
func (l *Link) InFlight() int { return l.conn.InFlight() }

// Done is closed when the connection has ended.
func (l *Link) Done() <-chan struct{} { return l.done }

// Close ends the link, and each request on it with an error.
func (l *Link) Close() error {
	return l.conn.Close()
}

func (l *Link) ended() { l.once.Do(func() { close(l.done) }) }

// watched says when it is closed.
type watched struct {
	net.Conn
	closed func()
}

// Close implements [net.Conn].
func (w *watched) Close() error {
	defer w.closed()
	return w.Conn.Close()
}

// readHello reads the first message, and no byte behind it: those are HTTP/2's.
func readHello(ctx context.Context, conn net.Conn, timeout time.Duration) (h Hello, err error) {
	until := time.Now().Add(timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(until) {
		until = d
	}
	if err := conn.SetReadDeadline(until); err != nil {
		return h, fmt.Errorf("link: set a deadline: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return h, fmt.Errorf("link: read the first message: %w", err)
	}
	n := int(size[0])<<8 | int(size[1])
	if n > maxHello {
		return h, fmt.Errorf("link: a first message of %d bytes: want at most %d", n, maxHello)
	}
	line := make([]byte, n)
	if _, err := io.ReadFull(conn, line); err != nil {
		return h, fmt.Errorf("link: read the first message: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&h); err != nil {
		return h, fmt.Errorf("link: the first message: %w", err)
	}
	return h, conn.SetReadDeadline(time.Time{})
}

// Server is the agent's half.
type Server struct {
	hello Hello
	http  http.Server
}

// NewServer makes the agent's half. handler answers the requests of the front door.
func NewServer(hello Hello, handler http.Handler, cfg Config) *Server {
	cfg = cfg.WithDefaults()
	return &Server{hello: hello, http: http.Server{Handler: handler, Protocols: onlyHTTP2(), HTTP2: cfg.http2(), MaxHeaderBytes: cfg.MaxHeader, ReadHeaderTimeout: cfg.HelloTimeout}}
}

// Serve serves the connection, which becomes the Server's, until it ends or
// Shutdown or Close was called, and then returns nil, or says why nothing could be served.
func (s *Server) Serve(conn net.Conn) error {
	line, err := json.Marshal(s.hello)
	if err != nil || len(line) > maxHello {
		_ = conn.Close()
		return fmt.Errorf("link: a first message of %d bytes: %w", len(line), errors.Join(err, errLong))
	}
	if _, err := conn.Write(append([]byte{byte(len(line) >> 8), byte(len(line))}, line...)); err != nil {
		_ = conn.Close()
		return fmt.Errorf("link: say who dialled: %w", err)
	}
	l := &once{conn: make(chan net.Conn, 1), done: make(chan struct{}), addr: conn.LocalAddr()}
	l.conn <- &watched{Conn: conn, closed: func() { _ = l.Close() }}
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("link: serve: %w", err)
	}
	return nil
}

// errLong is why a Hello can't be sent.
var errLong = fmt.Errorf("want at most %d", maxHello)

// Shutdown takes no new request, and returns when the last one is answered, or ctx ends.
func (s *Server) Shutdown(ctx context.Context) error {
	return s.http.Shutdown(ctx)
}

// Close ends the link at once.
func (s *Server) Close() error {
	return s.http.Close()
}

// once is a listener that accepts one connection, and is closed with it.
type once struct {
	conn  chan net.Conn
	done  chan struct{}
	close sync.Once
	addr  net.Addr
}

// Accept implements [net.Listener].
func (o *once) Accept() (net.Conn, error) {
	select {
	case c := <-o.conn:
		return c, nil
	case <-o.done:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (o *once) Close() error {
	o.close.Do(func() { close(o.done) })
	return nil
}

// Addr implements [net.Listener].
func (o *once) Addr() net.Addr { return o.addr }
