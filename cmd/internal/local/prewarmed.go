package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/functions/cli"
	"github.com/rouse-dev/rouse/functions/process"
)

// prewarmed is an instance's process that was started ahead: it has loaded the
// program, which takes longer than all else that stands between a request and
// its runtime's own start, and waits to be told what it is. It belongs to
// nobody until [agent.take] has taken it.
type prewarmed struct {
	process *process.Process
	order   *os.File                     // the pipe for its order
	lines   atomic.Pointer[func([]byte)] // where its output goes
}

// prewarmAfter is the pause after an instance became awake before the next prewarmed process
// is started, so that it takes no processor time from the first answers.
const prewarmAfter = 100 * time.Millisecond

// orderLimit is how long a prewarmed process may take to read its order.
const orderLimit = time.Second

// keepPrewarmed sees to it that there is a prewarmed process, until ctx ends.
func (a *agent) keepPrewarmed(ctx context.Context) error {
	for {
		a.prewarm()
		select {
		case <-ctx.Done():
			a.dismissPrewarmed()
			return nil
		case <-a.prewarmedTaken:
		}
		select {
		case <-ctx.Done():
		case <-time.After(prewarmAfter):
		}
	}
}

// prewarm starts a prewarmed process where there is none. An instance that is to start
// meanwhile waits for it: it would have to start a process too.
func (a *agent) prewarm() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.prewarmed != nil && !ended(a.prewarmed.process) {
		return
	}
	var err error
	if a.prewarmed, err = a.startPrewarmed(); err != nil { // instances start all the same, only later
		a.log.Debug("no process is started ahead", "error", err)
	}
}

// wantPrewarmed says that this is a good moment to start the next prewarmed process.
func (a *agent) wantPrewarmed() { a.prewarmedTaken.Ring() }

func ended(p *process.Process) bool {
	select {
	case <-p.Exited():
		return true
	default:
		return false
	}
}

// startPrewarmed starts a process that stands by.
func (a *agent) startPrewarmed() (*prewarmed, error) {
	in, order, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("prewarm a process: %w", err)
	}
	s := &prewarmed{order: order}
	drop := func([]byte) {} // it has nothing to say before it is an instance
	s.lines.Store(&drop)
	s.process, err = process.Start(process.Spec{
		Path: a.cfg.Program, Args: append([]string{"function"}, cli.StandbyArgs()...), Env: os.Environ(),
		Stdin: in, DeathSignal: deathSignal, Lines: func(line []byte) { (*s.lines.Load())(line) },
	})
	_ = in.Close() // the process has its own
	if err != nil {
		_ = order.Close()
		return nil, fmt.Errorf("prewarm a process: %w", err)
	}
	return s, nil
}

// launch makes the process of spec: out of the prewarmed process where there is one, else a
// new one. The caller holds a.mu.
func (a *agent) launch(spec process.Spec) (*process.Process, error) {
	s := a.prewarmed
	a.prewarmed = nil
	if s == nil {
		return process.Start(spec)
	}
	s.lines.Store(&spec.Lines)
	raw, err := json.Marshal(cli.Order{Args: slices.Clone(spec.Args[1:]), Env: spec.Env})
	if err != nil {
		return nil, err
	}
	_ = s.order.SetWriteDeadline(time.Now().Add(orderLimit)) // a pipe has deadlines
	_, err = s.order.Write(append(raw, '\n'))
	if err = errors.Join(err, s.order.Close()); err != nil || ended(s.process) {
		s.process.Kill()
		a.log.Debug("the process that was started ahead can't be used", "error", err)
		return process.Start(spec)
	}
	return s.process, nil
}

// dismissPrewarmed ends the prewarmed process and waits for its end.
func (a *agent) dismissPrewarmed() {
	a.mu.Lock()
	s := a.prewarmed
	a.prewarmed = nil
	a.mu.Unlock()
	if s != nil {
		_ = s.order.Close() // which ends it
		s.process.Stop(stopGrace)
	}
}
