package protocol

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/bell"
)

const (
	minIdle    = 2
	maxDials   = 16 // at once
	pauseFirst = 50 * time.Millisecond
	pauseMost  = time.Second
	// maxFailed failures in a row end the session if no connection is idle: another front door may have the address.
	maxFailed = 10
	// leaveIdle is the wait for the front door to close idle connections: a request may be on its way.
	leaveIdle = time.Second
)

// LinkServer is the agent's side of one session's links. It is safe for concurrent use.
type LinkServer struct {
	hello    LinkHello
	dial     func(context.Context) (net.Conn, error)
	lost     func()
	http     http.Server
	listener *Listener
	changed  bell.Bell // for dialMissing

	mu       sync.Mutex // guards the fields below
	conns    map[net.Conn]http.ConnState
	busy     int
	dialling int // or to be dialled after a pause
	places   int
	pause    time.Duration
	failed   int // since a request came
	ending   bool
	none     chan struct{} // closed when it is ending and has no connection
}

// NewLinkServer calls lost, which must not block, when the front door no longer accepts connections of the session.
func NewLinkServer(hello LinkHello, dial func(context.Context) (net.Conn, error), lost func(), handler http.Handler) *LinkServer {
	s := &LinkServer{hello: hello, dial: dial, lost: lost, listener: NewListener(&net.TCPAddr{}), changed: bell.New(), conns: map[net.Conn]http.ConnState{}, pause: pauseFirst, none: make(chan struct{})}
	s.http = http.Server{MaxHeaderBytes: maxHeader, ConnState: s.connState, // no ReadHeaderTimeout: a connection is idle before its first request
		Handler: api.InTurn(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ContentLength < 0 {
				_ = http.NewResponseController(w).EnableFullDuplex()
			}
			handler.ServeHTTP(w, r)
		}))}
	return s
}

// Dial dials one connection, for [LinkServer.Serve].
func (s *LinkServer) Dial(ctx context.Context) (net.Conn, error) {
	nc, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: nc} // net/http would use a protocol of its own on a [tls.Conn]
	if err := s.hello.write(c); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// Serve answers requests on first and on connections that it dials until ctx ends. It blocks until Shutdown or Close.
func (s *LinkServer) Serve(ctx context.Context, first net.Conn) {
	var dials sync.WaitGroup
	dials.Go(func() {
		s.add(first)
		s.dialMissing(ctx, &dials)
	})
	_ = s.http.Serve(s.listener) // always the error of a closed server
	dials.Wait()
}

// Keep sets how many requests the front door may send at once.
func (s *LinkServer) Keep(places int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places = places
	s.signal()
}

// The caller holds mu.
func (s *LinkServer) signal() {
	if s.missing() > 0 || s.ending {
		s.changed.Ring()
	}
}

// The caller holds mu.
func (s *LinkServer) missing() int {
	idle := min(max(s.places-s.busy, minIdle), MaxIdle)
	return min(idle-(len(s.conns)-s.busy), maxDials) - s.dialling
}

func (s *LinkServer) dialMissing(ctx context.Context, dials *sync.WaitGroup) {
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
					s.dialLater()
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

// The caller holds mu.
func (s *LinkServer) dialLater() {
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

func (s *LinkServer) add(c net.Conn) {
	s.mu.Lock()
	ending := s.ending
	if !ending {
		s.conns[c] = http.StateNew
	}
	s.mu.Unlock()
	if ending {
		_ = c.Close()
		return
	}
	s.listener.Give(c)
}

func (s *LinkServer) connState(c net.Conn, now http.ConnState) {
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
			s.dialLater()
		}
		if s.ending && len(s.conns) == 0 {
			close(s.none)
		}
	default:
	}
	s.signal()
}

// Shutdown stops dialling and blocks until the last request is answered, or ctx ends.
func (s *LinkServer) Shutdown(ctx context.Context) error {
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

// Retire stops dialling.
func (s *LinkServer) Retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ending && len(s.conns) == 0 {
		close(s.none)
	}
	s.ending = true
	s.signal()
}

// Close ends all connections at once.
func (s *LinkServer) Close() error {
	s.Retire()
	return s.http.Close()
}
