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

// sleepTimeout bounds the runtime's own part of a sleep.
const sleepTimeout = time.Minute

type kind string

const (
	opFetch kind = "fetch"
	opStart kind = "start"
	opAdopt kind = "adoption"
	opWake  kind = "wake"
	opSleep kind = "sleep"
	opEnd   kind = "end"
	opProbe kind = "probe"
)

// Causes of a cancelled operation.
var (
	errExited  = errors.New("the runtime ended")
	errStopped = errors.New("something else is wanted now")
	errTimeout = errors.New("took longer than its limit")
)

// operation is the operation on the runtime that is under way. One goroutine runs it and sends one result, which the owner always
// receives.
type operation struct {
	kind      kind
	began     time.Time
	cancel    context.CancelCauseFunc
	level     api.Level        // of a sleep
	startup   *runtime.Startup // of a start or wake
	announced <-chan struct{}  // of a start
	grace     time.Duration    // of an end
	busy      bool             // of a probe: requests run
	run       func()           // starts the goroutine; begin calls it if nothing is left to be set
	drained   bool             // an end of a runtime that was awake and has no requests
	moves     bool             // a sleep or an end: it ends requests, which continue elsewhere
	stopped   bool             // cancelled by the owner
	suspect   bool             // of a start: the canary decides
	serves    func()           // of a wake: the runtime accepts requests again; nil: none may come early

	// Written by the goroutine, read by the owner after the result.
	model    string          // of a fetch
	patience int             // of a probe
	mismatch bool            // of a wake or start: a different answer to the canary
	canary   *runtime.Answer // the expected answer; of a sleep or start, also the learnt one
	adapters answers         // the same for its adapters
}

type result struct {
	err  error
	took time.Duration
}

// begin sets up an operation and starts it. For a start, a probe or an end, the caller sets its fields and calls run.
func (s *Supervisor) begin(k kind) {
	ctx, cancel := context.WithCancelCause(context.Background())
	op := &operation{kind: k, began: time.Now(), cancel: cancel, level: s.want.level, suspect: s.canary.suspect, canary: s.canary.answer, adapters: s.canary.adapters}
	op.startup = s.coming.startup
	op.moves = s.gate.Moving()
	s.op = op
	child, launch, level := s.proc.child, s.proc.launch, s.proc.level
	if k == opWake { // a start reports its stages; probes before it can answer mean nothing
		ctx = s.coming.startup.With(ctx)
		if s.cfg.Early != nil && s.cfg.Early() {
			op.serves = func() { s.gate.try(launch.Endpoint) }
		}
	}
	op.run = func() {
		go func() {
			err := s.perform(ctx, op, child, launch, level)
			cancel(nil)
			s.results <- result{err, time.Since(op.began)}
		}()
	}
	if k != opStart && k != opEnd && k != opProbe {
		op.run()
	}
}

// perform runs in the operation's goroutine; it touches no state of the owner.
func (s *Supervisor) perform(ctx context.Context, op *operation, child Child, launch runtime.Launch, level api.Level) error {
	if limit, found := s.limits(op.kind); found {
		var done context.CancelFunc
		ctx, done = context.WithTimeoutCause(ctx, limit, fmt.Errorf("the %s %w of %v", op.kind, errTimeout, limit))
		defer done()
	}
	var err error
	switch op.kind {
	case opFetch:
		op.model, err = s.cfg.Prepare(ctx, s.progress(ctx))
	case opStart, opAdopt:
		await := s.awaitStart
		if op.suspect {
			await = s.awaitSuspect
		}
		if err = await(ctx, op, launch); err == nil {
			err = s.ready(ctx, op, launch)
		}
		if err == nil && op.suspect {
			err = s.compareAdapters(ctx, op, launch)
		}
	case opWake:
		var answer runtime.Answer
		if answer, err = s.cfg.Runtime.Wake(ctx, launch.Endpoint, level, op.serves); err == nil {
			err = s.compare(ctx, op, launch, "", op.canary, answer)
		}
		if err == nil {
			s.gate.pass()
			err = s.ready(ctx, op, launch)
		}
		if err == nil {
			err = s.compareAdapters(ctx, op, launch)
		}
	case opSleep:
		if s.cfg.Canary && level == api.LevelAwake {
			s.learnAll(ctx, op, launch)
		}
		if s.cfg.Leave != nil && level == api.LevelAwake {
			s.cfg.Leave(ctx, launch.Endpoint)
		}
		if op.moves {
			err = s.mover().Move(ctx, launch.Endpoint, op.level)
		} else {
			err = s.cfg.Runtime.Sleep(ctx, launch.Endpoint, op.level)
		}
	case opProbe:
		err = s.sendProbe(ctx, op, child, launch)
	case opEnd:
		if s.cfg.Leave != nil && op.drained {
			s.cfg.Leave(ctx, launch.Endpoint)
		}
		if op.moves {
			s.moveOut(ctx, launch)
		}
		child.Stop(op.grace)
	}
	if err != nil && ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
		err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	return err
}

// moveTimeout bounds how long a runtime may take to end its requests before it is ended.
const moveTimeout = 10 * time.Second

