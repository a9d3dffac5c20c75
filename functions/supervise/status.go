package supervise

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// Reports are the status, readable from any goroutine, and its reports. The exported methods do not block and are safe for many
// goroutines.
type Reports struct {
	gate    *Gate
	changed chan struct{}            // from SetAdapters and SetLoad; room for one, as a signal that there is something to report
	out     func(api.InstanceStatus) // Config.Report

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

// changeFromOutside is change for other goroutines than the owner, which is signalled to report. f reports whether something changed.
func (r *Reports) changeFromOutside(f func(*api.InstanceStatus) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !f(&r.status) {
		return
	}
	select {
	case r.changed <- struct{}{}:
	default: // the pending report covers it
	}
}

// soon is how long the report of a wake is delayed. If the instance is awake before, only that is reported: the work that a report
// causes, here and at its receiver, would slow so short a wake.
const soon = 5 * time.Millisecond

// owe delays a report.
func (r *Reports) owe(report api.InstanceStatus) {
	r.owed, r.owedUntil = &report, time.Now().Add(soon)
}

// send reports, after a delayed report.
func (r *Reports) send(status api.InstanceStatus) {
	r.pay()
	r.out(status)
}

// pay sends the delayed report.
func (r *Reports) pay() {
	if owed := r.owed; owed != nil {
		r.owed = nil
		r.out(*owed)
	}
}

// noProcess clears the process's fields; the next report shows it.
func (r *Reports) noProcess() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.PID, r.status.Memory = 0, api.Memory{}
}

// firstSeq returns a first number that is above those of earlier processes of the instance.
func firstSeq(now time.Time) uint64 { return uint64(now.UnixMicro()) }

// setAdapters reports whether the lists changed. It replaces slices and never changes them.
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

// SetAdapters sets the loaded adapters and those on standby; a change is reported. It may be called inside Ready. They outlive a sleep
// and a restart: Ready loads them again.
func (r *Reports) SetAdapters(loaded, standby []api.ModelName) {
	r.changeFromOutside(func(st *api.InstanceStatus) bool { return setAdapters(st, loaded, standby) })
}

// SetModel sets the description of the model, which is reported.
func (r *Reports) SetModel(m api.ModelFacts) {
	if m.Details.Families == nil {
		m.Details.Families = []string{} // a list for clients
	}
	r.changeFromOutside(func(st *api.InstanceStatus) bool {
		st.Model = &m // replaced, never changed
		return true
	})
}

// SetLoad sets the runtime's load, which is reported. The load is discarded when the runtime is no longer awake.
func (r *Reports) SetLoad(l api.Load) {
	r.changeFromOutside(func(st *api.InstanceStatus) bool {
		if st.State != api.Awake && st.State != api.Draining {
			return false
		}
		st.Load = &l // replaced, never changed
		return true
	})
}

// SetSnapshot sets the state of the function's snapshot, which is reported.
func (r *Reports) SetSnapshot(now api.Snapshot) {
	r.changeFromOutside(func(st *api.InstanceStatus) bool {
		st.Snapshot = &now // replaced, never changed
		return true
	})
}

// SetEndpoint sets the instance's address, for a control plane that is found late. The next report carries it.
func (r *Reports) SetEndpoint(at api.Endpoint) {
	r.change(func(st *api.InstanceStatus) { st.Endpoint = at })
}

// keptLoad returns the load of an instance that enters a state without requests: its prefix cache, if it sleeps and keeps any of it.
func (m *machine) keptLoad(state api.State) *api.Load {
	if k, can := m.cfg.Runtime.(runtime.Keeper); can && state == api.Asleep && m.proc.pid() > 0 {
		if kept := k.Kept(); kept > 0 {
			return &api.Load{Cached: kept, CacheKnown: true}
		}
	}
	return nil
}

// enterState changes the state, saves a note and reports it.
func (s *Supervisor) enterState(state api.State, stage string) {
	report := s.setState(state, stage)
	s.saveNote()
	s.reports.send(report)
}

// setState changes the state and returns its report, which the caller must send next.
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
			st.Devices = nil // bound to none
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

// coming is the start or wake under way, and the steps of the last successful one.
type coming struct {
	since   time.Time        // when it began
	startup *runtime.Startup // nil: none is under way
	trace   api.Trace        // that it is for; zero: none
	steps   []api.Step
	span    string // of the trace that the steps belong to
}

// causedBy records the trace of a wake that came before a start.
func (c *coming) causedBy(t api.Trace) {
	if c.startup == nil && !t.Zero() {
		c.trace = t
	}
}

// begin begins a start or wake, or a part of one with its own time, by its first step.
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

// failed ends it without a record.
func (c *coming) failed() { c.startup = nil }

// cameUp ends it successfully, and clears its trace.
func (c *coming) cameUp() {
	c.steps, c.span = nil, ""
	if c.startup != nil {
		c.steps, c.span = c.startup.End(), c.trace.Span
	}
	c.startup, c.trace = nil, api.Trace{}
}

// unknownWait is the Retry-After for a start that was never measured.
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

// expectedFetching returns when the gate will be open if the model continues to arrive at its present rate.
func (m *machine) expectedFetching(share float64, now time.Time) reopening {
	rest := unknownWait
	if share > 0 {
		rest = time.Duration(float64(now.Sub(m.coming.since)) * (1 - share) / share)
	}
	return reopening{at: now, after: rest + m.took.load}
}
