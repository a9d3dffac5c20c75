package supervise

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/process"
)

const (
	firstPause   = 100 * time.Millisecond // before a restart; doubles
	longestPause = 10 * time.Second
	calmAfter    = time.Minute // awake so long, failures are forgotten
	maxFailures  = 3           // starts or wakes in a row
	messageTail  = 5           // lines of output in a message
)

// step makes the next move towards what is wanted, and says whether it made one.
// In this order: 1. an operation that is in the way is cancelled, and waited
// for; 2. a process that has ended is cleared away; 3. the phase decides.
func (s *Supervisor) step() bool {
	if s.op != nil { // 1.
		s.interrupt()
		return false
	}
	if s.exitSeen { // 2.
		s.cleared()
		return true
	}
	switch s.phase { // 3.
	case off:
		return s.fromOff()
	case awake:
		if s.want.state != api.Awake {
			s.drain()
			return true
		}
	case draining:
		if s.want.state == api.Awake {
			s.reopen()
			return true
		}
	case asleep:
		return s.fromAsleep()
	}
	return false
}

// interrupt cancels the operation where it is in the way. A sleep that the
// runtime has been told of is in nobody's way but a stop's.
func (s *Supervisor) interrupt() {
	switch {
	case s.op.kind == opEnd:
		// it ends by itself
	case s.exitSeen:
		s.op.cancel(errExited)
	case s.want.state == api.Gone:
		s.op.cancel(errStopped)
	case s.op.kind == opProbe && s.want.state != api.Awake:
		s.op.cancel(errStopped)
	}
}

func (s *Supervisor) fromOff() bool {
	switch s.want.state {
	case api.Asleep:
		if s.state != api.Asleep {
			s.level, s.stopped = api.Level2, true
			s.enter(api.Asleep, "")
			s.settle()
		}
	case api.Awake:
		if !s.gaveUp && !time.Now().Before(s.retryAt) {
			s.startProcess()
			return true
		}
	}
	return false
}

func (s *Supervisor) fromAsleep() bool {
	switch {
	case s.want.state == api.Awake:
		s.phase = rising
		s.begin(opWake) // before the report: requests wait for it
		s.enter(api.Starting, "waking")
	case s.want.state == api.Gone:
		s.end(s.cfg.StopGrace)
	case s.want.level > s.level && s.cfg.Runtime.Traits().Deepens:
		s.phase = falling
		s.begin(opSleep)
	case s.want.level > s.level:
		s.end(s.cfg.StopGrace) // it can't go deeper in place: without a process its weights are dropped too
	default:
		return false
	}
	return true
}

// startProcess forks the runtime and begins to wait for its first token.
func (s *Supervisor) startProcess() {
	if s.state == api.Unhealthy {
		s.restarts++
	}
	s.enter(api.Starting, "starting runtime")
	launch, err := s.cfg.Runtime.Launch(s.cfg.Model)
	if err != nil {
		s.failedToCome(err.Error())
		return
	}
	s.launch = launch
	s.cfg.Log.Mark()
	announced := make(chan struct{})
	if launch.Announce == "" {
		close(announced)
	}
	// Lines come from one goroutine: announce is its own.
	announce := launch.Announce
	began := time.Now()
	child, err := s.cfg.Start(process.Spec{Path: launch.Path, Args: launch.Args, Env: launch.Env, Lines: func(line []byte) {
		if announce != "" && strings.HasPrefix(string(line), announce) {
			announce = ""
			close(announced)
		}
		s.cfg.Log.Write(line)
	}})
	if err != nil {
		s.failedToCome(err.Error())
		return
	}
	s.child, s.exitSeen, s.phase = child, false, starting
	s.enter(api.Starting, "loading")
	s.begin(opStart)
	s.op.began, s.op.announced = began, announced
	s.op.run()
}

// becameAwake opens the gate.
func (s *Supervisor) becameAwake() {
	now := time.Now()
	s.phase, s.level, s.stopped, s.message = awake, api.LevelAwake, false, ""
	s.failures, s.gaveUp, s.awakeSince = 0, false, now
	s.probeAt, s.measureAt = time.Time{}, now.Add(time.Second)
	if s.cfg.ProbeInterval > 0 {
		s.probeAt = now.Add(s.cfg.ProbeInterval)
	}
	s.gate.open(s.launch.Endpoint)
	report := s.set(api.Awake, "")
	s.settle() // before the report: requests wait for it
	s.cfg.Report(report)
}

