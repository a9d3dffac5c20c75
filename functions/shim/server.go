package shim

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/internal/inbound"
)

const (
	tailLines = 50   // of output, for the next leader
	queue     = 4096 // messages that a connection may lag behind
	// linger is how long the shim waits for others after the last connection has gone: a worker may be about to come back, after rejoin.
	linger = 500 * time.Millisecond
)

// Args returns the arguments of the shim's program, behind those that lead to the subcommand.
func Args() []string { return []string{"keep"} }

// Config configures a shim.
type Config struct {
	In     *os.File
	Logger *slog.Logger
}

// Run keeps a runtime until the last connection is gone, or ctx ends. When it returns nothing of the runtime is left. It changes how the
// whole process handles signals and orphans, so the process must do nothing else.
func Run(ctx context.Context, cfg Config) error {
	first, err := net.FileConn(cfg.In)
	if err != nil {
		return fmt.Errorf("shim: the standard input is no socket (%w): a function starts this command, people have no need to", err)
	}
	_ = cfg.In.Close()
	deaf := make(chan os.Signal, 1) // never received; a child would inherit signal.Ignore
	signal.Notify(deaf, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	defer signal.Stop(deaf)
	if err := process.Adopt(); err != nil {
		return errors.Join(fmt.Errorf("shim: %w", err), first.Close())
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &server{cfg: cfg, log: process.NewLog(tailLines, nil), peers: map[*peer]bool{}, deserted: make(chan struct{})}
	s.admit(first)
	select {
	case <-ctx.Done():
	case <-s.deserted:
	}
	s.end()
	return nil
}

type server struct {
	cfg      Config
	log      *process.Log
	tasks    sync.WaitGroup
	deserted chan struct{} // closed when the last connection has gone

	mu       sync.Mutex // guards the fields below, and orders the messages that are sent
	peers    map[*peer]bool
	listener net.Listener
	mark     string
	child    *process.Process
	note     json.RawMessage
	alone    *time.Timer // runs while no connection is left and one may come soon; nil: has never run
	ended    bool        // the instance was stopped
	closing  bool        // the shim ends: nothing new is begun
}

type peer struct {
	conn  net.Conn
	out   chan message // to its writer; sent to under the server's mu; closed when the peer has left
	knows bool         // it has joined: events are sent to it
	leads bool         // it gets the output too
}

func (s *server) admit(conn net.Conn) {
	p := &peer{conn: conn, out: make(chan message, queue)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		_ = conn.Close()
		return
	}
	s.peers[p] = true
	if s.alone != nil {
		s.alone.Stop()
	}
	s.tasks.Go(func() { s.hear(p) })
	s.tasks.Go(func() { speak(p) })
}

func (s *server) hear(p *peer) {
	in := json.NewDecoder(p.conn)
	for {
		var m message
		if err := in.Decode(&m); err != nil {
			s.cfg.Logger.Debug("a connection ends", "error", err)
			break
		}
		s.take(p, m)
	}
	_ = p.conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(p)
}

// The caller holds mu.
func (s *server) forget(p *peer) {
	if !s.peers[p] {
		return
	}
	delete(s.peers, p)
	close(p.out)
	s.tellPeers()
	switch {
	case len(s.peers) > 0:
	case s.listener == nil || s.ended:
		s.desert()
	default:
		s.alone = time.AfterFunc(linger, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.peers) == 0 {
				s.desert()
			}
		})
	}
}

// desert lets Run end. The caller holds mu.
func (s *server) desert() {
	if !s.closing {
		s.closing = true
		close(s.deserted)
	}
}

func speak(p *peer) {
	w := bufio.NewWriter(p.conn)
	out := json.NewEncoder(w)
	for m := range p.out {
		if out.Encode(m) != nil || len(p.out) == 0 && w.Flush() != nil {
			_ = p.conn.Close() // hear notices
			for range p.out {
			}
			return
		}
	}
}

// send queues a message. A full queue drops a line of output; for any other message the connection is closed. The caller holds mu.
func (s *server) send(p *peer, m message) {
	if !s.peers[p] {
		return
	}
	select {
	case p.out <- m:
	default:
		if m.Line == nil {
			_ = p.conn.Close()
		}
	}
}

