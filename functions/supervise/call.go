package supervise

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

type goal struct {
	state api.State // Awake, Asleep or Gone
	level api.Level // of Asleep
}

type call struct {
	goal  goal
	grant api.Grant
	trace api.Trace
	epoch uint64        // of a wake or sleep
	drain time.Duration // of a sleep or stop
	move  bool          // of a sleep or stop: see machine.moves
	leave bool          // of a stop: the runtime runs on
	fence bool          // only the epoch counts
	// receives nil or the refusal once; room for one: the caller may have left
	answer chan error
}

func (s *Supervisor) takeCall(c *call) {
	if err := s.check(c); err != nil {
		c.answer <- err
		return
	}
	s.noteEpoch(c.epoch)
	if c.fence {
		c.answer <- nil
		return
	}
	switch c.goal.state {
	case api.Awake:
		s.takeWake(c)
	case api.Asleep:
		s.takeSleep(c)
	case api.Gone:
		s.takeStop(c)
	}
}

// check refuses: 1. anything after a stop; 2. malformed calls; 3. epochs below one seen; 4. a sleep that the runtime can't do. A grant's expiry
// is not compared with our clock, which may be wrong.
func (m *machine) check(c *call) error {
	switch {
	case c.goal.state == api.Gone:
		return nil
	case m.want.state == api.Gone: // 1.
		return refusal(api.Gone, false)
	case c.goal.state == api.Asleep && (c.goal.level < api.Level1 || c.goal.level > api.Suspended): // 2.
		return api.BadRequest("level", "level is %d: want 1, 2 or 3", c.goal.level)
	case c.drain < 0:
		return api.BadRequest("drain", "drain is negative: want a duration, or 0")
	case c.goal.state == api.Awake && c.grant.Instance != "" && c.grant.Instance != m.cfg.Status.Instance:
		return stale("the grant is for instance %s, this is %s", c.grant.Instance, m.cfg.Status.Instance)
	case api.StaleEpoch(c.epoch, m.epoch): // 3.
		return stale("epoch %d is older than epoch %d, which this instance has seen", c.epoch, m.epoch)
	case c.goal.state == api.Awake:
		return m.checkMove(c.grant)
	case c.goal.level == api.Suspended: // 4.
		return m.checkSuspend()
	case c.goal.state == api.Asleep && m.proc.attached: // 4.
		return m.checkSidecarSleep(c.goal.level)
	}
	return nil
}

func (m *machine) checkSidecarSleep(level api.Level) error {
	switch traits := m.cfg.Runtime.Traits(); {
	case !traits.Sleeps:
		return api.Errorf(http.StatusConflict, api.CodeUnsupported, "the runtime is a sidecar that can't sleep in place, and its process is not ours to stop: "+
			"scale the function to zero instead, or use a runtime that sleeps")
	case m.state == api.Asleep && level > m.proc.level && !traits.Deepens:
		return api.Errorf(http.StatusConflict, api.CodeUnsupported, "the runtime is a sidecar that sleeps at level %d and can't go to level %d without a wake: wake it first", m.proc.level, level)
	}
	return nil
}

func stale(format string, args ...any) *api.Error {
	return api.Errorf(http.StatusConflict, api.CodeStaleEpoch, format, args...)
}

func (s *Supervisor) takeWake(c *call) {
	s.want, s.moves, s.suspension.onto = goal{state: api.Awake}, false, s.target(c.grant)
	s.coming.causedBy(c.trace)
	if s.phase == awake || s.phase == draining {
		s.callers.answer(api.Asleep, stale("a wake with epoch %d overtook the sleep", c.epoch))
	}
	if s.phase == awake {
		c.answer <- nil
		return
	}
	s.restarts.tryAnew()
	s.callers.add(c)
}

func (s *Supervisor) takeSleep(c *call) {
	if s.state == api.Asleep && c.goal.level <= s.proc.depth() {
		c.answer <- nil
		return
	}
	if s.want.state == api.Asleep {
		c.goal.level = max(c.goal.level, s.want.level)
	}
	s.want, s.moves = c.goal, c.move && s.mover != nil
	s.drainUntil = time.Time{}
	if c.drain > 0 {
		s.drainUntil = time.Now().Add(c.drain)
	}
	s.callers.add(c)
}

func (s *Supervisor) takeStop(c *call) {
	until := time.Now().Add(c.drain)
	if s.want.state != api.Gone || until.Before(s.drainUntil) {
		s.drainUntil = until
	}
	s.leaving = c.leave && (s.leaving || s.want.state != api.Gone)
	s.moves = c.move && s.mover != nil && !s.leaving
	s.want = goal{state: api.Gone}
	s.callers.answer(api.Asleep, refusal(api.Gone, false))
	s.callers.answer(api.Awake, refusal(api.Gone, false))
	s.callers.add(c)
}

