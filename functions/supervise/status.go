package supervise

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// Reports holds the status and reports its changes. The exported methods do not block and are safe for many goroutines.
type Reports struct {
	gate    *Gate
	changed chan struct{} // from changeFromOutside; room for one
	out     func(api.InstanceStatus)

	// Only the owner uses these.
	owed      *api.InstanceStatus // a delayed report; nil: none
	owedUntil time.Time

	mu     sync.Mutex // guards status; Seq is assigned under it, so that it orders the statuses
	status api.InstanceStatus
}

func newReports(gate *Gate, first api.InstanceStatus, out func(api.InstanceStatus)) *Reports {
	return &Reports{gate: gate, changed: make(chan struct{}, 1), out: out, status: first}
}

func (r *Reports) read() api.InstanceStatus { return r.change(func(*api.InstanceStatus) {}) }

func (r *Reports) change(f func(*api.InstanceStatus)) api.InstanceStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.status)
	r.status.Seq++
	s := r.status
	s.Running, _ = r.gate.Running()
	return s
}

// changeFromOutside is change for other goroutines than the owner. f reports whether something changed.
func (r *Reports) changeFromOutside(f func(*api.InstanceStatus) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !f(&r.status) {
		return
	}
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// soon is how long the report of a wake is delayed. If the instance is awake before, only that is reported: a report's work, here and at
// its receiver, would slow so short a wake.
const soon = 5 * time.Millisecond

func (r *Reports) owe(report api.InstanceStatus) {
	r.owed, r.owedUntil = &report, time.Now().Add(soon)
}

func (r *Reports) send(status api.InstanceStatus) {
	r.pay()
	r.out(status)
}

func (r *Reports) pay() {
	if owed := r.owed; owed != nil {
		r.owed = nil
		r.out(*owed)
	}
}

func (r *Reports) noProcess() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.PID, r.status.Memory = 0, api.Memory{}
}

// firstSeq is above the numbers of earlier processes of the instance.
func firstSeq(now time.Time) uint64 { return uint64(now.UnixMicro()) }

// setAdapters replaces slices and never changes them.
func setAdapters(st *api.InstanceStatus, loaded, standby []api.ModelName) bool {
	if slices.Equal(st.Adapters, loaded) && slices.Equal(st.Standby, standby) {
		return false
	}
	st.Adapters, st.Standby = slices.Clone(loaded), slices.Clone(standby)
	return true
}

func (r *Reports) adapters() (loaded, standby []api.ModelName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status.Adapters, r.status.Standby
}

// SetAdapters sets the loaded adapters and those on standby. It may be called inside Ready. They outlive a sleep and a restart: Ready
// loads them again.
func (r *Reports) SetAdapters(loaded, standby []api.ModelName) {
	r.changeFromOutside(func(st *api.InstanceStatus) bool { return setAdapters(st, loaded, standby) })
}

// SetModel sets the description of the model.
func (r *Reports) SetModel(m api.ModelFacts) {
	if m.Details.Families == nil {
		m.Details.Families = []string{} // [] for clients, not null
	}
	r.changeFromOutside(func(st *api.InstanceStatus) bool {
		st.Model = &m // replaced, never changed
		return true
	})
}

// SetLoad sets the runtime's load, unless it is no longer awake.
func (r *Reports) SetLoad(l api.Load) {
	r.changeFromOutside(func(st *api.InstanceStatus) bool {
		if st.State != api.Awake && st.State != api.Draining {
			return false
		}
		st.Load = &l // replaced, never changed: readers share it
		return true
	})
}

// SetSnapshot sets the state of the function's snapshot.
func (r *Reports) SetSnapshot(now api.Snapshot) {
	r.changeFromOutside(func(st *api.InstanceStatus) bool {
		st.Snapshot = &now
		return true
	})
}

// SetEndpoint sets the instance's address, for a control plane that is found late. The next report carries it.
func (r *Reports) SetEndpoint(at api.Endpoint) {
	r.change(func(st *api.InstanceStatus) { st.Endpoint = at })
}

func (m *machine) keptLoad(state api.State) *api.Load {
	if k, can := m.cfg.Runtime.(runtime.Keeper); can && state == api.Asleep && m.proc.pid() > 0 {
		if kept := k.Kept(); kept > 0 {
			return &api.Load{Cached: kept, CacheKnown: true}
		}
	}
	return nil
}

func (s *Supervisor) enterState(state api.State, stage string) {
	report := s.setState(state, stage)
	s.saveNote()
	s.reports.send(report)
}

