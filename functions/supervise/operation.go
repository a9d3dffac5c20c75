package supervise

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

type kind string

const (
	opStart kind = "start"
	opWake  kind = "wake"
	opSleep kind = "sleep"
	opEnd   kind = "end"
	opProbe kind = "probe"
)

// Causes of a cancelled operation.
var (
	errExited  = errors.New("the runtime ended")
	errStopped = errors.New("something else is wanted now")
)

// operation is what is done to the runtime now. One goroutine runs it and sends
// one result, which the owner always takes.
type operation struct {
	kind      kind
	began     time.Time
	cancel    context.CancelCauseFunc
	level     api.Level       // of a sleep
	announced <-chan struct{} // of a start
	grace     time.Duration   // of an end
	run       func()          // starts the goroutine; begin calls it where nothing is left to be set
}

// result is how the operation went.
type result struct {
	err  error
	took time.Duration
}

// begin sets up an operation. A wake, sleep or probe is started at once; for a
// start or an end the caller sets what it needs and calls run.
func (s *Supervisor) begin(k kind) {
	ctx, cancel := context.WithCancelCause(context.Background())
	op := &operation{kind: k, began: time.Now(), cancel: cancel, level: s.want.level}
	s.op = op
	child, launch, level := s.child, s.launch, s.level
	op.run = func() {
		go func() {
			err := s.perform(ctx, op, child, launch, level)
			cancel(nil)
			s.results <- result{err, time.Since(op.began)}
		}()
	}
	if k != opStart && k != opEnd {
		op.run()
	}
}

// perform runs in the operation's goroutine; it touches nothing of the owner's.
func (s *Supervisor) perform(ctx context.Context, op *operation, child Child, launch runtime.Launch, level api.Level) error {
	limit := map[kind]time.Duration{opStart: s.cfg.StartTimeout, opWake: s.cfg.WakeTimeout, opSleep: s.cfg.SleepTimeout, opProbe: s.cfg.ProbeTimeout}
	if d, found := limit[op.kind]; found {
		var done context.CancelFunc
		ctx, done = context.WithTimeoutCause(ctx, d, fmt.Errorf("the %s took longer than its limit of %v", op.kind, d))
		defer done()
	}
	var err error
	switch op.kind {
	case opStart:
		err = s.awaitStart(ctx, op, launch)
	case opWake:
		err = s.cfg.Runtime.Wake(ctx, launch.Endpoint, level)
	case opSleep:
		err = s.cfg.Runtime.Sleep(ctx, launch.Endpoint, op.level)
	case opProbe:
		err = s.cfg.Runtime.Probe(ctx, launch.Endpoint)
	case opEnd:
		child.Stop(op.grace)
	}
	if err != nil && ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
		err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	return err
}

// awaitStart waits for the first token: for the runtime's announcement of it, or
// for the answer to a probe.
func (s *Supervisor) awaitStart(ctx context.Context, op *operation, launch runtime.Launch) error {
	if launch.Announce != "" {
		select {
		case <-op.announced:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return runtime.Await(ctx, s.cfg.Runtime, launch.Endpoint, func() {
		select {
		case s.notes <- "probing":
		case <-ctx.Done():
		}
	})
}

// finish takes the result of the operation.
func (s *Supervisor) finish(r result) {
	op := s.op
	s.op = nil
	if s.child != nil && !s.exitSeen {
		select {
		case <-s.child.Exited(): // both happened: the end explains the result
			s.exitSeen = true
		default:
		}
	}
	switch op.kind {
	case opStart:
		s.finishStart(r)
	case opWake:
		s.finishWake(r)
	case opSleep:
		s.finishSleep(op, r)
	case opEnd:
		s.finishEnd(r)
	case opProbe:
		s.finishProbe(r)
	}
}

// finishStart: 1. it is to end; 2. the process has ended, which step clears
// away; 3. it failed; 4. it is awake.
func (s *Supervisor) finishStart(r result) {
	switch {
	case s.want.state == api.Gone: // 1.
		s.end(s.cfg.StopGrace)
	case s.exitSeen: // 2.
	case r.err != nil: // 3.
		s.failedToCome("the runtime did not start: " + r.err.Error())
	default: // 4.
		s.loadTime = r.took
		if s.stopped {
			s.wakeTime = r.took
		}
		s.becameAwake()
	}
}

// finishWake has the branches of finishStart.
func (s *Supervisor) finishWake(r result) {
	switch {
	case s.want.state == api.Gone:
		s.end(s.cfg.StopGrace)
	case s.exitSeen:
	case r.err != nil:
		s.failedToCome("the runtime did not wake: " + r.err.Error())
	default:
		s.wakeTime = r.took
		s.becameAwake()
	}
}

// finishSleep: after a failure nobody knows how far the runtime got, so it is
// woken again, which proves that it generates or ends in a restart.
func (s *Supervisor) finishSleep(op *operation, r result) {
	switch {
	case s.want.state == api.Gone:
		s.end(s.cfg.StopGrace)
	case s.exitSeen:
	case r.err != nil:
		s.cfg.Logger.Warn("sleep failed", "level", op.level, "error", r.err)
		s.answer(api.Asleep, api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime did not go to sleep: %v", r.err))
		s.want = goal{state: api.Awake}
		s.phase, s.level = rising, op.level
		s.enter(api.Starting, "waking")
		s.begin(opWake)
	default:
		s.phase, s.level, s.sleepTime = asleep, op.level, r.took
		s.enter(api.Asleep, "")
		s.settle()
		s.measure()
	}
}

func (s *Supervisor) finishEnd(r result) {
	if s.state == api.Draining && s.want.state == api.Asleep {
		s.sleepTime = r.took
	}
	s.exitSeen = true // cleared by step, in phase ending
}

// health starts a health probe of an idle runtime. Where requests were answered
// since the last look, or run, they say more than a probe.
func (s *Supervisor) health() {
	running, entered := s.gate.Running()
	busy := running > 0 || entered != s.entered
	s.entered = entered
	s.probeAt = time.Now().Add(s.cfg.ProbeInterval)
	if !busy {
		s.begin(opProbe)
	}
}

// finishProbe: a failure counts only where nothing else can explain it.
func (s *Supervisor) finishProbe(r result) {
	s.probeAt = time.Now().Add(s.cfg.ProbeInterval)
	running, entered := s.gate.Running()
	if r.err == nil || s.exitSeen || s.want.state != api.Awake || running > 0 || entered != s.entered {
		return
	}
	s.failed("the runtime hangs: an idle one answers no probe: " + r.err.Error())
}

// measureBusy measures where requests may have changed something.
func (s *Supervisor) measureBusy(now time.Time) {
	running, entered := s.gate.Running()
	if running > 0 || entered != s.entered || s.book.read().Memory.Host == 0 {
		s.measure()
		return
	}
	s.measureAt = now.Add(memoryInterval)
}
