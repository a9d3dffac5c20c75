package shim

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/internal/inbound"
)

var (
	errOver    = errors.New("the shim ends")
	errRuns    = errors.New("a runtime runs already")
	errNone    = errors.New("that process has ended")
	errUnknown = errors.New("unknown call of the shim: both sides must have the same version")
)

func (s *server) take(p *peer, m message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := message{ID: m.ID}
	var err error
	switch m.Call {
	case callJoin:
		err = s.join(p, m, &answer)
	case callStart:
		err = s.start(m, &answer)
	case callStop, callKill:
		s.stop(m)
		return
	case callMemory, callCPU:
		if err = s.measure(p, m); err == nil {
			return
		}
	case callNote:
		s.note = m.Note
		return
	case callEnd:
		s.ended = true
		s.tell(message{Ended: true})
	default:
		err = errUnknown
	}
	if err != nil {
		answer.Error = err.Error()
	}
	s.send(p, answer)
}

// join answers with the present state; the connection gets all later events.
func (s *server) join(p *peer, m message, answer *message) error {
	if m.Mark != "" {
		s.mark = m.Mark
	}
	if m.Listen != "" && s.listener == nil {
		l, err := Listen(m.Listen)
		if err != nil {
			return err
		}
		l = inbound.NewListener(l, inbound.Limits{}, s.cfg.Logger)
		s.listener = l
		s.tasks.Go(func() { s.accept(l) })
	}
	p.knows, p.leads = true, m.Lead
	h := &hello{Mark: s.mark, Note: s.note, Ended: s.ended}
	if s.child != nil {
		h.PID = s.child.PID()
	}
	if m.Lead {
		h.Lines = s.log.Tail(-1)
	}
	answer.Hello = h
	s.tellPeers()
	return nil
}

// Listen opens a socket for other workers of the same user. Its file outlives the listener: by then it may be another process's.
func Listen(path string) (net.Listener, error) {
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen for other workers: %w", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("listen for other workers: %w", err), l.Close())
	}
	return l, nil
}

// start holds mu, so that the answer is sent before the first line of output.
func (s *server) start(m message, answer *message) error {
	switch {
	case s.closing || s.ended:
		return errOver
	case s.child != nil:
		return fmt.Errorf("%w: process %d", errRuns, s.child.PID())
	case m.Spec == nil:
		return errUnknown
	}
	child, err := process.Start(process.Spec{
		Path: m.Spec.Path, Args: m.Spec.Args, Env: append(slices.Clip(m.Spec.Env), s.mark), Dir: m.Spec.Dir, Lines: s.line,
	})
	if err != nil {
		if why := errors.Unwrap(err); why != nil {
			return why // the caller adds the program's name
		}
		return err
	}
	s.child, answer.PID = child, child.PID()
	s.tasks.Go(func() {
		<-child.Exited()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.child = nil
		s.tell(message{Exit: &exit{PID: child.PID(), Status: child.Status()}})
	})
	return nil
}

func (s *server) line(line []byte) {
	s.log.Write(line)
	text := string(line)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell(message{Line: &text})
}

func (s *server) stop(m message) {
	child := s.child
	if child == nil || child.PID() != m.PID {
		return
	}
	if m.Call == callKill {
		child.Kill()
		return
	}
	s.tasks.Go(func() { child.Stop(m.Grace) })
}

// measure answers from another goroutine: it may take long.
func (s *server) measure(p *peer, m message) error {
	child := s.child
	if child == nil || child.PID() != m.PID {
		return errNone
	}
	s.tasks.Go(func() {
		answer := message{ID: m.ID}
		var err error
		if m.Call == callCPU {
			answer.Time, err = child.CPU()
		} else {
			bytes, shared, failed := child.Memory()
			answer.Bytes, answer.Shared, err = int64(bytes), &shared, failed
		}
		if err != nil {
			answer.Error = err.Error()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.send(p, answer)
	})
	return nil
}