// moveOut makes a runtime end its requests before its own end. If that fails, the end of the process ends them, and they continue
// elsewhere all the same.
func (s *Supervisor) moveOut(ctx context.Context, launch runtime.Launch) {
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	if err := s.mover().Move(ctx, launch.Endpoint, api.Level2); err != nil {
		s.cfg.Logger.Warn("runtime did not hand over its requests before its end", "error", err)
	}
}

// limits returns how long an operation may take; a fetch and an end have their own bounds.
func (s *Supervisor) limits(k kind) (time.Duration, bool) {
	switch k {
	case opStart:
		return s.cfg.StartTimeout, true
	case opWake, opAdopt:
		return s.cfg.WakeTimeout, true
	case opSleep:
		return sleepTimeout, true
	case opProbe:
		return s.cfg.ProbeTimeout, true
	}
	return 0, false
}

// ready runs Config.Ready and compares the adapters, between the first token and the first request.
func (s *Supervisor) ready(ctx context.Context, op *operation, launch runtime.Launch) error {
	if s.cfg.Ready == nil {
		return nil
	}
	op.startup.Step(api.StepRestoring)
	if err := s.cfg.Ready(ctx, launch.Endpoint); err != nil {
		return fmt.Errorf("it generates, but is not ready: %w", err)
	}
	return nil
}

// awaitStart waits for the first token: for the runtime's announcement of it, or for the answer to a probe.
func (s *Supervisor) awaitStart(ctx context.Context, op *operation, launch runtime.Launch) error {
	if launch.Announce != "" {
		select {
		case <-op.announced:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	tell := func(n func()) {
		select {
		case s.notes <- n:
		case <-ctx.Done():
		}
	}
	err := runtime.Await(ctx, s.cfg.Runtime, launch.Endpoint, func() {
		op.startup.Step(api.StepProbing)
		tell(func() { s.enter(api.Starting, "probing") })
	}, func(err error) { tell(func() { s.stillStarts(err) }) })
	if runtime.Permanent(err) {
		s.hearOut(ctx)
	}
	return err
}

func (s *Supervisor) finish(r result) {
	op := s.op
	s.op = nil
	s.proc.poll() // if the process has ended too, that explains the result
	s.canary.judged(op, s.proc.attached, r.err)
	switch op.kind {
	case opFetch:
		s.finishFetch(op, r)
	case opStart, opAdopt:
		s.finishStart(op, r)
	case opWake:
		s.finishWake(r)
	case opSleep:
		s.finishSleep(op, r)
	case opEnd:
		s.finishEnd(r)
	case opProbe:
		s.finishProbe(op, r)
	}
}

// finishStart: 1. the runtime must end; 2. the process has ended, which step handles; 3. the start failed; 4. the runtime is awake.
func (s *Supervisor) finishStart(op *operation, r result) {
	switch {
	case s.want.state == api.Gone: // 1.
		s.end(s.cfg.StopGrace)
	case s.proc.ended: // 2.
	case r.err != nil: // 3.
		s.failedToCome("the runtime did not start: "+s.because(r.err), runtime.Permanent(r.err) || neverHad(r.err))
	case op.kind == opAdopt: // 4.
		s.becameAwake()
	default:
		s.took.started(r.took, s.proc.stopped)
		s.becameAwake()
	}
}

// finishWake has the branches of finishStart.
func (s *Supervisor) finishWake(r result) {
	switch {
	case s.want.state == api.Gone:
		s.end(s.cfg.StopGrace)
	case s.proc.ended:
	case r.err != nil:
		s.failedToCome("the runtime did not wake: "+r.err.Error(), runtime.Permanent(r.err))
	default:
		s.took.wake = r.took
		s.becameAwake()
	}
}

// finishSleep stops a runtime that turns out not to sleep. After another failure its state is unknown, so it is woken again, which
// proves that it generates or ends in a restart.
func (s *Supervisor) finishSleep(op *operation, r result) {
	switch {
	case s.want.state == api.Gone:
		s.end(s.cfg.StopGrace)
	case s.proc.ended:
	case errors.Is(r.err, errors.ErrUnsupported) && !s.proc.attached:
		s.doesWithout(r.err.Error())
		s.end(s.cfg.StopGrace)
	case r.err != nil:
		s.cfg.Logger.Warn("sleep failed", "level", op.level, "error", r.err)
		s.callers.answer(api.Asleep, api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime did not go to sleep: %v", r.err))
		s.want = goal{state: api.Awake}
		s.phase = waking
		s.proc.sleeps(op.level)
		s.coming.step(api.StepWaking)
		s.enter(api.Starting, api.StageWaking)
		s.begin(opWake)
	default:
		s.phase, s.took.sleep = asleep, r.took
		s.proc.sleeps(op.level)
		s.enter(api.Asleep, "")
		s.settle()
		s.meter.start(&s.proc, s.phase)
	}
}

func (s *Supervisor) finishEnd(r result) {
	if s.state == api.Draining && s.want.state == api.Asleep {
		s.took.sleep = r.took
	}
	s.proc.wasEnded() // step clears it, in phase ending
}
