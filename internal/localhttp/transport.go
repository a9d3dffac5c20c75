// Package localhttp carries HTTP requests between the processes of one machine, in a
// fraction of the time that net/http's own client takes.
//
// A [http.Transport] keeps two goroutines per connection, and a request passes
// through both: hand-overs between threads, which on a busy machine cost more
// than everything else on the way. A [Transport] has none: the goroutine that asks
// writes the request and reads the answer itself.
//
// The life of a request:
//
//  1. Is it simple: http, a body of known and moderate length, no upgrade? What is
//     not goes to a [http.Transport], whole, which keeps no connection.
//  2. Header and body are put together in memory, with an id of the request
//     ([api.HeaderTurn]), and written at once to an idle connection, which was inspected
//     first: one that the other side has closed, or from which something is to be
//     read, is thrown away. If nothing at all could be written, another one is tried. A new
//     connection on the loopback interface is made without waiting.
//  3. The header of the answer is read, [api.MaxAnswerHeader] of it at most; interim
//     answers (1xx) are skipped. The id that it names is compared before anybody sees
//     a byte of it: an answer that names another one, or none where the connection has
//     carried a request before, is an error, and the connection is closed.
//  4. The caller reads the body from the connection. At its end the connection
//     becomes idle if the answer has named its request; a body that is closed before
//     ends the connection, by which the server knows that nobody listens any more.
//  5. The end of the request's context, whenever it comes, ends the connection.
//
// HTTP/1.1 does not say which request a response is for: a surplus response that a server
// writes late is read by the next request on that connection. So a connection carries a
// second request only to a server that names what it answers, as our own processes do
// ([api.InTurn]), or that the caller trusts ([Transport.Reuse]), as net/http, Envoy and nginx
// trust every server. Every other server gets a connection for each request. On a trusted
// connection an answer with a status of 400 or more is its last, because the server may not
// have read the request's body, and from a server that repeats X-Request-Id another request's is refused.
//
// [RoundTripOver] does the same over connections that somebody else has opened.
//
// Rules of headers are here too: which belong to one connection
// ([DropConnection]), and which characters they may have ([ValidName], [ValidValue]).
//
// It refuses headers that can't be written, never sends a request twice, and
// knows no proxies, no TLS, no cookies and no redirects.
package localhttp

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Transport is an [http.RoundTripper] for [api.Endpoint]s, safe for many
// goroutines. Idle connections to servers that name what they answer are kept until they are old, see [New].
type Transport struct {
	general *http.Transport // for what is not simple; it dials for both
	perHost int
	oldest  time.Duration

	mu      sync.Mutex // guards what follows
	trusted string     // the host whose connections are reused though it does not name what it answers
	idle    map[string][]*conn
	count   int         // of idle connections
	sweep   *time.Timer // closes old ones; armed while there are idle ones
}

// New makes a transport that keeps up to idlePerHost idle connections to each
// endpoint, each for idleTime at most. idleTime must be positive.
func New(idlePerHost int, idleTime time.Duration) *Transport {
	t := &Transport{general: api.NewTransport(idlePerHost), perHost: idlePerHost, oldest: idleTime, idle: map[string][]*conn{}}
	t.general.DisableKeepAlives = true // it knows nothing of turns
	t.sweep = time.AfterFunc(time.Hour, t.closeOld)
	t.sweep.Stop()
	return t
}

// Reuse has connections to e, and to no other server, carry further requests though e does not name what it answers.
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

// hostOf returns the host of requests to e.
func hostOf(e api.Endpoint) string {
	u, err := url.Parse(e.URL("/"))
	if err != nil {
		return ""
	}
	return u.Host
}

// Concurrent reports whether the server of r, a GET, answers on a second connection while a first one, on which it has answered, is open and
// idle. A server with a single thread does not, and one that closes each connection has nothing to reuse. It returns false when ctx ends.
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
		defer c.close()
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
	return r.Context().Err() == nil // its end closes the first connection, and may let the second be answered
}

// probeBody bounds the body of an answer that [Transport.Concurrent] reads.
const probeBody = 1 << 20

// RoundTrip sends a request and returns once the answer's header is there. As
// [http.RoundTripper] says, it closes the request's body, and the caller closes
// the answer's.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.RoundTripCharged(r, nil)
}

// RoundTripCharged is RoundTrip that calls charge before it reads an answer's header that is
// larger than most, with what that may take in bytes, once. An error of it ends the request, with that
// error. The memory is free again when the answer is let go of. Nil: nobody counts, as nobody does for a request that is not simple.
func (t *Transport) RoundTripCharged(r *http.Request, charge func(bytes int64) error) (*http.Response, error) {
	if !simple(r) {
		if idle := t.take(r.URL.Host); idle != nil { // it may occupy a thread of the server that this request needs
			idle.close()
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
			continue // the other side closed it a moment ago; it has seen nothing
		}
		return resp, err
	}
}

// dial opens a connection to where r goes.
func (t *Transport) dial(ctx context.Context, r *http.Request) (*conn, error) {
	address := r.URL.Host
	if r.URL.Port() == "" {
		address = net.JoinHostPort(r.URL.Hostname(), "80")
	}
	if f := connectLoopback(address); f != nil {
		return newConn(t.put, r.URL.Host, f), nil
	}
	nc, err := t.general.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return newConn(t.put, r.URL.Host, nc), nil
}

// take returns an idle connection to host that still works, or nil.
func (t *Transport) take(host string) *conn {
	now := time.Now()
	for {
		t.mu.Lock()
		list := t.idle[host]
		if len(list) == 0 {
			t.mu.Unlock()
			return nil
		}
		c := list[len(list)-1] // the one used last: the others may grow old
		list[len(list)-1] = nil
		t.idle[host] = list[:len(list)-1]
		t.count--
		t.mu.Unlock()
		if now.Sub(c.idleSince) < t.oldest && c.quiet() {
			return c
		}
		c.close()
	}
}

// put makes c idle. It returns false where there are enough, or where c may not carry another request.
func (t *Transport) put(c *conn) bool {
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

// closeOld closes the connections that have been idle for too long.
func (t *Transport) closeOld() {
	limit := time.Now().Add(-t.oldest)
	t.closeIdle(func(c *conn) bool { return c.idleSince.Before(limit) })
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count > 0 {
		t.sweep.Reset(t.oldest)
	}
}

// CloseIdleConnections closes all connections that carry no request.
func (t *Transport) CloseIdleConnections() {
	t.closeIdle(func(*conn) bool { return true })
}

// closeIdle closes the idle connections for which old holds.
func (t *Transport) closeIdle(old func(*conn) bool) {
	var left []*conn
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
		c.close()
	}
}
