package supervise

import (
	"context"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// phase is where the owner is; it is finer than [api.State].
type phase int

const (
	off      phase = iota // no process
	fetching              // no process yet; operation fetch
	starting              // a process that has not generated yet; operation start
	awake                 // the gate is open; perhaps operation probe
	draining              // the gate is shut, requests run
	falling               // operation sleep
	asleep                // the process sleeps
	rising                // operation wake
	ending                // operation end
)

// Supervisor keeps one runtime, see the package comment.
type Supervisor struct {
	cfg  Config
	gate *Gate
	book *book

	calls    chan *call       // from callers to the owner; unbuffered; never closed
	leaves   chan *call       // from callers who stop waiting; unbuffered; never closed
	results  chan result      // from the operation under way; unbuffered; never closed
	notes    chan string      // the stage, from the operation start; unbuffered; never closed
	shares   chan float64     // the progress, from the operation fetch; unbuffered; never closed
	changed  chan struct{}    // from SetAdapters and SetLoad; one place: a word that there is something to report
	measured chan measurement // from measure; unbuffered; never closed
	done     chan struct{}    // closed by Run at its end

	// All that follows is Run's own.
	phase   phase
	state   api.State // as last reported
	want    goal
	waiting []*call
	epoch   uint64

	child    Child // nil while off
	launch   runtime.Launch
	exitSeen bool            // the child has ended and that is not dealt with
	level    api.Level       // of the sleep, or of the sleep that a wake ends
	stopped  bool            // asleep without a process: the next start is a wake
	attached bool            // the runtime is a sidecar, as the last launch said
	wasAwake bool            // since the last start
	leaving  bool            // the runtime is left to whoever adopts it
	op       *operation      // nil: none
	idle     <-chan struct{} // closed when a shut gate has no requests left

	drainUntil time.Time // zero: no bound
	retryAt    time.Time // when a start may be tried again
	probeAt    time.Time // of the next health probe; zero: none
	measureAt  time.Time // of the next measurement; zero: none
	awakeSince time.Time

	owed      *api.InstanceStatus // a report that is put off; nil: none
	owedUntil time.Time

	comingSince time.Time        // when the start or wake began
	startup     *runtime.Startup // of the start or wake under way; nil: none
	trace       api.Trace        // that it is for; zero: none
	steps       []api.Step
	stepsSpan   string

	backoff  time.Duration // the last pause before a restart
	failures int           // starts and wakes that failed in a row
	gaveUp   bool          // too many of them
	message  string        // why it is unhealthy
	restarts int
	looked   traffic // at the last look at its health
	silent   int     // busy probes in a row that were not answered

	canary     *runtime.Answer // what the runtime should answer after a sleep; nil: not asked yet, unknown: nothing is compared
	mismatches int             // wakes after which it did not
	suspect    bool            // a sidecar that did not: the canary decides whether it is awake

	loadTime, wakeTime, sleepTime time.Duration
	hard                          bool // end at once, no SIGTERM first

	measuring       int                // measurements under way
	again           bool               // others are to follow
	cut             context.CancelFunc // a measurement, where somebody is asked for it
	mute            bool               // nobody answers for GPUs
	visible, hidden Child              // the last one that was seen to hold something of GPUs, and that was not
	noRoom          bool               // the last start or wake failed for want of GPU memory
}

// New makes a supervisor; it starts nothing until Run.
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
	return &Supervisor{
		cfg: cfg, gate: gate, book: &book{gate: gate, status: st},
		calls: make(chan *call), leaves: make(chan *call), results: make(chan result), notes: make(chan string),
		shares: make(chan float64), changed: make(chan struct{}, 1), measured: make(chan measurement), done: make(chan struct{}),
		want: want, epoch: st.Epoch, state: api.Starting, trace: cfg.Trace,
	}, nil
}

// Gate is where requests enter.
func (s *Supervisor) Gate() *Gate { return s.gate }

// Status is the status now. It never blocks; each call is a report of its own.
func (s *Supervisor) Status() api.InstanceStatus { return s.book.read() }

// Run starts the runtime and keeps it until a Stop is done, or until ctx ends,
// when it kills the runtime at once. When it returns nothing of it is left,
// unless it was to Leave it.
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
		var exited <-chan struct{}
		if s.child != nil && !s.exitSeen {
			exited = s.child.Exited()
		}
		var idle <-chan struct{}
		if s.phase == draining {
			idle = s.idle
		}
		select {
		case c := <-s.calls:
			s.take(c)
		case c := <-s.leaves:
			s.left(c)
		case r := <-s.results:
			s.finish(r)
		case stage := <-s.notes:
			s.enter(api.Starting, stage)
		case share := <-s.shares:
			s.noteShare(share)
		case <-s.changed:
			s.save()
			s.report(s.book.read())
		case <-s.gate.lost:
			s.lookNow()
		case m := <-s.measured:
			s.noteMemory(m)
		case <-exited:
			s.exitSeen = true
		case <-idle:
			s.drained()
		case <-timer.C:
			s.due(time.Now())
		case <-cancelled:
			cancelled = nil
			s.abandon()
		}
	}
	for s.measuring > 0 {
		s.cut()
		s.noteMemory(<-s.measured)
	}
	if s.leaving {
		s.answer(api.Gone, nil)
		return nil
	}
	s.enter(api.Gone, "")
	s.settle()
	return nil
}

// abandon ends the runtime with no regard to what it does.
func (s *Supervisor) abandon() {
	s.hard, s.leaving = true, false
	s.want, s.drainUntil = goal{state: api.Gone}, time.Now()
	s.answer(api.Asleep, refusal(api.Gone, false))
	s.answer(api.Awake, refusal(api.Gone, false))
	if s.child != nil {
		s.child.Kill()
	}
}

// untilNext is the time to the earliest deadline.
func (s *Supervisor) untilNext() time.Duration {
	next := time.Now().Add(time.Hour)
	earlier := func(on bool, t time.Time) {
		if on && !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	earlier(s.owed != nil, s.owedUntil)
	earlier(s.phase == draining, s.drainUntil)
	earlier(s.comes(), s.retryAt)
	earlier(s.phase == awake && s.op == nil, s.probeAt)
	earlier(s.phase == awake && s.measuring == 0, s.measureAt)
	return time.Until(next)
}

// due does what a deadline asks for. A start that was put off is made by step.
func (s *Supervisor) due(now time.Time) {
	reached := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }
	switch {
	case s.owed != nil && reached(s.owedUntil):
		s.pay()
	case s.phase == draining && reached(s.drainUntil):
		s.drainExpired()
	case s.phase == awake && s.op == nil && reached(s.probeAt):
		s.health()
	case s.phase == awake && s.measuring == 0 && reached(s.measureAt):
		s.measureBusy(now)
	}
}
