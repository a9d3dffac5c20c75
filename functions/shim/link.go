package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rouse-dev/rouse/functions/process"
)

const (
	helloTime = 30 * time.Second
	writeTime = 10 * time.Second
)

var errGone = errors.New("the shim of the runtime has ended")

type link struct {
	conn net.Conn
	role role
	proc *process.Process // if we started it
	held *process.Held    // if we joined it

	peers atomic.Int64
	ended chan struct{} // closed when the instance was stopped
	// broken is closed when the connection has ended, gone when the cleanup after the shim is done; both by hear.
	broken, gone chan struct{}

	writing sync.Mutex // held while a message is written

	mu      sync.Mutex // guards the fields below
	last    uint64
	waiting map[uint64]chan message // by the id of the call
	started map[uint64]*Child       // by the call that starts it
	child   *Child
	heir    *Child // that ran when we joined
	hello   hello
	mark    string
	left    bool
}

type role struct {
	leads bool
	lines func([]byte) // receives the output of an adopted runtime; for the leader
	fewer func()       // is called when another connection has gone; for followers
}

func newLink(conn net.Conn, as role) *link {
	return &link{
		conn: conn, role: as, waiting: map[uint64]chan message{}, started: map[uint64]*Child{},
		ended: make(chan struct{}), broken: make(chan struct{}), gone: make(chan struct{}),
	}
}

func join(ctx context.Context, socket string, as role) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTime)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	pid, err := sameUser(conn)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	l := newLink(conn, as)
	if l.held, err = process.Hold(pid); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%w (%w)", errGone, err)
	}
	go l.hear()
	if _, err := l.ask(ctx, message{Call: callJoin, Lead: as.leads}); err != nil {
		l.leave()
		return nil, err
	}
	return l, nil
}

func nobody(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, errGone) || errors.Is(err, syscall.ECONNRESET)
}

func (l *link) send(m message) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	_ = l.conn.SetWriteDeadline(time.Now().Add(writeTime))
	if err := json.NewEncoder(l.conn).Encode(m); err != nil {
		_ = l.conn.Close() // half a message may be out; hear notices
		return fmt.Errorf("%w (%w)", errGone, err)
	}
	return nil
}

// call sends a call whose answer comes by the channel. child is the runtime that it starts, or nil.
func (l *link) call(m message, child *Child) (<-chan message, error) {
	answers := make(chan message, 1) // from hear, which must not block
	l.mu.Lock()
	l.last++
	m.ID = l.last
	l.waiting[m.ID] = answers
	if child != nil {
		l.started[m.ID] = child
	}
	l.mu.Unlock()
	return answers, l.send(m)
}

func (l *link) ask(ctx context.Context, m message) (message, error) {
	answers, err := l.call(m, nil)
	if err != nil {
		return message{}, err
	}
	return l.await(ctx, answers)
}

func (l *link) await(ctx context.Context, answers <-chan message) (message, error) {
	select {
	case m := <-answers:
		if m.Error != "" {
			return m, errors.New(m.Error)
		}
		return m, nil
	case <-l.broken:
		return message{}, errGone
	case <-ctx.Done():
		return message{}, context.Cause(ctx)
	}
}

func (l *link) hear() {
	in := json.NewDecoder(l.conn)
	for {
		var m message
		if in.Decode(&m) != nil {
			break
		}
		l.take(m)
	}
	_ = l.conn.Close()
	close(l.broken)
	l.clear()
	close(l.gone)
}

func (l *link) take(m message) {
	switch {
	case m.ID != 0:
		l.answered(m)
	case m.Line != nil:
		l.mu.Lock()
		child := l.child
		l.mu.Unlock()
		if child != nil && child.lines != nil {
			child.lines([]byte(*m.Line))
		}
	case m.Exit != nil:
		l.mu.Lock()
		child := l.child
		l.child = nil
		l.mu.Unlock()
		if child != nil {
			child.end(m.Exit.Status)
		}
	case m.Peers != nil:
		if before := l.peers.Swap(int64(*m.Peers)); before > int64(*m.Peers) && l.role.fewer != nil {
			l.role.fewer()
		}
	case m.Ended:
		l.finished()
	}
}

// answered delivers an answer. Its effect on the runtime's state is recorded before the next message is read.
func (l *link) answered(m message) {
	l.mu.Lock()
	answers, child := l.waiting[m.ID], l.started[m.ID]
	delete(l.waiting, m.ID)
	delete(l.started, m.ID)
	if child != nil && m.Error == "" {
		child.pid, l.child = m.PID, child
	}
	if m.Hello != nil {
		l.hello, l.mark = *m.Hello, m.Hello.Mark
		if m.Hello.PID != 0 && l.role.leads {
			l.heir = newChild(l, l.role.lines)
			l.heir.pid, l.child = m.Hello.PID, l.heir
		}
	}
	l.mu.Unlock()
	if m.Hello != nil {
		for _, line := range m.Hello.Lines {
			l.role.lines([]byte(line))
		}
		if m.Hello.Ended {
			l.finished()
		}
	}
	if answers != nil {
		answers <- m
	}
}

func (l *link) finished() {
	if !l.over() {
		close(l.ended)
	}
}

func (l *link) over() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

func (l *link) inherited() (*Child, json.RawMessage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	heir := l.heir
	if heir != nil {
		select {
		case <-heir.exited:
			heir = nil
		default:
		}
	}
	return heir, l.hello.Note
}

// clear cleans up after the connection has ended: 1. after our own leave the shim does; 2. a leader makes sure that the shim has ended;
// 3. then the rest of its runtime is killed.
func (l *link) clear() {
	l.mu.Lock()
	left, child, mark := l.left, l.child, l.mark
	l.child = nil
	l.mu.Unlock()
	status := errGone.Error()
	if !left { // 1.
		if l.proc != nil {
			l.proc.Kill() // 2.
			<-l.proc.Exited()
			status = fmt.Sprintf("%s (%s)", status, l.proc.Status())
		}
		if l.held != nil && l.role.leads {
			l.held.Kill()
		}
		if mark != "" && (l.held == nil || l.held.Ended()) {
			process.KillMarked(mark) // 3.
		}
	}
	if l.held != nil {
		l.held.Close()
	}
	if child != nil {
		child.end(status)
	}
}

func (l *link) leave() {
	l.mu.Lock()
	l.left = true
	l.mu.Unlock()
	_ = l.conn.Close()
	<-l.gone
}
