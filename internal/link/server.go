package link

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
)

const (
	minIdle  = 2
	maxDials = 16 // at once
	// Pauses after a connection that could not be dialled, or ended before it carried a request.
	pauseFirst = 50 * time.Millisecond
	pauseMost  = time.Second
	// maxFailed is how many of them, one after another, end the session where no connection is idle: another front door may answer at its address.
	maxFailed = 10
	// leaveIdle is how long a Server that shuts down leaves it to the front door to close what is idle: a request may be on its way.
	leaveIdle = time.Second
)

// Server is the agent's half: it dials the connections of one session, and answers their requests. It is safe for many goroutines.
type Server struct {
	hello    Hello
	dial     func(context.Context) (net.Conn, error)
	lost     func()
	http     http.Server
	listener *Listener
	changed  chan struct{} // sent to where keep has something to do, which receives; one place

	mu       sync.Mutex // guards what follows
	conns    map[net.Conn]http.ConnState
	busy     int // of them
	dialling int // those that are dialled, or will be after a pause
	places   int
	pause    time.Duration
	failed   int // since a request came
	ending   bool
	none     chan struct{} // closed when it is ending and has no connection
}

// NewServer makes the agent's half. dial opens a connection to the front door, and handler answers its requests.
// lost, which must not block, is called when the front door takes no connection of the session any more.
func NewServer(hello Hello, dial func(context.Context) (net.Conn, error), lost func(), handler http.Handler) *Server {
	s := &Server{hello: hello, dial: dial, lost: lost, listener: NewListener(&net.TCPAddr{}), changed: make(chan struct{}, 1), conns: map[net.Conn]http.ConnState{}, pause: pauseFirst, none: make(chan struct{})}
	s.http = http.Server{MaxHeaderBytes: maxHeader, ConnState: s.state, //nolint:gosec // no ReadHeaderTimeout: a connection is idle before its first request
		Handler: api.InTurn(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ContentLength < 0 {
				_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/1.1 always can
			}
			handler.ServeHTTP(w, r)
		}))}
	return s
}

// Dial dials one connection, which is for [Server.Serve].
func (s *Server) Dial(ctx context.Context) (net.Conn, error) {
	nc, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: nc} // net/http would take a [tls.Conn] for one of its own protocols
	if err := s.hello.write(c); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// Serve answers requests on first, and on the connections that it dials besides, until Shutdown or Close is called. It dials none after ctx has ended.
func (s *Server) Serve(ctx context.Context, first net.Conn) {
	var dials sync.WaitGroup
	dials.Go(func() {
		s.add(first)
		s.keep(ctx, &dials)
	})
	_ = s.http.Serve(s.listener) // it says that it was closed
	dials.Wait()
}

// Keep says how many requests the front door may send at once. The server dials what is missing.
func (s *Server) Keep(places int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places = places
	s.signal()
}

// signal has keep look if it has something to do. The caller holds mu.
func (s *Server) signal() {
	if s.missing() > 0 || s.ending {
		select {
		case s.changed <- struct{}{}:
		default:
		}
	}
}

// missing returns how many connections are to be dialled now: there are as many idle ones as there are free places, within bounds. The caller holds mu.
func (s *Server) missing() int {
	idle := min(max(s.places-s.busy, minIdle), MaxIdle)
	return min(idle-(len(s.conns)-s.busy), maxDials) - s.dialling
}

// keep dials what is missing until ctx ends or the server does.
func (s *Server) keep(ctx context.Context, dials *sync.WaitGroup) {
	for ctx.Err() == nil {
		s.mu.Lock()
		n, ending := s.missing(), s.ending
		s.dialling += max(n, 0)
		s.mu.Unlock()
		if ending {
			return
		}
		for range n {
			dials.Go(func() {
				c, err := s.Dial(ctx)
				if err == nil {
					s.add(c)
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.dialling--; err != nil {
					s.later()
				}
				s.signal()
			})
		}
		select {
		case <-s.changed:
		case <-ctx.Done():
		}
	}
}

// later has one connection dialled after a pause, so that no failure is repeated in a tight loop. The caller holds mu.
func (s *Server) later() {
	s.dialling++
	time.AfterFunc(s.pause, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.dialling--
		s.signal()
	})
	s.pause = min(2*s.pause, pauseMost)
	if s.failed++; s.failed >= maxFailed && len(s.conns) == s.busy {
		s.lost()
	}
}

// add serves a connection, or closes it.
func (s *Server) add(c net.Conn) {
	s.mu.Lock()
	ending := s.ending
	if !ending {
		s.conns[c] = http.StateNew
	}
	s.mu.Unlock()
	if ending {
		_ = c.Close() // it carries no request
		return
	}
	s.listener.Give(c)
}

// state hears from net/http's server what its connections do.
func (s *Server) state(c net.Conn, now http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, known := s.conns[c]
	if !known || was == now {
		return
	}
	if was == http.StateActive {
		s.busy--
	}
	s.conns[c] = now
	switch now {
	case http.StateActive:
		s.busy++
		s.pause, s.failed = pauseFirst, 0
	case http.StateClosed, http.StateHijacked:
		if delete(s.conns, c); was == http.StateNew {
			s.later()
		}
		if s.ending && len(s.conns) == 0 {
			close(s.none)
		}
	default:
	}
	s.signal()
}

// Shutdown dials nothing more, and returns when the last request is answered and no connection is left, or ctx ends.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Retire()
	late := time.NewTimer(leaveIdle)
	defer late.Stop()
	select {
	case <-s.none:
	case <-late.C:
	case <-ctx.Done():
	}
	return s.http.Shutdown(ctx)
}

// Retire has the server dial nothing more.
func (s *Server) Retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ending && len(s.conns) == 0 {
		close(s.none)
	}
	s.ending = true
	s.signal()
}

// Close ends all connections at once.
func (s *Server) Close() error {
	s.Retire()
	return s.http.Close()
}
