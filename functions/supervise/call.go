package supervise

import (
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// goal is a wanted or present state of the runtime.
type goal struct {
	state api.State // Awake, Asleep or Gone
	level api.Level // of Asleep
}

// call is a call of the control plane that waits for its goal.
type call struct {
	goal  goal
	grant api.Grant     // of a wake
	trace api.Trace     // of a wake
	epoch uint64        // of a wake or sleep
	drain time.Duration // of a sleep or stop
	move  bool          // of a sleep or stop: see machine.moves
	leave bool          // of a stop: the runtime goes on
	fence bool          // only the epoch counts
	// answer receives nil or the refusal once, from the owner. It has room for one, so that the owner never waits for a caller that
	// left.
	answer chan error
}

// takeCall refuses a call or makes its goal the wanted state.
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

// check refuses: 1. anything after a stop; 2. malformed calls; 3. calls with an older epoch than one seen; 4. a sleep that the runtime
// can't do. It does not compare a grant's expiry with our clock, which may be wrong: for safety an older epoch suffices.
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

// checkSidecarSleep refuses a sleep that would need the process to stop.
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

// forgetCaller forgets a caller. A drain is given up if no other caller waits for it.
func (s *Supervisor) forgetCaller(c *call) {
	s.callers.remove(c)
	if s.want.state == api.Asleep && (s.phase == awake || s.phase == draining) && !s.callers.has(api.Asleep) {
		s.want = goal{state: api.Awake}
	}
}

// answerCallers answers the callers whose goal is reached or was overtaken.
func (s *Supervisor) answerCallers() { s.callers.settle(goal{s.state, s.proc.depth()}, s.want) }
