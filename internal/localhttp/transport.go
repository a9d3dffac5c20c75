// Package localhttp carries HTTP requests between the processes of one machine, in a fraction of the time of
// net/http's client: the calling goroutine itself writes the request and reads the answer.
//
// HTTP/1.1 does not say which request a response is for: a surplus response that a server writes late is read by the
// next request on that connection. So a connection is reused only if the server names the requests it answers
// ([api.InTurn]), or if the caller trusts it ([Transport.Reuse]). A trusted server may not have read the body before a
// status of 400 or more, which closes the connection. An answer that names another request, or none on a reused
// connection, is an error.
//
// A context that ends closes the connection. If the request asks for its usage ([control.HeaderUsage]), at first only the
// direction to the server is closed: an answer within a second is returned.
//
// The package never sends a request twice, and does not support proxies, TLS, cookies or redirects.
package localhttp

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Transport is an [http.RoundTripper] for [api.Endpoint]s, safe for concurrent use.
type Transport struct {
	general *http.Transport // for requests that are not simple; it dials for both
	perHost int
	oldest  time.Duration

	mu      sync.Mutex         // guards the fields below
	trusted string             // the host of Reuse
	idle    map[string][]*Conn // by host, the last used last
	count   int                // of idle connections
	sweep   *time.Timer        // armed while there are idle ones
}

// New returns a transport that keeps up to idlePerHost idle connections to each endpoint, for idleTime, which must be
// positive.
func New(idlePerHost int, idleTime time.Duration) *Transport {
	t := &Transport{general: api.NewTransport(idlePerHost), perHost: idlePerHost, oldest: idleTime, idle: map[string][]*Conn{}}
	t.general.DisableKeepAlives = true // it does not know request IDs
	t.sweep = time.AfterFunc(time.Hour, t.closeOld)
	t.sweep.Stop()
	return t
}

// Reuse allows reuse of connections to e alone, although e does not name the requests it answers.
func (t *Transport) Reuse(e api.Endpoint) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trusted = hostOf(e)
}

// Reuses reports whether [Transport.Reuse] was last called with e.
func (t *Transport) Reuses(e api.Endpoint) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.trusted == hostOf(e)
}

func hostOf(e api.Endpoint) string {
	u, err := url.Parse(e.URL("/"))
	if err != nil {
		return ""
	}
	return u.Host
}

// Concurrent reports whether the server of r, a GET, answers on a second connection while a first one is idle. A
// single-threaded server does not, and one that closes each connection has nothing to reuse.
func (t *Transport) Concurrent(r *http.Request) bool {
	for range 2 {
		out, err := whole(r)
		if err != nil {
			return false
		}
		defer out.release()
		c, err := t.dial(r.Context(), r)
		if err != nil {
			return false
		}
		defer c.Close()
		resp, _, err := c.exchange(r, out, nil) //nolint:bodyclose // its connection is closed
		if err != nil || resp.Close {
			return false
		}
		b, open := resp.Body.(*body)
		if !open {
			continue
		}
		b.keep = false
		if n, err := io.Copy(io.Discard, io.LimitReader(b.in, probeBody)); err != nil || n == probeBody {
			return false
		}
	}
	return r.Context().Err() == nil // its end closes the first connection, which may let the second be answered
}

const probeBody = 1 << 20

// RoundTrip implements [http.RoundTripper]. It closes the request's body; the caller closes the answer's.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.RoundTripCharged(r, nil)
}

// RoundTripCharged calls charge, which may be nil, once before it reads a large header. Its error ends the request. The
// memory is free again when the answer is dropped. charge is not called for requests that are not simple.
func (t *Transport) RoundTripCharged(r *http.Request, charge func(bytes int64) error) (*http.Response, error) {
	if !Simple(r) {
		if idle := t.take(r.URL.Host); idle != nil { // it may occupy a server thread
			idle.Close()
		}
		return t.general.RoundTrip(r)
	}
	out, err := whole(r)
	if err != nil {
		return nil, err
	}
	defer out.release()
	ctx := r.Context()
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		c := t.take(r.URL.Host)
		reused := c != nil
		if !reused {
			if c, err = t.dial(ctx, r); err != nil {
				return nil, err
			}
		}
		resp, untouched, err := c.exchange(r, out, charge)
		if err != nil && reused && untouched && ctx.Err() == nil {
			continue // the other side has just closed it
		}
		return resp, err
	}
}