func (s *Supervisor) forgetCaller(c *call) {
	s.callers.remove(c)
	if s.want.state == api.Asleep && (s.phase == awake || s.phase == draining) && !s.callers.has(api.Asleep) {
		s.want = goal{state: api.Awake}
	}
}

func (s *Supervisor) answerCallers() { s.callers.settle(goal{s.state, s.proc.depth()}, s.want) }

// callers are the calls that wait for their goal. The exported methods are safe for many goroutines; only the owner uses the others.
type callers struct {
	calls   chan *call    // to the owner; unbuffered; never closed
	leaves  chan *call    // from callers that stop waiting; unbuffered; never closed
	done    chan struct{} // closed by the owner at its end
	reports *Reports
	waiting []*call // only the owner uses it
}

func newCallers(reports *Reports) callers {
	return callers{calls: make(chan *call), leaves: make(chan *call), done: make(chan struct{}), reports: reports}
}

// Wake blocks until the runtime has generated a token, or three attempts have failed. Cancelling ctx does not stop the wake.
func (w *callers) Wake(ctx context.Context, g api.Grant) (api.InstanceStatus, error) {
	return w.submit(ctx, &call{goal: goal{state: api.Awake}, grant: g, epoch: g.Epoch, trace: api.TraceOf(ctx)})
}

// Sleep drains the runtime and puts it to sleep, or deepens its sleep. If requests outlast r.Drain, or ctx ends meanwhile, it stays awake
// (409 busy). With r.Move, a [runtime.Mover] ends its requests once all of them can continue at another instance.
func (w *callers) Sleep(ctx context.Context, r control.SleepRequest) (api.InstanceStatus, error) {
	return w.submit(ctx, &call{goal: goal{api.Asleep, r.Level}, epoch: r.Epoch, drain: r.Drain, move: r.Move})
}

// Fence refuses every wake and sleep with an epoch below r.Epoch from now on. Operations under way continue. The returned status was
// taken after that.
func (w *callers) Fence(ctx context.Context, r control.FenceRequest) (api.InstanceStatus, error) {
	return w.submit(ctx, &call{fence: true, epoch: r.Epoch})
}

// Stop drains the runtime and ends it, and with it Run. Requests that outlast r.Drain are cut; r.Move is as in Sleep. Cancelling ctx does
// not stop it.
func (w *callers) Stop(ctx context.Context, r control.StopRequest) (api.InstanceStatus, error) {
	return w.submit(ctx, &call{goal: goal{state: api.Gone}, drain: r.Drain, move: r.Move})
}

// Leave is Stop without r.Move, but leaves the runtime running for the next supervisor to adopt, and reports no state. A Stop overrides it.
func (w *callers) Leave(ctx context.Context, r control.StopRequest) (api.InstanceStatus, error) {
	return w.submit(ctx, &call{goal: goal{state: api.Gone}, drain: r.Drain, leave: true})
}

func (w *callers) submit(ctx context.Context, c *call) (api.InstanceStatus, error) {
	c.answer = make(chan error, 1)
	select {
	case w.calls <- c:
	case <-w.done:
		if c.goal.state == api.Gone {
			return w.reports.read(), nil
		}
		return w.reports.read(), refusal(api.Gone, false)
	case <-ctx.Done():
		return api.InstanceStatus{}, context.Cause(ctx)
	}
	select {
	case err := <-c.answer:
		return w.reports.read(), err
	case <-ctx.Done():
		select {
		case w.leaves <- c:
		case <-w.done:
		}
		return api.InstanceStatus{}, context.Cause(ctx)
	}
}

func (w *callers) add(c *call) { w.waiting = append(w.waiting, c) }

func (w *callers) remove(c *call) {
	w.waiting = slices.DeleteFunc(w.waiting, func(o *call) bool { return o == c })
}

func (w *callers) has(state api.State) bool {
	return slices.ContainsFunc(w.waiting, func(c *call) bool { return c.goal.state == state })
}

func (w *callers) answer(state api.State, err error) {
	w.waiting = slices.DeleteFunc(w.waiting, func(c *call) bool {
		if c.goal.state != state {
			return false
		}
		c.answer <- err
		return true
	})
}

// settle answers the calls whose goal is reached, and those that a newer one overtook.
func (w *callers) settle(is, wanted goal) {
	final := is.reaches(wanted)
	w.waiting = slices.DeleteFunc(w.waiting, func(c *call) bool {
		switch {
		case is.reaches(c.goal):
			c.answer <- nil
		case final && c.goal.state != api.Gone:
			c.answer <- stale("a newer call overtook this one: the instance is %s", is.state)
		default:
			return false
		}
		return true
	})
}

func (g goal) reaches(wanted goal) bool {
	return g.state == wanted.state && (g.state != api.Asleep || g.level >= wanted.level)
}
