package supervise

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

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

	opSnapshot kind = "snapshot"
)

var (
	errExited  = errors.New("the runtime ended")
	errStopped = errors.New("something else is wanted now")
	errTimeout = errors.New("took longer than its limit")
)

// operation is the operation on the runtime that is under way. One goroutine runs it and sends one result, which the owner always receives.
// Its methods run in that goroutine, and change the owner's state only by notes.
type operation struct {
	kind      kind
	began     time.Time
	cancel    context.CancelCauseFunc
	cfg       *Config
	gate      *Gate
	notes     chan<- func(*Supervisor)
	child     Child
	launch    runtime.Launch
	from      api.Level
	level     api.Level      // of a sleep
	own       api.Level      // of the runtime's own sleep at that level, or below a suspension; 0: none
	old, onto []api.DeviceID // of a wake from a suspension that moves the runtime: its GPUs; nil: they stay
	startup   *runtime.Startup
	announced <-chan struct{}
	grace     time.Duration
	busy      bool          // of a probe: requests run
	run       func()        // starts the goroutine
	drained   bool          // an end of a runtime that was awake and has no requests
	mover     runtime.Mover // of a sleep or an end: it ends the requests
	stopped   bool          // cancelled by the owner
	suspect   bool          // of a start: the canary decides
	saved     saved

	// Written by the goroutine, read by the owner after the result.
	model    string
	patience int
	suspends bool // the runtime's own sleep is done
	movable  bool
	mismatch bool
	canary   *runtime.Answer // the expected answer; of a sleep or start, also the learnt one
	adapters answers
}

type result struct {
	err  error
	took time.Duration
}

// beginOperation starts an operation. For a start, a probe or an end, the caller sets its fields and calls run.
func (s *Supervisor) beginOperation(k kind) {
	ctx, cancel := context.WithCancelCause(context.Background())
	op := &operation{
		kind: k, began: time.Now(), cancel: cancel, cfg: &s.cfg, gate: s.gate, notes: s.notes, child: s.proc.child, launch: s.proc.launch, from: s.proc.level,
		own: s.proc.own, startup: s.coming.startup, suspect: s.canary.suspect, saved: s.saved, canary: s.canary.answer, adapters: s.canary.adapters,
	}
	if k == opSleep {
		op.level, op.own = s.sleepLevel()
	}
	if s.gate.Moving() {
		op.mover = s.mover
	}
	s.op = op
	if k == opWake { // a start reports its stages; probes before it can answer mean nothing
		ctx = op.startup.With(ctx)
		if u := &s.suspension; u.onto != nil {
			op.old, op.onto = u.devices, u.onto
			u.devices, u.onto, u.moved = u.onto, nil, true
		}
	}
	op.run = func() {
		go func() {
			err := op.perform(ctx)
			cancel(nil)
			s.results <- result{err, time.Since(op.began)}
		}()
	}
	if k != opStart && k != opEnd && k != opProbe {
		op.run()
	}
}

func (o *operation) perform(ctx context.Context) error {
	if limit, found := o.limit(); found {
		var done context.CancelFunc
		ctx, done = context.WithTimeoutCause(ctx, limit, fmt.Errorf("the %s %w of %v", o.kind, errTimeout, limit))
		defer done()
	}
	var err error
	switch o.kind {
	case opFetch:
		o.model, err = o.cfg.Prepare(ctx, o.reportShare(ctx))
	case opStart, opAdopt:
		await := o.awaitStart
		if o.suspect {
			await = o.awaitSuspect
		}
		if o.saved.restoring {
			await = o.awaitRestored
		}
		if err = await(ctx); err == nil {
			err = o.makeReady(ctx)
		}
		if err == nil && o.suspect {
			err = o.compareAdapters(ctx)
		}
	case opWake:
		err = o.wake(ctx)
	case opSleep:
		if o.cfg.Canary && o.from == api.LevelAwake {
			o.learnAll(ctx)
		}
		if o.cfg.Leave != nil && o.from == api.LevelAwake {
			o.cfg.Leave(ctx, o.launch.Endpoint)
		}
		err = o.sleep(ctx)
	case opProbe:
		err = o.sendProbe(ctx)
	case opSnapshot:
		err = o.save(ctx)
	case opEnd:
		if o.cfg.Leave != nil && o.drained {
			o.cfg.Leave(ctx, o.launch.Endpoint)
		}
		if o.mover != nil {
			o.moveOut(ctx)
		}
		o.stop()
	}
	if err != nil && ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
		err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	return err
}

