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

// spare is an instance's process that was started ahead: it has loaded the
// program, which takes longer than all else that stands between a request and
// its runtime's own start, and waits to be told what it is. It belongs to
// nobody until [agent.take] has taken it.
type spare struct {
	process *process.Process
	order   *os.File                     // the pipe for its order
	lines   atomic.Pointer[func([]byte)] // where its output goes
}

// spareAfter is the pause after an instance became awake before the next spare
// is started, so that it takes no processor time from the first answers.
const spareAfter = 100 * time.Millisecond

// orderLimit is how long a spare may take to read its order.
const orderLimit = time.Second

// keepSpare sees to it that there is a spare, until ctx ends.
func (a *agent) keepSpare(ctx context.Context) error {
	for {
		a.refillSpare()
		select {
		case <-ctx.Done():
			a.dismissSpare()
			return nil
		case <-a.spareTaken:
		}
		select {
		case <-ctx.Done():
		case <-time.After(spareAfter):
		}
	}
}

// refillSpare starts a spare where there is none. An instance that is to start
// meanwhile waits for it: it would have to start a process too.
func (a *agent) refillSpare() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.spare != nil && !ended(a.spare.process) {
		return
	}
	var err error
	if a.spare, err = a.startSpare(); err != nil { // instances start all the same, only later
		a.log.Debug("no process is started ahead", "error", err)
	}
}

// wantSpare says that this is a good moment to start the next spare.
func (a *agent) wantSpare() {
	select {
	case a.spareTaken <- struct{}{}:
	default: // it is known
	}
}

func ended(p *process.Process) bool {
	select {
	case <-p.Exited():
		return true
	default:
		return false
	}
}

// startSpare starts a process that stands by.
func (a *agent) startSpare() (*spare, error) {
	in, order, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start a spare: %w", err)
	}
	s := &spare{order: order}
	drop := func([]byte) {} // it has nothing to say before it is an instance
	s.lines.Store(&drop)
	s.process, err = process.Start(process.Spec{
		Path: a.cfg.Program, Args: append([]string{"function"}, cli.StandbyArgs()...), Env: os.Environ(),
		Stdin: in, DeathSignal: deathSignal, Lines: func(line []byte) { (*s.lines.Load())(line) },
	})
	_ = in.Close() // the process has its own
	if err != nil {
		_ = order.Close()
		return nil, fmt.Errorf("start a spare: %w", err)
	}
	return s, nil
}

// launch makes the process of spec: out of the spare where there is one, else a
// new one. The caller holds a.mu.
func (a *agent) launch(spec process.Spec) (*process.Process, error) {
	s := a.spare
	a.spare = nil
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

// dismissSpare ends the spare and waits for its end.
func (a *agent) dismissSpare() {
	a.mu.Lock()
	s := a.spare
	a.spare = nil
	a.mu.Unlock()
	if s != nil {
		_ = s.order.Close() // which ends it
		s.process.Stop(stopGrace)
	}
}