func (t *Transport) dial(ctx context.Context, r *http.Request) (*Conn, error) {
	address := r.URL.Host
	if r.URL.Port() == "" {
		address = net.JoinHostPort(r.URL.Hostname(), "80")
	}
	nc, err := t.general.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return newConn(t.put, r.URL.Host, nc), nil
}

func (t *Transport) take(host string) *Conn {
	now := time.Now()
	for {
		t.mu.Lock()
		list := t.idle[host]
		if len(list) == 0 {
			t.mu.Unlock()
			return nil
		}
		c := list[len(list)-1] // the last used: the others expire
		list[len(list)-1] = nil
		t.idle[host] = list[:len(list)-1]
		t.count--
		t.mu.Unlock()
		if now.Sub(c.idleSince) < t.oldest && c.Quiet() {
			return c
		}
		c.Close()
	}
}

func (t *Transport) put(c *Conn) bool {
	c.idleSince = time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.idle[c.host]
	keep := len(list) < t.perHost && (c.proven || t.trusted == c.host)
	if keep {
		t.idle[c.host] = append(list, c)
		if t.count++; t.count == 1 {
			t.sweep.Reset(t.oldest)
		}
	}
	return keep
}

func (t *Transport) closeOld() {
	limit := time.Now().Add(-t.oldest)
	t.closeIdle(func(c *Conn) bool { return c.idleSince.Before(limit) })
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count > 0 {
		t.sweep.Reset(t.oldest)
	}
}

// CloseIdleConnections closes all idle connections.
func (t *Transport) CloseIdleConnections() {
	t.closeIdle(func(*Conn) bool { return true })
}

func (t *Transport) closeIdle(old func(*Conn) bool) {
	var left []*Conn
	t.mu.Lock()
	for host, list := range t.idle {
		kept := list[:0]
		for _, c := range list {
			if old(c) {
				left = append(left, c)
			} else {
				kept = append(kept, c)
			}
		}
		clear(list[len(kept):])
		t.idle[host] = kept
		if len(kept) == 0 {
			delete(t.idle, host)
		}
	}
	t.count -= len(left)
	t.mu.Unlock()
	for _, c := range left {
		c.Close()
	}
}

// Limit is for servers that are not trusted: reading more than Bytes of a response, after decompression, is an error.
type Limit struct {
	From  http.RoundTripper // nil: [http.DefaultTransport]
	Bytes int64
}

// RoundTrip implements [http.RoundTripper].
func (l Limit) RoundTrip(r *http.Request) (*http.Response, error) {
	from := l.From
	if from == nil {
		from = http.DefaultTransport
	}
	resp, err := from.RoundTrip(r)
	if err == nil {
		resp.Body = &limited{resp.Body, l.Bytes, fmt.Errorf("%s answers with more than %d bytes", r.URL.Host, l.Bytes)}
	}
	return resp, err
}

type limited struct {
	io.ReadCloser
	left int64 // below 0: there were more
	more error
}

func (b *limited) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, b.more
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	if b.left -= int64(n); b.left < 0 {
		return n - 1, b.more
	}
	return n, err
}

// NewConn takes over nc. It calls idle when the connection may carry another request, and closes it if idle returns false.
func NewConn(nc net.Conn, idle func(*Conn) bool) *Conn {
	c := newConn(idle, "", nc)
	c.proven = true // even the first answer must name its request
	return c
}

// NetConn returns the connection beneath, which belongs to the caller while c is idle.
func (c *Conn) NetConn() net.Conn { return c.net.(net.Conn) }

// RoundTripOver sends a [Simple] request over the connection that take returns, and over another one if the other side has
// received nothing.
func RoundTripOver(r *http.Request, take func(context.Context) (*Conn, error)) (*http.Response, error) {
	out, err := whole(r)
	if err != nil {
		return nil, err
	}
	defer out.release()
	ctx := r.Context()
	for {
		c, err := take(ctx)
		if err != nil {
			return nil, err
		}
		if resp, untouched, err := c.exchange(r, out, nil); err == nil || !untouched || ctx.Err() != nil {
			return resp, err
		}
	}
}