// drain shuts the gate and waits for the requests that are in.
func (s *Supervisor) drain() {
	s.phase = draining
	s.enter(api.Draining, "")
}

// reopen ends a drain.
func (s *Supervisor) reopen() {
	s.phase = awake
	s.gate.open(s.launch.Endpoint)
	s.enter(api.Awake, "")
	s.settle()
}

// drained goes on after the last request has left.
func (s *Supervisor) drained() {
	if s.want.state == api.Asleep && s.cfg.Runtime.Traits().Sleeps {
		s.phase = falling
		s.begin(opSleep)
		return
	}
	s.end(s.cfg.StopGrace)
}

// drainExpired gives up a sleep, or goes on with a stop.
func (s *Supervisor) drainExpired() {
	if s.want.state == api.Gone {
		s.end(s.cfg.StopGrace)
		return
	}
	running, _ := s.gate.Running()
	if running == 0 {
		s.drained()
		return
	}
	s.answer(api.Asleep, api.Errorf(http.StatusConflict, api.CodeBusy, "%d requests still run after the time to drain: the instance stays awake", running))
	s.want = goal{state: api.Awake}
}

// end ends the process with all its descendants.
func (s *Supervisor) end(grace time.Duration) {
	s.phase = ending
	if s.state == api.Asleep || s.state == api.Awake {
		s.enter(api.Draining, "stopping")
	}
	if s.hard {
		grace = 0
	}
	s.begin(opEnd)
	s.op.grace = grace
	s.op.run()
}

// cleared deals with a process that has ended when no operation was under way
// or after it: 1. it was to end; 2. it sleeps, and does so without a process
// too; 3. it is to be awake, which is a crash.
func (s *Supervisor) cleared() {
	was := s.phase
	reason := "the runtime ended: " + s.child.Status()
	s.child, s.exitSeen, s.phase = nil, false, off
	s.book.noProcess()
	s.cfg.Closed()
	switch {
	case was == ending || s.want.state == api.Gone: // 1.
	case was == asleep && s.want.state == api.Asleep: // 2.
		s.message = s.explain(reason)
		s.level, s.stopped = api.Level2, true
		s.enter(api.Asleep, "")
	case s.want.state == api.Asleep: // 2. fromOff says so
		s.message = s.explain(reason)
	case was == starting || was == rising: // 3.
		s.failedToCome(reason)
	default:
		s.failed(reason)
	}
}

// failedToCome is a start or wake that failed.
func (s *Supervisor) failedToCome(reason string) {
	if s.want.state != api.Awake {
		s.message = s.explain(reason)
		s.end(0)
		return
	}
	if s.failures++; s.failures >= maxFailures {
		s.gaveUp = true
		reason = fmt.Sprintf("%s (start %d of %d)", reason, s.failures, maxFailures)
	}
	s.failed(reason)
	if s.gaveUp {
		s.answer(api.Awake, api.Errorf(http.StatusServiceUnavailable, api.CodeStartFailed, "%s", s.message))
	}
}

// failed says that the runtime is not what it should be, ends what is left of it
// and sets the time of the next start.
func (s *Supervisor) failed(reason string) {
	now := time.Now()
	if s.state == api.Awake && now.Sub(s.awakeSince) >= calmAfter {
		s.backoff = 0
	}
	s.backoff = min(max(2*s.backoff, firstPause), longestPause)
	s.retryAt = now.Add(s.backoff)
	s.message = s.explain(reason)
	s.cfg.Logger.Warn("runtime failed", "reason", reason, "failures", s.failures, "restart in", s.backoff)
	s.enter(api.Unhealthy, "")
	if s.child != nil {
		s.end(0)
	} else {
		s.phase = off
	}
}

// explain adds the last lines of output.
func (s *Supervisor) explain(reason string) string {
	if tail := s.cfg.Log.Message(messageTail); tail != "" {
		return reason + "; its last output:\n" + tail
	}
	return reason
}
