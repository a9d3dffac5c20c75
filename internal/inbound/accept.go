package inbound

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/time/rate"
)

// Limits bound the waiting connections of a [Listener]: those without a request between Begin and End.
type Limits struct {
	// All defaults to a quarter of the process's file limit, at most 4096.
	All int
	// Address bounds those of one IP address, or of one IPv6 /64 network. Default: a quarter of All.
	Address int
	// Wait is how long a connection may wait; 0: no bound.
	Wait time.Duration
}

const (
	mostWaiting   = 4096
	complainEvery = 10 * time.Second
	// dawdles is how long a client that is not slow needs for its first request or its handshake.
	dawdles = time.Second
	// idles is the same for its next request.
	idles      = 10 * time.Second
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
	// Requests that one address, which may be a gateway, may cancel in HTTP/2.
	resetsPerSecond = 500
	mostResets      = 2000
)

// Listener accepts connections even under errors that are not its own, such as a lack of file descriptors. Its connections
// have the type [*Conn] and wait at first. If too many wait, it closes the oldest of the address with the most, so a client
// that opens many idle connections loses its own.
type Listener struct {
	net.Listener
	limits Limits
	log    *slog.Logger
	closed context.Context
	close  context.CancelFunc

	mu         sync.Mutex // guards the fields below, and the Conns' places
	waiting    int
	by         map[netip.Prefix]*list.List // by address, the oldest first; no list is empty
	complained time.Time
	resets     map[netip.Prefix]*rate.Limiter // of cancelled requests, by address
}

// NewListener returns a Listener for l and takes l over.
func NewListener(l net.Listener, limits Limits, log *slog.Logger) *Listener {
	if limits.All == 0 {
		limits.All = mostWaiting
		var files syscall.Rlimit
		if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) == nil {
			limits.All = int(min(mostWaiting, max(files.Cur/4, 8)))
		}
	}
	if limits.Address == 0 {
		limits.Address = max(limits.All/4, 1)
	}
	w := &Listener{Listener: l, limits: limits, log: log, by: map[netip.Prefix]*list.List{}}
	w.closed, w.close = context.WithCancel(context.Background())
	return w
}

// Bound returns a [Listener] with the default limits for s: a connection waits while none of its requests is served. In
// HTTP/2 it ends if its address cancels too many requests. s must have its handler, and no ConnContext of its own; its
// ReadHeaderTimeout and IdleTimeout bound the wait.
func Bound(s *http.Server, l net.Listener, log *slog.Logger) net.Listener {
	s.ConnContext = withConn
	next := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := bound(r.Context().Value(connKey{})); c != nil {
			c.Begin()
			defer func() {
				if r.ProtoMajor == 2 && r.Context().Err() != nil {
					c.countReset()
				}
				c.End()
			}()
		}
		next.ServeHTTP(w, r)
	})
	return NewListener(l, Limits{}, log)
}

type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

func bound(c any) *Conn {
	for {
		switch over := c.(type) {
		case *Conn:
			return over
		case interface{ NetConn() net.Conn }:
			c = over.NetConn()
		default:
			return nil
		}
	}
}

// Accept implements [net.Listener].
func (l *Listener) Accept() (net.Conn, error) {
	pause := firstPause
	for {
		c, err := l.Listener.Accept()
		if err == nil {
			return l.take(c), nil
		}
		var temporary interface{ Temporary() bool }
		if !(errors.As(err, &temporary) && temporary.Temporary()) && !errors.Is(err, syscall.ENOBUFS) && !errors.Is(err, syscall.ENOMEM) {
			return nil, err
		}
		l.mu.Lock()
		l.evict(lastPause, "can't accept a connection: the oldest that asks nothing is closed, and it is tried again", "error", err)
		l.mu.Unlock()
		select {
		case <-time.After(pause):
		case <-l.closed.Done():
			return nil, net.ErrClosed
		}
		pause = min(2*pause, lastPause)
	}
}

// Close implements [net.Listener]. Accepted connections stay open.
func (l *Listener) Close() error {
	l.close()
	return l.Listener.Close()
}

