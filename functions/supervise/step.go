package supervise

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	goruntime "runtime"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// step makes the next move towards the wanted state, and reports whether it made one: 1. cancel an operation that is in the way, and wait
// for it; 2. clear an ended process; 3. the phase decides.
func (s *Supervisor) step() bool {
	if s.op != nil { // 1.
		s.interruptOperation()
		return false
	}
	if s.proc.ended { // 2.
		s.handleExit()
		return true
	}
	switch s.phase { // 3.
	case off:
		return s.fromOff()
	case awake:
		if s.want.state != api.Awake {
			s.phase = draining
			s.enterState(api.Draining, "")
			return true
		}
	case draining:
		if s.want.state == api.Awake {
			s.reopenGate()
			return true
		}
	case asleep:
		return s.fromAsleep()
	}
	return false
}

// interruptOperation cancels an operation that is in the way. Only a stop interrupts a sleep that the runtime was told of.
func (s *Supervisor) interruptOperation() {
	switch {
	case s.op.kind == opEnd:
		return
	case s.proc.ended:
		s.op.cancel(errExited)
	case s.want.state == api.Gone:
		s.op.cancel(errStopped)
	case s.op.kind == opProbe && s.want.state != api.Awake, s.op.kind == opFetch && s.want.state != api.Awake:
		s.op.cancel(errStopped)
	default:
		return
	}
	s.op.stopped = true
}

func (s *Supervisor) fromOff() bool {
	switch {
	case s.mustStart():
		if !time.Now().Before(s.restarts.retryAt) {
			s.beginStart()
			return true
		}
	case s.want.state == api.Asleep && s.state != api.Asleep:
		s.proc.sleepsStopped()
		s.enterState(api.Asleep, "")
		s.answerCallers()
	}
	return false
}

// mustStart reports whether the runtime is to be started, now or at retryAt. A sidecar always is: it must be awake before it can sleep.
func (m *machine) mustStart() bool {
	return m.phase == off && !m.restarts.gaveUp && (m.want.state == api.Awake || (m.want.state == api.Asleep && m.proc.attached))
}

func (s *Supervisor) fromAsleep() bool {
	switch {
	case s.want.state == api.Awake:
		s.phase = waking
		s.coming.begin(api.StepWaking)
		s.saveNote()
		s.beginOperation(opWake) // first: requests wait for it
		goruntime.Gosched()      // let it run before the report below
		s.reports.owe(s.setState(api.Starting, "waking"))
		s.saveNote()
	case s.want.state == api.Gone:
		s.endProcess()
	case s.want.level > s.proc.level && (s.want.level == api.Suspended || s.cfg.Runtime.Traits().Deepens):
		s.sleepRuntime()
	case s.want.level > s.proc.level:
		s.endProcess() // it can't sleep deeper in place; without a process its weights are gone too
	default:
		return false
	}
	return true
}

func (s *Supervisor) sleepRuntime() {
	s.phase = sleeping
	s.saveNote()
	s.beginOperation(opSleep)
}

func (s *Supervisor) beginStart() {
	// Waiting for a sidecar restarts nothing; only its loss counts.
	if s.state == api.Unhealthy && (!s.proc.attached || s.proc.wasAwake) {
		s.restarts.count++
	}
	s.proc.wasAwake = false
	if f, can := s.cfg.Runtime.(runtime.Finder); can && s.cfg.Prepare != nil {
		if err := f.Find(); err != nil {
			s.startFailed(err.Error(), runtime.Permanent(err))
			return
		}
	}
	if s.cfg.Prepare != nil {
		s.prepareModel()
		return
	}
	s.launchRuntime(s.cfg.Model)
}

func (s *Supervisor) launchRuntime(model string) {
	s.coming.begin(api.StepForking)
	s.enterState(api.Starting, "starting runtime")
	launch, err := s.cfg.Runtime.Launch(model)
	if err != nil {
		s.startFailed(err.Error(), runtime.Permanent(err))
		return
	}
	s.proc.launched(launch)
	s.cfg.Log.Mark()
	if launch.Attach {
		s.awaitRuntime(newSidecar(), time.Now(), nil)
		return
	}
	s.startProcess(launch)
}

func (s *Supervisor) startProcess(launch runtime.Launch) {
	s.canary.forget()
	announced := make(chan struct{})
	if launch.Announce == "" {
		close(announced)
	}
	// Lines come from one goroutine, so announce needs no lock.
	announce := launch.Announce
	began := time.Now()
	lines := func(line []byte) {
		if announce != "" && strings.HasPrefix(string(line), announce) {
			announce = ""
			close(announced)
		}
		if used, said := runtime.StillInUse(line); said {
			s.reports.noteUse(used)
		}
		s.cfg.Log.Write(line)
	}
	if s.restoreRuntime(launch, lines) {
		return
	}
	child, err := s.cfg.Start(process.Spec{Path: launch.Path, Args: launch.Args, Env: s.suspension.env(launch.Env), Lines: lines})
	if err != nil {
		s.startFailed(adviseStart(err), lasting(err))
		return
	}
	s.awaitRuntime(child, began, announced)
}

func (s *Supervisor) awaitRuntime(child Child, began time.Time, announced <-chan struct{}) {
	s.proc.started(child)
	s.phase = starting
	s.coming.step(api.StepLoading)
	s.enterState(api.Starting, "loading")
	s.beginOperation(opStart)
	s.op.began, s.op.announced = began, announced
	s.op.run()
}

