// Package shutdown ends an HTTP server as soon as its last request is answered.
//
// [http.Server.Shutdown] alone waits up to five seconds for a connection that was opened and has
// not carried a request yet, such as one that a client's transport dialled and did not need.
// This package closes such connections at once.
package shutdown

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// Server is a server whose unused connections are known. Its methods are those
// of [http.Server], but for Shutdown.
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
	if s.ending { // accepted in the moment of the end
		_ = conn.Close()
		return
	}
	s.unused[conn] = true
}

// Shutdown takes no new connections, waits until all requests are answered or
// ctx ends, and returns ctx's error in that case; the rest is still open then.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.ending = true
	for conn := range s.unused {
		_ = conn.Close()
	}
	s.mu.Unlock()
	return s.Server.Shutdown(ctx)
}
