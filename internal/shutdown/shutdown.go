// Package shutdown stops an HTTP server as soon as its last request is answered.
//
// [http.Server.Shutdown] alone waits up to five seconds for a connection that has not carried a request yet, such as
// one that a client's transport dialled and did not need. This package closes such connections at once.
package shutdown

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// Server is an [http.Server] that tracks its unused connections and has its own Shutdown.
type Server struct {
	*http.Server

	mu     sync.Mutex // guards what follows
	unused map[net.Conn]bool
	ending bool
}

// New takes over s, which must not serve yet and must have no ConnState hook.
func New(s *http.Server) *Server {
	c := &Server{Server: s, unused: map[net.Conn]bool{}}
	s.ConnState = c.changed
	return c
}

func (s *Server) changed(conn net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state != http.StateNew {
		delete(s.unused, conn)
		return
	}
	if s.ending { // accepted at the moment of the shutdown
		_ = conn.Close()
		return
	}
	s.unused[conn] = true
}

// Shutdown accepts no new connections and blocks until all requests are answered or ctx ends. In the latter case it
// returns ctx's error and leaves the rest open.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.ending = true
	for conn := range s.unused {
		_ = conn.Close()
	}
	s.mu.Unlock()
	return s.Server.Shutdown(ctx)
}
