package hop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Server answers HTTP/1.1 requests without TLS, in a fraction of the time that
// [http.Server] takes for small ones: that starts a goroutine with each request,
// to notice a client who leaves, and so wakes another thread. Here the goroutine
// of the connection does all; whether the client is still there is looked after
// only once an answer takes longer than [watchAfter].
//
// The life of a connection:
//
//  1. Its goroutine waits for a request; one that waits for too long is closed.
//  2. The header is read, within HeaderTimeout and MaxHeaderBytes, and checked.
//     What is no request is answered with 400, 431, 501 or 505, and the
//     connection ends.
//  3. The handler answers. A small answer goes out in one piece with its length,
//     a larger or flushed one in chunks. The request's context ends with the
//     client, and at the latest with the handler.
//  4. What the handler left of a body is read, if it is not much, and the
//     connection waits for the next request.
//
// Handlers may use Flush, [http.ResponseController.SetWriteDeadline], trailers,
// interim answers, and panic with [http.ErrAbortHandler]. They can't hijack.
// A server is used once; its fields don't change after Serve was called.
type Server struct {
	Handler http.Handler
	// HeaderTimeout bounds the time from a header's first byte, or a connection's beginning, to its end. 0: 10 s.
	HeaderTimeout time.Duration
	// IdleTimeout is how long a connection may wait for a further request. 0: 2 min.
	IdleTimeout time.Duration
	// MaxHeaderBytes bounds a header. 0: 64 KiB.
	MaxHeaderBytes int
	// Logger gets what handlers do wrong. Nil: nobody.
	Logger *slog.Logger

	slow atomic.Bool // the sweep is not due soon: the next request makes it so

	mu     sync.Mutex // guards what follows
	peers  map[*peer]struct{}
	listen net.Listener
	ending bool
	gone   chan struct{} // closed when the server ends and has no connections
	sweep  *time.Timer
}

// Intervals of the sweep.
const (
	watchAfter = 10 * time.Millisecond // while requests run
	sweepEvery = time.Second           // while connections wait
)

// Serve takes connections from l until Shutdown or Close, and returns
// [http.ErrServerClosed] then, or the listener's error.
func (s *Server) Serve(l net.Listener) error {
	if !s.begin(l) {
		_ = l.Close()
		return http.ErrServerClosed
	}
	pause := time.Duration(0)
	for {
		nc, err := l.Accept()
		var passing net.Error
		switch {
		case err == nil:
			pause = 0
			if p := s.newPeer(nc); p != nil {
				go p.serve()
			}
		case s.isEnding():
			return http.ErrServerClosed
		case errors.As(err, &passing) && passing.Temporary(): //nolint:staticcheck // too many open files is temporary, and nothing else says so
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			time.Sleep(pause)
		default:
			return fmt.Errorf("accept: %w", err)
		}
	}
}

func (s *Server) begin(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.HeaderTimeout == 0 {
		s.HeaderTimeout = 10 * time.Second
	}
	if s.IdleTimeout == 0 {
		s.IdleTimeout = 2 * time.Minute
	}
	if s.MaxHeaderBytes == 0 {
		s.MaxHeaderBytes = 64 << 10
	}
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
	s.peers, s.listen = map[*peer]struct{}{}, l
	s.sweep = time.AfterFunc(time.Hour, s.look)
	s.sweep.Stop()
	return !s.ending
}

func (s *Server) isEnding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending
}

// newPeer enters a connection, or closes it where the server ends.
func (s *Server) newPeer(nc net.Conn) *peer {
	p := makePeer(s, nc)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		_ = nc.Close()
		return nil
	}
	s.peers[p] = struct{}{}
	if len(s.peers) == 1 {
		s.slow.Store(true)
		s.sweep.Reset(sweepEvery)
	}
	return p
}

// leave forgets a connection that is closed.
func (s *Server) leave(p *peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.peers, p)
	s.checkGone()
}

// checkGone tells Shutdown. The caller holds mu.
func (s *Server) checkGone() {
	if s.gone != nil && len(s.peers) == 0 {
		close(s.gone)
		s.gone = nil
	}
}

// hurry makes the sweep look soon: a request runs.
func (s *Server) hurry() {
	if s.slow.Load() && s.slow.CompareAndSwap(true, false) {
		s.sweep.Reset(watchAfter)
	}
}

// look is the sweep: it closes connections that wait for too long and watches
// those whose answer takes its time.
func (s *Server) look() {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	busy := false
	for p := range s.peers {
		if p.look(now) {
			busy = true
		}
	}
	if len(s.peers) == 0 {
		return
	}
	s.slow.Store(!busy)
	if busy {
		s.sweep.Reset(watchAfter)
	} else {
		s.sweep.Reset(sweepEvery)
	}
}

// Shutdown takes no new connections, closes those that carry no request, and
// waits until the others are answered; it returns ctx's error if that ends first.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.ending = true
	if s.listen != nil {
		_ = s.listen.Close()
	}
	for p := range s.peers {
		p.endIfIdle()
	}
	gone := make(chan struct{})
	s.gone = gone
	s.checkGone()
	s.mu.Unlock()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close closes the listener and every connection at once.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = true
	var err error
	if s.listen != nil {
		err = s.listen.Close()
	}
	for p := range s.peers {
		_ = p.net.Close() // its goroutine ends by that
	}
	return err
}