// tell sends an event to all joined peers. The caller holds mu.
func (s *server) tell(m message) {
	for p := range s.peers {
		if p.knows && (m.Line == nil || p.leads) {
			s.send(p, m)
		}
	}
}

// tellPeers sends each joined peer the number of others. The caller holds mu.
func (s *server) tellPeers() {
	others := -1
	for p := range s.peers {
		if p.knows {
			others++
		}
	}
	s.tell(message{Peers: &others})
}

func (s *server) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		in := conn.(*inbound.Conn)
		in.Begin()
		if _, err := sameUser(in.NetConn()); err != nil {
			s.cfg.Logger.Warn("a connection is refused", "error", err)
			_ = conn.Close()
			continue
		}
		s.admit(conn)
	}
}

func (s *server) end() {
	s.mu.Lock()
	s.closing = true
	if s.alone != nil {
		s.alone.Stop()
	}
	if s.listener != nil {
		_ = s.listener.Close()
	}
	for p := range s.peers {
		_ = p.conn.Close()
	}
	child := s.child
	s.mu.Unlock()
	if child != nil {
		child.Stop(0)
	}
	s.tasks.Wait()
}

// ErrEnded says that the instance was stopped for good.
var ErrEnded = errors.New("the instance was stopped")

const rejoin = 25 * time.Millisecond

// Attend tells the shim at socket, and any later one there, that this worker lives and can lead. It blocks until ctx ends (nil) or the
// instance was stopped ([ErrEnded]). fewer is called when another worker has left, perhaps the leader; it must not block.
func Attend(ctx context.Context, socket string, fewer func()) error {
	for {
		if l, err := join(ctx, socket, role{fewer: fewer}); err == nil {
			select {
			case <-ctx.Done():
				l.leave()
			case <-l.ended:
				l.leave()
				return ErrEnded
			case <-l.gone:
				fewer()
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rejoin):
		}
	}
}

// Calls. One that wants no answer has no id.
const (
	callJoin   = "join"   // Mark, Listen, Lead: answered with Hello
	callStart  = "start"  // Spec: answered with PID
	callStop   = "stop"   // PID, Grace; no answer, an Exit comes
	callKill   = "kill"   // PID; no answer
	callMemory = "memory" // PID: answered with Bytes and Shared
	callCPU    = "cpu"    // PID: answered with Time
	callNote   = "note"   // Note; no answer
	callEnd    = "end"    // answered, and all are told
)

type message struct {
	ID    uint64 `json:"id,omitempty"`
	Call  string `json:"call,omitempty"`
	Error string `json:"error,omitempty"`

	// Of a call.
	Mark   string          `json:"mark,omitempty"`   // from the starter of the shim
	Listen string          `json:"listen,omitempty"` // the path for others; likewise
	Lead   bool            `json:"lead,omitempty"`   // the caller wants the output
	Spec   *spec           `json:"spec,omitempty"`
	Grace  time.Duration   `json:"grace,omitempty"`
	Note   json.RawMessage `json:"note,omitempty"`

	// Of an answer, and PID of most calls.
	PID   int           `json:"pid,omitempty"`
	Bytes int64         `json:"bytes,omitempty"`
	Time  time.Duration `json:"time,omitempty"`
	Hello *hello        `json:"hello,omitempty"`

	Shared *api.SharedMemory `json:"shared,omitempty"`

	// Events.
	Line  *string `json:"line,omitempty"`
	Exit  *exit   `json:"exit,omitempty"`  // nothing of the runtime is left
	Peers *int    `json:"peers,omitempty"` // the number of other connections
	Ended bool    `json:"ended,omitempty"` // the instance was stopped
}

type spec struct {
	Path string   `json:"path"`
	Args []string `json:"args,omitempty"`
	Env  []string `json:"env,omitempty"`
	Dir  string   `json:"dir,omitempty"`
}

type exit struct {
	PID    int    `json:"pid"`
	Status string `json:"status"`
}

type hello struct {
	Mark  string          `json:"mark"`
	PID   int             `json:"pid,omitempty"` // 0: no runtime runs
	Note  json.RawMessage `json:"note,omitempty"`
	Lines []string        `json:"lines,omitempty"`
	Ended bool            `json:"ended,omitempty"`
}