func (o *operation) wake(ctx context.Context) error {
	var serves func() // nil: no request may come early
	if o.cfg.Early != nil && o.cfg.Early() {
		serves = func() { o.gate.try(o.launch.Endpoint) }
	}
	answer, err := o.restore(ctx, serves)
	if err == nil {
		err = o.compare(ctx, "", o.canary, answer)
	}
	if err == nil {
		o.gate.pass()
		err = o.makeReady(ctx)
	}
	if err == nil {
		err = o.compareAdapters(ctx)
	}
	return err
}

const moveTimeout = 10 * time.Second

func (o *operation) moveOut(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	if err := o.mover.Move(ctx, o.launch.Endpoint, api.Level2); err != nil {
		o.cfg.Logger.Warn("runtime did not hand over its requests before its end", "error", err)
	}
}

func (o *operation) limit() (time.Duration, bool) {
	switch o.kind {
	case opStart:
		return o.cfg.StartTimeout, true
	case opWake, opAdopt:
		return o.cfg.WakeTimeout, true
	case opSleep:
		return sleepTimeout, true
	case opProbe:
		return o.cfg.ProbeTimeout, true
	case opSnapshot:
		return snapshotTimeout, true
	}
	return 0, false
}

func (o *operation) makeReady(ctx context.Context) error {
	if o.cfg.Ready == nil {
		return nil
	}
	o.startup.Step(api.StepRestoring)
	if err := o.cfg.Ready(ctx, o.launch.Endpoint); err != nil {
		return fmt.Errorf("it generates, but is not ready: %w", err)
	}
	return nil
}

// tell has the owner call note, unless ctx ends first.
func (o *operation) tell(ctx context.Context, note func(*Supervisor)) {
	select {
	case o.notes <- note:
	case <-ctx.Done():
	}
}

