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
)

// Limits bound the connections of a [Listener] that wait: those that nobody has called Begin of.
type Limits struct {
	// All bounds them all. Default: a quarter of the files that the process may open, 4096 at most.
	All int
	// Address bounds those of one IP address, or of one IPv6 network of 64 bits. Connections without an IP address are counted in All only.
	// Default: a quarter of All.
	Address int
	// Wait bounds how long one waits. 0: it may wait for ever.
	Wait time.Duration
}

const (
	mostWaiting = 4096
	// complainEvery is how often a listener logs that it closes connections, or accepts none: anybody may cause it.
	complainEvery = 10 * time.Second
	firstPause    = 5 * time.Millisecond
	lastPause     = time.Second
)

// Listener accepts connections whatever happens to them: an error that is not the listener's own, such as that the process has no
// file left, is logged and Accept goes on after a pause. Its connections are of type [*Conn], and wait first. Where more wait
// than may, the one that has waited longest is closed: of the address that has too many, or of the one with the most. So
// who opens many and says nothing ends its own, and a connection that soon says what it wants is safe.
type Listener struct {
	net.Listener
	limits Limits
	log    *slog.Logger
	closed context.Context
	close  context.CancelFunc

	mu         sync.Mutex // guards what follows, and the Conns' places
	waiting    int
	by         map[netip.Prefix]*list.List // the waiting *Conns, the oldest first; no list is empty
	complained time.Time
}

// NewListener makes a Listener of l, which it closes with itself.
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

// Bound is a [Listener] for s, with the default limits: a connection waits while no request of it is served. How long it may wait s bounds by its
// ReadHeaderTimeout and IdleTimeout. s must have its handler, and no ConnContext of its own.
func Bound(s *http.Server, l net.Listener, log *slog.Logger) net.Listener {
	s.ConnContext = withConn
	next := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := bound(r.Context().Value(connKey{})); c != nil {
			c.Begin()
			defer c.End()
		}
		next.ServeHTTP(w, r)
	})
	return NewListener(l, Limits{}, log)
}

// connKey is the connection's in a request's context.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// bound is the Conn below a connection; nil: there is none.
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

// Close implements [net.Listener]. Connections that were accepted stay open.
func (l *Listener) Close() error {
	l.close()
	return l.Listener.Close()
}

// take has a new connection wait.
func (l *Listener) take(conn net.Conn) *Conn {
	c := &Conn{Conn: conn, l: l}
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

// wait has a connection wait, and closes one where too many do. The caller holds mu.
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

// leave takes a connection out of those that wait. The caller holds mu.
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

// evict closes the oldest connection of the address that has the most, if it has waited for that long, and logs why. The caller holds mu.
func (l *Listener) evict(least time.Duration, why string, about ...any) {
	var most netip.Prefix
	n := 0
	for from, all := range l.by {
		if all.Len() > n {
			most, n = from, all.Len()
		}
	}
	if n > 0 && time.Since(l.by[most].Front().Value.(*Conn).since) >= least {
		l.endOldest(most, why, about...)
		return
	}
	l.complain(why, about...)
}

// errCrowd is why reads and writes of a connection fail that was closed for another one.
var errCrowd = errors.New("closed: too many connections that ask nothing")

func (l *Listener) endOldest(from netip.Prefix, why string, about ...any) {
	l.complain(why, append([]any{"from", from.String()}, about...)...)
	l.end(l.by[from].Front().Value.(*Conn), errCrowd)
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

// Conn is a connection of a [Listener]. It waits until Begin is called, and while End was called as often.
type Conn struct {
	net.Conn
	l    *Listener
	from netip.Prefix // invalid: it is of no IP address

	// Guarded by the mutex of the Listener.
	serves int           // calls of Begin without their End
	place  *list.Element // among those that wait; nil: it does not
	since  time.Time     // when it began to
	late   *time.Timer   // ends it; nil: it may wait for ever
	gone   bool          // it is closed
	why    error         // the Listener closed it
}

// Begin says that the connection has asked for something, which is served until End.
func (c *Conn) Begin() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.serves++
	c.l.leave(c)
}

// End says that it is served. The connection waits again if it asks nothing else.
func (c *Conn) End() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.serves--; c.serves == 0 {
		c.l.wait(c)
	}
}

// NetConn is the connection that was accepted.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// Read implements [net.Conn]. Its error says so if the Listener has closed the connection.
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

// ReadFrom sends what is read from r, without copying it where the connection can.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) { return io.Copy(c.Conn, r) }

// CloseWrite ends what is sent, so that an answer is read before the connection ends.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