func (l *Listener) take(conn net.Conn) *Conn {
	boundUnsent(conn)
	c := &Conn{over: over{conn}, l: l}
	if at, err := netip.ParseAddrPort(conn.RemoteAddr().String()); err == nil {
		bits, ip := 64, at.Addr().Unmap()
		if ip.Is4() {
			bits = 32
		}
		c.from = netip.PrefixFrom(ip.WithZone(""), bits).Masked()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wait(c)
	return c
}

// wait closes a connection if there are too many. The caller holds mu.
func (l *Listener) wait(c *Conn) {
	if c.gone {
		return
	}
	if l.by[c.from] == nil {
		l.by[c.from] = list.New()
	}
	c.since = time.Now()
	c.place = l.by[c.from].PushBack(c)
	l.waiting++
	if l.limits.Wait > 0 {
		c.late = time.AfterFunc(l.limits.Wait, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.end(c, fmt.Errorf("closed: it asked nothing within %s", l.limits.Wait))
		})
	}
	switch {
	case c.from.IsValid() && l.by[c.from].Len() > l.limits.Address:
		l.endOldest(c.from, "one address has too many connections that ask nothing: the oldest are closed")
	case l.waiting > l.limits.All:
		l.evict(0, "too many connections ask nothing: the oldest are closed")
	}
}

// The caller holds mu.
func (l *Listener) leave(c *Conn) {
	if c.place == nil {
		return
	}
	all := l.by[c.from]
	all.Remove(c.place)
	if all.Len() == 0 {
		delete(l.by, c.from)
	}
	l.waiting--
	c.place = nil
	if c.late != nil {
		c.late.Stop()
	}
}

// evict closes the oldest waiting connection of the address with the most, if it has waited for least. Addresses whose
// oldest has waited for [dawdles] or [idles] come first: many silent addresses must not end the fresh connections of one
// that has several. The caller holds mu.
func (l *Listener) evict(least time.Duration, why string, about ...any) {
	var last *Conn
	most, now := 0, time.Now()
	for _, all := range l.by {
		c, n := all.Front().Value.(*Conn), all.Len()
		if w := now.Sub(c.since); w >= idles || w >= dawdles && !c.served {
			n += l.waiting
		}
		if n > most || n == most && c.since.Before(last.since) {
			last, most = c, n
		}
	}
	if last != nil && now.Sub(last.since) >= least {
		l.endOldest(last.from, why, about...)
		return
	}
	l.complain(why, about...)
}

func (l *Listener) endOldest(from netip.Prefix, why string, about ...any) {
	l.complain(why, append([]any{"from", from}, about...)...)
	l.end(l.by[from].Front().Value.(*Conn), errors.New("closed: too many connections that ask nothing"))
}

// end closes a connection if it waits. The caller holds mu.
func (l *Listener) end(c *Conn, why error) {
	if c.place == nil {
		return
	}
	l.leave(c)
	c.gone = true
	c.why = why
	_ = c.Conn.Close()
}

func (l *Listener) complain(why string, about ...any) {
	if now := time.Now(); now.Sub(l.complained) >= complainEvery {
		l.complained = now
		l.log.Warn(why, append(about, "listen", l.Addr().String(), "waiting", l.waiting)...)
	}
}

type over struct{ net.Conn }

// NetConn returns the connection beneath.
func (o over) NetConn() net.Conn { return o.Conn }

// CloseWrite closes the sending side.
func (o over) CloseWrite() error {
	if half, ok := o.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Conn waits while every call of Begin was followed by an End.
type Conn struct {
	over
	l    *Listener
	from netip.Prefix // invalid: no IP address

	// Guarded by the mutex of the Listener.
	serves int           // calls of Begin without their End
	served bool          // Begin was called
	place  *list.Element // in a list of by; nil: it does not wait
	since  time.Time
	late   *time.Timer // ends the wait; nil: no bound
	gone   bool
	why    error
}

// Begin marks the start of a request on the connection, which is served until End.
func (c *Conn) Begin() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.serves++
	c.served = true
	c.l.leave(c)
}

// End marks the end of a request.
func (c *Conn) End() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.serves--; c.serves == 0 {
		c.l.wait(c)
	}
}

// countReset closes the connection of a client that cancels too many: a new one costs more than a new stream.
func (c *Conn) countReset() {
	l := c.l
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.resets[c.from]
	if b == nil {
		if len(l.resets)%mostWaiting == 0 {
			l.resets = map[netip.Prefix]*rate.Limiter{}
		}
		b = rate.NewLimiter(resetsPerSecond, mostResets)
		l.resets[c.from] = b
	}
	if !b.Allow() {
		l.complain("one address cancels too many requests: its connection is closed", "from", c.from)
		_ = c.Conn.Close()
	}
}

// Read implements [net.Conn]. If the Listener closed the connection, the error says so.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.l.mu.Lock()
		defer c.l.mu.Unlock()
		if c.why != nil {
			err = c.why
		}
	}
	return n, err
}

// Close implements [net.Conn].
func (c *Conn) Close() error {
	c.l.mu.Lock()
	c.l.leave(c)
	c.gone = true
	c.l.mu.Unlock()
	return c.Conn.Close()
}

// ReadFrom implements [io.ReaderFrom], without copying if the connection supports it.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) { return io.Copy(c.Conn, r) }