func (o *operation) awaitStart(ctx context.Context) error {
	if o.launch.Announce != "" {
		select {
		case <-o.announced:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	err := runtime.Await(ctx, o.cfg.Runtime, o.launch.Endpoint, func() {
		o.startup.Step(api.StepProbing)
		o.tell(ctx, func(s *Supervisor) { s.enterState(api.Starting, "probing") })
	}, func(err error) {
		o.tell(ctx, func(s *Supervisor) {
			s.reports.send(s.reports.change(func(st *api.InstanceStatus) { st.Message = "the last try failed: " + err.Error() }))
		})
	})
	if runtime.Permanent(err) {
		hearOut(ctx, o.cfg.Log)
	}
	return err
}

func (s *Supervisor) finishOperation(r result) {
	op := s.op
	s.op = nil
	s.proc.poll()
	s.canary.judged(op, s.proc.attached, r.err)
	switch op.kind {
	case opFetch:
		s.finishFetch(op, r)
	case opStart, opAdopt, opWake:
		s.finishStart(op, r)
	case opSleep:
		s.finishSleep(op, r)
	case opEnd:
		if s.state == api.Draining && s.want.state == api.Asleep {
			s.took.sleep = r.took
		}
		s.proc.ended = true // step clears it, in phase ending
	case opProbe:
		s.finishProbe(op, r)
	case opSnapshot:
		if r.err != nil {
			s.cfg.Logger.Warn("making a snapshot failed: the next start is a usual one", "reason", r.err)
			s.reports.SetSnapshot(api.Snapshot{Missing: r.err.Error()})
			s.checkUnreachable()
		}
	}
}

// finishStart, also of an adoption or a wake: 1. the runtime must end; 2. the process has ended, which step handles; 3. it failed; 4. the
// runtime is awake.
func (s *Supervisor) finishStart(op *operation, r result) {
	if op.kind == opWake && op.from == api.Suspended && !op.stopped {
		if r.err != nil && op.onto != nil {
			s.cfg.Moves = false
		} else {
			s.suspension.tried(r.err, true)
		}
	}
	switch {
	case s.want.state == api.Gone: // 1.
		s.endProcess()
	case s.proc.ended: // 2.
	case r.err != nil && op.saved.restoring: // 3.
		s.restoreFailed(r.err)
	case r.err != nil && op.kind == opWake: // 3.
		s.startFailed("the runtime did not wake: "+r.err.Error(), runtime.Permanent(r.err))
	case r.err != nil: // 3.
		s.startFailed("the runtime did not start: "+because(r.err, s.cfg.Log), runtime.Permanent(r.err) || neverHad(r.err))
	default: // 4.
		switch op.kind {
		case opStart:
			s.took.started(r.took, s.proc.stopped)
			s.startedRuntime(r.took)
		case opWake:
			s.took.wake = r.took
		}
		s.becomeAwake()
	}
}

// wakeUnsure wakes a runtime that may be awake. level and own are those of the sleep, if it sleeps.
func (s *Supervisor) wakeUnsure(level, own api.Level) {
	s.phase, s.proc.level, s.proc.own = waking, level, own
	s.coming.step(api.StepWaking)
	s.enterState(api.Starting, api.StepWaking)
	s.beginOperation(opWake)
}

// finishSleep wakes a runtime whose own sleep failed: its state is unknown, and a wake proves that it generates or ends in a restart.
func (s *Supervisor) finishSleep(op *operation, r result) {
	if op.suspends && !op.stopped {
		s.suspension.tried(r.err, false)
	}
	switch {
	case s.want.state == api.Gone:
		if op.suspends {
			s.proc.level = api.Suspended
		}
		s.endProcess()
	case s.proc.ended:
	case r.err != nil && op.suspends:
		s.suspendFailed(op, r)
	case errors.Is(r.err, errors.ErrUnsupported) && !s.proc.attached:
		s.noteWithout(r.err.Error())
		s.endProcess()
	case r.err != nil:
		s.cfg.Logger.Warn("sleep failed", "level", op.own, "error", r.err)
		s.callers.answer(api.Asleep, api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime did not go to sleep: %v", r.err))
		s.want = goal{state: api.Awake}
		s.wakeUnsure(op.own, op.own)
	default:
		s.took.sleep, s.suspension.movable = r.took, op.movable && s.cfg.Moves
		s.fallAsleep(op.level, op.own)
	}
}

func (s *Supervisor) fallAsleep(level, own api.Level) {
	s.phase, s.proc.level, s.proc.own = asleep, level, own
	s.enterState(api.Asleep, "")
	s.answerCallers()
	s.meter.start(&s.proc, s.phase)
}

const progressInterval = 200 * time.Millisecond

func (s *Supervisor) prepareModel() {
	s.phase = fetching
	s.coming.begin(api.StepFetching)
	s.cfg.Log.Mark()
	s.enterState(api.Starting, api.StepFetching)
	s.gate.expect(s.expectedFetching(0, time.Now()))
	s.beginOperation(opFetch)
}

func (o *operation) reportShare(ctx context.Context) func(float64) {
	var mu sync.Mutex // guards last: parts of a model arrive concurrently
	var last time.Time
	return func(share float64) {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); now.Sub(last) >= progressInterval {
			last = now
			o.tell(ctx, func(s *Supervisor) { s.noteShare(share) })
		}
	}
}

func (s *Supervisor) noteShare(share float64) {
	if s.phase != fetching || !(share >= 0) { // also false for NaN
		return
	}
	share = min(share, 1)
	s.gate.expect(s.expectedFetching(share, time.Now()))
	s.reports.send(s.reports.change(func(st *api.InstanceStatus) { st.Progress = share }))
}

// finishFetch: 1. something else is, or was, wanted: step goes on without a process; 2. the fetch failed; 3. the process is started.
func (s *Supervisor) finishFetch(op *operation, r result) {
	s.phase = off
	switch {
	case s.want.state != api.Awake && !s.proc.attached, s.want.state == api.Gone, r.err != nil && op.stopped: // 1.
	case r.err != nil: // 2.
		s.startFailed("the model could not be made ready: "+r.err.Error(), runtime.Permanent(r.err))
	default: // 3.
		s.launchRuntime(op.model)
	}
}
