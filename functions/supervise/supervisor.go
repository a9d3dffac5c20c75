package supervise

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/internal/fair"
)

// phase is the owner's state, finer than [api.State].
type phase int

const (
	off      phase = iota
	fetching       // no process yet
	starting       // a process that has not generated yet
	awake
	draining
	sleeping
	asleep
	waking
	ending
)

// machine is the state of the runtime and what is wanted. Its methods only read it.
type machine struct {
	cfg        Config
	phase      phase
	state      api.State // as last reported
	want       goal
	epoch      uint64 // the highest seen
	drainUntil time.Time
	moves      bool   // the drain ends movable requests once no others are left
	leaving    bool   // the runtime is left to the next supervisor
	hard       bool   // no SIGTERM first
	without    string // the option that the runtime does without; empty: none

	proc     proc
	coming   coming
	took     took
	restarts restarts
	canary   canary

	suspension suspension
	saved      saved
}

// Supervisor keeps one runtime in its wanted state. Only Run's goroutine may use its fields, but for the gate, the reports and the
// channels.
type Supervisor struct {
	machine
	callers
	gate *Gate

	results chan result            // from the operation under way; unbuffered; never closed
	notes   chan func(*Supervisor) // the operation's, run by the owner; unbuffered; never closed

	reports *Reports
	health  health
	meter   *meter
	mover   runtime.Mover
	op      *operation
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

// Gate returns the gate for requests.
func (s *Supervisor) Gate() *Gate { return s.gate }

// Reports returns the instance's status, to set parts of it.
func (s *Supervisor) Reports() *Reports { return s.reports }

// Status returns the present status. It never blocks; each call takes a number.
func (s *Supervisor) Status() api.InstanceStatus { return s.reports.read() }

// Run starts the runtime and blocks until a Stop or Leave is done, or ctx ends, which kills the runtime at once. When it returns the
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

func (s *Supervisor) killRuntime() {
	s.hard, s.leaving = true, false
	s.want, s.drainUntil = goal{state: api.Gone}, time.Now()
	s.callers.answer(api.Asleep, refusal(api.Gone, false))
	s.callers.answer(api.Awake, refusal(api.Gone, false))
	if s.proc.child != nil {
		s.proc.child.Kill()
	}
}

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

// handleDeadline leaves a delayed start to step.
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

// Child is the runtime's process.
type Child = process.Child

// Suspender suspends a process with its descendants; [process.Suspender] is one.
type Suspender interface {
	Suspend(ctx context.Context, pid int) (moves bool, err error)
	Restore(ctx context.Context, pid int, old, now []api.DeviceID) error
}

// Config configures a [Supervisor]. A nil function is not called.
type Config struct {
	// Status has the fixed fields of the instance's reports (Instance, Function, Endpoint, Devices, Concurrency), the first Epoch, and the
	// Seq of the previous process's last report, 0 for none.
	Status api.InstanceStatus
	// Asleep begins asleep: no process is started before the first wake.
	Asleep  bool
	Runtime runtime.Runtime
	// Model is loaded if Prepare is nil.
	Model string
	// Prepare makes the model ready before each start, and returns the path that the runtime loads. report takes the finished share, 0 to
	// 1, or 0 while it is unknown. Prepare must end when ctx does.
	Prepare func(ctx context.Context, report func(share float64)) (model string, err error)
	Canary  bool
	// Ready is called after the first token of each start and wake, before requests are admitted. An error fails the start.
	Ready func(ctx context.Context, e api.Endpoint) error
	// Adapters returns the loaded adapters, and since when each is known.
	Adapters func() map[api.ModelName]time.Time
	// Early reports that Ready will have nothing to do after a wake, so that a request may run beside the canary, see [Gate.EnterBehind].
	Early func() bool
	// Start starts a process; nil: [process.StartChild].
	Start func(process.Spec) (Child, error)
	// Adopt is called once, when Run begins. It returns a runtime that another supervisor of this instance has left: its process (nil:
	// none), its launch (only Endpoint and Attach count) and that supervisor's last note.
	Adopt func() (Child, runtime.Launch, Note, bool)
	// Save receives a note for the next supervisor at each change, before the announced operation is done. It must not block for long.
	Save func(Note)
	// SleepLevel is the runtime's own sleep below a suspension; 0: level 1.
	SleepLevel api.Level
	// Suspender takes the runtime off its GPUs. Nil: nothing can, and Status.NoSuspend says why if there are GPUs.
	Suspender Suspender
	// Moves says that the runtime sees the GPUs of the whole machine, and may be restored onto others.
	Moves     bool
	Snapshots Snapshots
	// GPUs measures the memory that a process and its descendants hold of the GPU of which they hold most. found is false if it sees none
	// of them. It returns soon after ctx ends.
	GPUs func(ctx context.Context, pid int) (held api.Bytes, found bool, err error)
	Log  *process.Log
	// Report receives each change of state in order. It must not block.
	Report func(api.InstanceStatus)
	// Trace is the trace that the instance was started for; zero: none.
	Trace api.Trace
	// Leave is called before a runtime that has answered sleeps or is ended, when no request is in it. It must end soon, and with ctx.
	Leave func(ctx context.Context, e api.Endpoint)
	// Closed is called when a runtime's process has ended: connections to it are dead.
	Closed func()
	// StartTimeout bounds a start, to the first token; 0: 10 min.
	StartTimeout time.Duration
	// WakeTimeout bounds a wake, to the first token; 0: 1 min.
	WakeTimeout time.Duration
	// StopGrace is the time between SIGTERM and SIGKILL; 0: 5 s.
	StopGrace time.Duration
	// ProbeInterval is the time between health checks. A runtime is probed if it is idle, or if no part of an answer came in this time. 0:
	// 30 s, negative: none.
	ProbeInterval time.Duration
	// ProbeTimeout bounds a health probe; 0: 30 s.
	ProbeTimeout time.Duration
	Logger       *slog.Logger
}

func (c *Config) defaults() error {
	switch {
	case c.Runtime == nil || c.Log == nil:
		return errors.New("supervise: Config needs Runtime and Log")
	case c.Status.Concurrency < 1:
		return errors.New("supervise: Config.Status.Concurrency is less than 1")
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.StartTimeout, 10 * time.Minute}, {&c.WakeTimeout, time.Minute},
		{&c.StopGrace, 5 * time.Second}, {&c.ProbeInterval, 30 * time.Second}, {&c.ProbeTimeout, 30 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.Start == nil {
		c.Start = process.StartChild
	}
	if c.Report == nil {
		c.Report = func(api.InstanceStatus) {}
	}
	if c.Adapters == nil {
		c.Adapters = func() map[api.ModelName]time.Time { return nil }
	}
	if c.Save == nil {
		c.Save = func(Note) {}
	}
	if c.Closed == nil {
		c.Closed = func() {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

func (g *Gate) slots(t control.Turn) int { return min(max(t.Sequences, 1), g.limit) }

// g.mu is held.
func (g *Gate) below() func(*fair.Item) bool {
	share := g.shares.Share(g.limit)
	return func(i *fair.Item) bool { return g.shares.Slots(i.Client) < share }
}

// first returns the request whose turn it is. One must wait. g.mu is held.
func (g *Gate) first() *turn {
	return g.turns.FirstOf(func(*fair.Item) bool { return true }, g.below(), false).Of.(*turn)
}

// GivesWay reports whether a running request is to give its slot to a waiting one: its client has more than its share, and one of a
// client below its share has waited for [fair.GivesWayAfter]. begins is how long the running one took to begin its answer. Each that
// waits is given one slot.
func (g *Gate) GivesWay(t control.Turn, begins time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shares.Slots(client(t)) <= g.shares.Share(g.limit) {
		return false
	}
	below := g.below()
	i := g.turns.FirstOf(func(i *fair.Item) bool {
		w := i.Of.(*turn)
		return !w.given && w.Priority >= t.Priority && below(i) && time.Since(w.entered) >= fair.GivesWayAfter(begins)
	}, nil, true)
	if i != nil {
		i.Of.(*turn).given = true
	}
	return i != nil
}