// The caller must send setState's report next.
func (s *Supervisor) setState(state api.State, stage string) api.InstanceStatus {
	level := api.LevelAwake
	if state == api.Asleep {
		level = s.proc.level
	}
	pid := s.proc.pid()
	if state != api.Awake {
		s.idle = s.gate.shut(refusal(state, s.restarts.message != ""), s.expected(state))
	}
	s.state = state
	s.cfg.Logger.Debug("state", "state", state, "level", level, "stage", stage, "pid", pid)
	return s.reports.change(func(st *api.InstanceStatus) {
		if st.State != state || st.Level != level {
			st.Since = time.Now()
		}
		if state != api.Awake && state != api.Draining {
			st.Load = s.keptLoad(state)
		}
		s.meter.unmeasured(st, state, level, &s.proc)
		st.Devices = s.cfg.Status.Devices
		if s.suspension.moved {
			st.Devices = s.suspension.devices
		}
		if level == api.Suspended && s.suspension.movable {
			st.Devices = nil
		}
		st.Suspends, st.NoSuspend = s.suspension.works, s.suspension.never
		st.State, st.Level, st.Stage, st.Message, st.PID = state, level, stage, cmp.Or(s.restarts.message, s.without), pid
		st.NoRoom = s.restarts.noRoom && state == api.Unhealthy
		st.Restarts, st.Progress, st.GaveUp = s.restarts.count, 0, s.restarts.gaveUp && state == api.Unhealthy
		st.LoadTime, st.WakeTime, st.SleepTime = s.took.load, s.took.wake, s.took.sleep
		st.Steps, st.StepsSpan = s.coming.steps, s.coming.span
		st.CanaryMismatches = s.canary.mismatches
	})
}

func (s *Supervisor) noteEpoch(epoch uint64) {
	if epoch <= s.epoch {
		return
	}
	s.epoch = epoch
	s.reports.change(func(st *api.InstanceStatus) { st.Epoch = epoch })
	s.saveNote()
}

// coming is the start or wake under way, and the steps of the last one that succeeded.
type coming struct {
	since   time.Time
	startup *runtime.Startup
	trace   api.Trace
	steps   []api.Step
	span    string
}

func (c *coming) causedBy(t api.Trace) {
	if c.startup == nil && !t.Zero() {
		c.trace = t
	}
}

func (c *coming) begin(step string) {
	c.since = time.Now()
	c.step(step)
}

// step begins a step. A start after a fetch continues the fetch's record.
func (c *coming) step(step string) {
	if c.startup == nil {
		c.startup = runtime.NewStartup()
	}
	c.startup.Step(step)
}

func (c *coming) failed() { c.startup = nil }

func (c *coming) cameUp() {
	c.steps, c.span = nil, ""
	if c.startup != nil {
		c.steps, c.span = c.startup.End(), c.trace.Span
	}
	c.startup, c.trace = nil, api.Trace{}
}

const unknownWait = 10 * time.Second

// expected returns when the gate will be open, estimated from past starts and wakes:
//
//  1. starting: the time of the last start, or wake, counted from the beginning of this one;
//  2. unhealthy: the time of a start, from the next attempt; without a planned one, from
//     the moment that a caller asks for it;
//  3. asleep: the time of a wake;
//  4. draining towards a sleep: the time of the sleep and a wake; towards the end: never.
func (m *machine) expected(state api.State) reopening {
	load, wake := m.took.load, m.took.toWake()
	switch state {
	case api.Starting: // 1.
		took := load
		if m.phase == waking || m.proc.stopped {
			took = wake
		}
		if took == 0 {
			return reopening{after: unknownWait}
		}
		return reopening{at: m.coming.since, after: took}
	case api.Unhealthy: // 2.
		back := reopening{after: cmp.Or(load, unknownWait)}
		if !m.restarts.gaveUp {
			back.at = m.restarts.retryAt
		}
		return back
	case api.Asleep: // 3.
		return reopening{after: cmp.Or(wake, unknownWait)}
	case api.Draining: // 4.
		if m.leaving {
			return reopening{after: time.Second} // another worker takes over
		}
		if m.want.state == api.Asleep {
			return reopening{after: m.took.sleep + cmp.Or(wake, unknownWait)}
		}
	}
	return reopening{}
}

func (m *machine) expectedFetching(share float64, now time.Time) reopening {
	rest := unknownWait
	if share > 0 {
		rest = time.Duration(float64(now.Sub(m.coming.since)) * (1 - share) / share)
	}
	return reopening{at: now, after: rest + m.took.load}
}