func (s *Supervisor) becomeAwake() {
	s.phase = awake
	s.proc.awoke()
	s.restarts.awoke(time.Now())
	s.health.awoke()
	s.gate.setReady(nil)
	s.meter.after(time.Second)
	s.gate.open(s.proc.launch.Endpoint)
	s.coming.cameUp()
	report := s.setState(api.Awake, "")
	s.answerCallers()   // before the report: requests wait for it
	goruntime.Gosched() // also before the work that the report causes
	s.saveNote()
	s.reports.owed = nil
	s.reports.out(report)
}

func (s *Supervisor) reopenGate() {
	s.phase = awake
	s.gate.open(s.proc.launch.Endpoint)
	s.enterState(api.Awake, "")
	s.answerCallers()
}

func (s *Supervisor) moveRequests() {
	if running, moved := s.gate.move(); moved {
		s.cfg.Logger.Info("handing over running requests to other instances", "running", running)
		s.finishDrain()
	}
}

func (s *Supervisor) finishDrain() {
	if level, _ := s.sleepLevel(); s.want.state == api.Asleep && (level == api.Suspended || s.cfg.Runtime.Traits().Sleeps) {
		s.sleepRuntime()
		return
	}
	s.endProcess()
}

func (s *Supervisor) expireDrain() {
	if s.want.state == api.Gone {
		s.endProcess()
		return
	}
	running, _ := s.gate.Running()
	if running == 0 {
		s.finishDrain()
		return
	}
	s.callers.answer(api.Asleep, api.Errorf(http.StatusConflict, api.CodeBusy, "%d requests still run after the time to drain: the instance stays awake", running))
	s.want = goal{state: api.Awake}
}

func (s *Supervisor) endProcess() { s.endProcessWithin(s.cfg.StopGrace) }

func (s *Supervisor) endProcessWithin(grace time.Duration) {
	if s.leaving {
		s.proc.cleared()
		s.phase = off
		return
	}
	drained := s.phase == draining && !s.hard
	s.phase = ending
	if s.state == api.Asleep || s.state == api.Awake {
		s.enterState(api.Draining, "stopping")
	}
	if s.hard || s.proc.level == api.Suspended {
		grace = 0
	}
	s.beginOperation(opEnd)
	s.op.grace, s.op.drained = grace, drained
	s.op.run()
}

// handleExit handles an ended process: 1. it was to end; 2. it slept, and now sleeps without a process; 3. it was restored from a
// snapshot, can do without a refused option, or gave up on a busy machine: it is started again at once; 4. it crashed.
func (s *Supervisor) handleExit() {
	was, status := s.phase, s.proc.child.Status()
	reason := "the runtime ended: " + status
	s.proc.cleared()
	s.phase = off
	s.reports.noProcess()
	s.cfg.Closed()
	switch {
	case was == ending || s.want.state == api.Gone: // 1.
	case was == asleep && s.want.state == api.Asleep: // 2.
		s.restarts.explained(reason)
		s.proc.sleepsStopped()
		s.enterState(api.Asleep, "")
	case s.want.state == api.Asleep: // fromOff reports it
		s.restarts.explained(reason)
	case was == starting && s.saved.restoring: // 3.
		s.restoreFailed(errors.New(reason))
	case was == starting && s.dropOption(): // 3.
	case was == starting && s.restarts.tooSlow(): // 3.
		s.cfg.Logger.Info("runtime gave up its start on a busy machine: starting again", "times", s.restarts.slow)
	case was == starting || was == waking: // 4.
		hopeless := false
		if was == starting {
			reason, hopeless = adviseExit(s.cfg.Log.Message(math.MaxInt), status)
		}
		s.startFailed(reason, hopeless)
	default:
		s.runtimeFailed(reason)
	}
}

func (s *Supervisor) dropOption() bool {
	y, can := s.cfg.Runtime.(runtime.Yielder)
	if !can {
		return false
	}
	without := y.Yield(s.cfg.Log.Message(math.MaxInt))
	if without != "" {
		s.noteWithout(without)
	}
	return without != ""
}

func (s *Supervisor) noteWithout(what string) {
	s.without = what
	s.cfg.Logger.Warn("runtime refused an option: starting without it", "reason", what)
}

// startFailed handles a failed start or wake: 1. nobody wants it any more; 2. it was the last attempt: callers get the error.
func (s *Supervisor) startFailed(reason string, permanent bool) {
	if s.want.state != api.Awake && !s.proc.attached { // 1.
		s.restarts.explained(reason)
		if s.proc.child != nil {
			s.endProcessWithin(0)
		}
		return
	}
	noRoom := runtime.NoRoom(reason+"\n"+s.cfg.Log.Message(math.MaxInt)) != ""
	last := s.restarts.failedToCome(permanent, s.proc.attached, noRoom)
	if s.restarts.gaveUp && !permanent {
		reason = fmt.Sprintf("%s (start %d of %d)", reason, s.restarts.failures, maxFailures)
	}
	s.runtimeFailed(reason)
	if last { // 2.
		s.callers.answer(api.Awake, api.Errorf(http.StatusServiceUnavailable, api.CodeStartFailed, "%s", s.restarts.message))
	}
}

func (s *Supervisor) runtimeFailed(reason string) {
	s.restarts.failed(time.Now(), s.state == api.Awake, reason)
	s.coming.failed()
	attrs := []any{"reason", reason, "failures", s.restarts.failures}
	if !s.restarts.gaveUp {
		attrs = append(attrs, "restart in", s.restarts.backoff)
	}
	s.cfg.Logger.Warn("runtime failed", attrs...)
	s.enterState(api.Unhealthy, "")
	if s.proc.child != nil {
		s.endProcessWithin(0)
	} else {
		s.phase = off
	}
}
