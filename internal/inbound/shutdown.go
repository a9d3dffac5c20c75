package inbound

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// Server is an [http.Server] whose Shutdown ends as soon as the last request is answered. [http.Server.Shutdown] alone
// waits up to five seconds for a connection that has not carried a request yet; this one closes such connections.
type Server struct {
	*http.Server

	mu     sync.Mutex // guards what follows
	unused map[net.Conn]bool
	ending bool
}

// NewServer takes over s, which must not serve yet and must have no ConnState hook.
func NewServer(s *http.Server) *Server {
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
