package supervise

import (
	"context"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// phase is the owner's state; it is finer than [api.State].
type phase int

const (
	off      phase = iota // no process
	fetching              // no process yet; operation fetch
	starting              // a process that has not generated yet; operation start
	awake                 // the gate is open; perhaps operation probe
	draining              // the gate is shut, requests run
	sleeping              // operation sleep
	asleep                // the process sleeps
	waking                // operation wake
	ending                // operation end
)

// machine is the state of the runtime, and what is wanted of it. Its methods only read it.
type machine struct {
	cfg        Config
	phase      phase
	state      api.State // as last reported
	want       goal
	epoch      uint64    // the highest that was seen
	drainUntil time.Time // zero: no bound
	moves      bool      // the drain ends movable requests once no others are left
	leaving    bool      // the runtime is left to the next supervisor
	hard       bool      // end at once, no SIGTERM first
	without    string    // the option that the runtime does without; empty: none

	proc     proc
	coming   coming
	took     took
	restarts restarts
	canary   canary

	suspension suspension
	saved      saved
}

// Supervisor keeps one runtime in its wanted state, see the package comment. Each of its parts owns its state. Other goroutines than
// Run's may use only the gate, the reports and the channels.
type Supervisor struct {
	machine
	callers
	gate *Gate

	results chan result            // from the operation under way; unbuffered; never closed
	notes   chan func(*Supervisor) // the operation's reports, run by the owner; unbuffered; never closed

	reports *Reports
	health  health
	meter   *meter
	mover   runtime.Mover   // the runtime if it can move its requests, else nil
	op      *operation      // nil: none
	idle    <-chan struct{} // closed when a shut gate has no requests left
}

// New returns a supervisor; it starts nothing until Run.
func New(cfg Config) (*Supervisor, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	gate := newGate(cfg.Status.Concurrency)
	st := cfg.Status
	want := goal{state: api.Awake}
	if cfg.Asleep {
		want = goal{api.Asleep, api.Level2}
	}
	st.State, st.Since, st.Seq = api.Starting, time.Now(), max(firstSeq(time.Now()), st.Seq)
	reports := newReports(gate, st, cfg.Report)
	mover, _ := cfg.Runtime.(runtime.Mover)
	s := &Supervisor{
		machine: machine{cfg: cfg, want: want, epoch: st.Epoch, state: api.Starting, coming: coming{trace: cfg.Trace}, restarts: restarts{log: cfg.Log},
			suspension: suspension{never: st.NoSuspend, devices: slices.Sorted(slices.Values(st.Devices))}},
		gate: gate, reports: reports, callers: newCallers(reports), meter: newMeter(cfg.GPUs, reports), mover: mover,
		results: make(chan result), notes: make(chan func(*Supervisor)),
	}
	s.health.cfg, s.health.gate = &s.cfg, gate
	return s, nil
}

// Gate returns the gate through which requests enter.
func (s *Supervisor) Gate() *Gate { return s.gate }

// Reports returns the status of the instance, for those who set parts of it.
func (s *Supervisor) Reports() *Reports { return s.reports }

// Status returns the present status. It never blocks; each call takes a number.
func (s *Supervisor) Status() api.InstanceStatus { return s.reports.read() }

// Run starts the runtime and blocks until a Stop or Leave is done, or ctx ends, which kills the runtime at once. When Run returns the
// runtime has ended, except after Leave.
func (s *Supervisor) Run(ctx context.Context) error {
	defer close(s.done)
	if s.cfg.Adopt != nil {
		s.adoptRuntime()
	}
	cancelled := ctx.Done()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		for s.step() {
		}
		if s.phase == off && s.want.state == api.Gone && s.op == nil {
			break
		}
		timer.Reset(s.untilNext())
		var idle, movable <-chan struct{}
		if s.phase == draining {
			idle = s.idle
			if s.moves {
				movable = s.gate.movable()
			}
		}
		select {
		case c := <-s.callers.calls:
			s.takeCall(c)
		case c := <-s.callers.leaves:
			s.forgetCaller(c)
		case r := <-s.results:
			s.finishOperation(r)
		case note := <-s.notes:
			note(s)
		case <-s.reports.changed:
			s.saveNote()
			s.reports.send(s.reports.read())
		case <-s.gate.lost:
			s.checkUnreachable()
		case m := <-s.meter.measured:
			s.meter.take(m, &s.proc, s.phase)
		case <-s.proc.exited():
			s.proc.poll()
		case <-idle:
			s.finishDrain()
		case <-movable:
			s.moveRequests()
		case <-timer.C:
			s.handleDeadline(time.Now())
		case <-cancelled:
			cancelled = nil
			s.killRuntime()
		}
	}
	s.meter.finish()
	if s.leaving {
		s.callers.answer(api.Gone, nil)
		return nil
	}
	s.enterState(api.Gone, "")
	s.answerCallers()
	return nil
}

// killRuntime kills the runtime at once.
func (s *Supervisor) killRuntime() {
	s.hard, s.leaving = true, false
	s.want, s.drainUntil = goal{state: api.Gone}, time.Now()
	s.callers.answer(api.Asleep, refusal(api.Gone, false))
	s.callers.answer(api.Awake, refusal(api.Gone, false))
	if s.proc.child != nil {
		s.proc.child.Kill()
	}
}

// untilNext returns the time to the earliest deadline.
func (s *Supervisor) untilNext() time.Duration {
	next := time.Now().Add(time.Hour)
	earlier := func(on bool, t time.Time) {
		if on && !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	earlier(s.reports.owed != nil, s.reports.owedUntil)
	earlier(s.phase == draining, s.drainUntil)
	earlier(s.mustStart(), s.restarts.retryAt)
	earlier(s.phase == awake && s.op == nil, s.health.probeAt)
	earlier(s.phase == awake, s.meter.next())
	earlier(s.phase == awake && s.op == nil, s.saved.at)
	return time.Until(next)
}

// handleDeadline handles a reached deadline. step makes a delayed start.
func (s *Supervisor) handleDeadline(now time.Time) {
	reached := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }
	switch {
	case s.reports.owed != nil && reached(s.reports.owedUntil):
		s.reports.pay()
	case s.phase == draining && reached(s.drainUntil):
		s.expireDrain()
	case s.phase == awake && s.op == nil && reached(s.health.probeAt):
		s.checkHealth()
	case s.phase == awake && s.op == nil && reached(s.saved.at):
		s.saveSnapshot()
	case s.phase == awake && reached(s.meter.next()):
		s.measureBusy()
	}
}
