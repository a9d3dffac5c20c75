package supervise

import (
	"context"
	"time"

	"github.com/rouse-dev/rouse/api"
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

// Supervisor keeps one runtime in its wanted state, see the package comment. Each of its parts owns its state. Other goroutines than
// Run's may use only the gate, the reports and the channels.
type Supervisor struct {
	cfg  Config
	gate *Gate

	results chan result   // from the operation under way; unbuffered; never closed
	notes   chan func()   // the start operation's reports, run by the owner; unbuffered; never closed
	shares  chan float64  // the progress, from the operation fetch; unbuffered; never closed
	done    chan struct{} // closed by Run at its end

	callers  callers
	reports  *reports
	proc     proc
	coming   coming
	took     took
	restarts restarts
	health   health
	canary   canary
	meter    *meter

	phase      phase
	state      api.State // as last reported
	want       goal
	epoch      uint64          // the highest that was seen
	op         *operation      // nil: none
	idle       <-chan struct{} // closed when a shut gate has no requests left
	drainUntil time.Time       // zero: no bound
	moves      bool            // the drain ends movable requests once no others are left
	leaving    bool            // the runtime is left to the next supervisor
	hard       bool            // end at once, no SIGTERM first
	without    string          // the option that the runtime does without; empty: none
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
	return &Supervisor{
		cfg: cfg, gate: gate, reports: reports, callers: newCallers(), meter: newMeter(cfg.GPUs, reports),
		results: make(chan result), notes: make(chan func()), shares: make(chan float64), done: make(chan struct{}),
		want: want, epoch: st.Epoch, state: api.Starting, coming: coming{trace: cfg.Trace},
	}, nil
}

// Gate returns the gate through which requests enter.
func (s *Supervisor) Gate() *Gate { return s.gate }

// Status returns the present status. It never blocks; each call takes a number.
func (s *Supervisor) Status() api.InstanceStatus { return s.reports.read() }

// Run starts the runtime and blocks until a Stop or Leave is done, or ctx ends, which kills the runtime at once. When Run returns the
// runtime has ended, except after Leave.
func (s *Supervisor) Run(ctx context.Context) error {
	defer close(s.done)
	if s.cfg.Adopt != nil {
		s.adopt()
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
			s.take(c)
		case c := <-s.callers.leaves:
			s.left(c)
		case r := <-s.results:
			s.finish(r)
		case note := <-s.notes:
			note()
		case share := <-s.shares:
			s.noteShare(share)
		case <-s.reports.changed:
			s.save()
			s.reports.send(s.reports.read())
		case <-s.gate.lost:
			s.checkNow()
		case m := <-s.meter.measured:
			s.meter.take(m, &s.proc, s.phase)
		case <-s.proc.exited():
			s.proc.poll()
		case <-idle:
			s.drained()
		case <-movable:
			s.move()
		case <-timer.C:
			s.due(time.Now())
		case <-cancelled:
			cancelled = nil
			s.abandon()
		}
	}
	s.conclude()
	return nil
}

// conclude waits for measurements, and reports that the instance is gone, or answers the Leave.
func (s *Supervisor) conclude() {
	s.meter.finish()
	if s.leaving {
		s.callers.answer(api.Gone, nil)
		return
	}
	s.enter(api.Gone, "")
	s.settle()
}

// abandon kills the runtime at once.
func (s *Supervisor) abandon() {
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
	earlier(s.comes(), s.restarts.retryAt)
	earlier(s.phase == awake && s.op == nil, s.health.probeAt)
	earlier(s.phase == awake, s.meter.next())
	return time.Until(next)
}

// due handles a reached deadline. step makes a delayed start.
func (s *Supervisor) due(now time.Time) {
	reached := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }
	switch {
	case s.reports.owed != nil && reached(s.reports.owedUntil):
		s.reports.pay()
	case s.phase == draining && reached(s.drainUntil):
		s.drainExpired()
	case s.phase == awake && s.op == nil && reached(s.health.probeAt):
		s.checkHealth()
	case s.phase == awake && reached(s.meter.next()):
		s.measureBusy()
	}
}
