package supervise

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// reports are the status as it can be read from any goroutine, and what is told of it.
type reports struct {
	gate    *Gate
	changed chan struct{}            // from SetAdapters and SetLoad; one place: a word that there is something to report
	out     func(api.InstanceStatus) // Config.Report

	// The owner's.
	owed      *api.InstanceStatus // a report that is put off; nil: none
	owedUntil time.Time

	mu     sync.Mutex // guards status; numbers are given out under it, so that they order what they number
	status api.InstanceStatus
}

func newReports(gate *Gate, first api.InstanceStatus, out func(api.InstanceStatus)) *reports {
	return &reports{gate: gate, changed: make(chan struct{}, 1), out: out, status: first}
}

// read returns the status, numbered as a report of its own.
func (r *reports) read() api.InstanceStatus { return r.change(func(*api.InstanceStatus) {}) }

// change changes the status and returns it, numbered.
func (r *reports) change(f func(*api.InstanceStatus)) api.InstanceStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.status)
	r.status.Seq++
	s := r.status
	s.Running, _ = r.gate.Running()
	return s
}

// changeFromOutside is change for who is not the owner, which is told to report it. f says whether it is news.
func (r *reports) changeFromOutside(f func(*api.InstanceStatus) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !f(&r.status) {
		return
	}
	select {
	case r.changed <- struct{}{}:
	default: // the report that is due says it all
	}
}

// soon is how long the report of a wake is put off: where the instance is awake before, its awakening is
// all that is told. What a report sets in motion, here and in whoever reads it, would
// only be in the way of so short a wake.
const soon = 5 * time.Millisecond

// owe puts a report off.
func (r *reports) owe(report api.InstanceStatus) {
	r.owed, r.owedUntil = &report, time.Now().Add(soon)
}

// send reports, after what was put off.
func (r *reports) send(status api.InstanceStatus) {
	r.pay()
	r.out(status)
}

// sendOnly reports, in place of what was put off.
func (r *reports) sendOnly(status api.InstanceStatus) {
	r.owed = nil
	r.out(status)
}

// pay reports what was put off.
func (r *reports) pay() {
	if owed := r.owed; owed != nil {
		r.owed = nil
		r.out(*owed)
	}
}

// noProcess forgets the process; the next report says so.
func (r *reports) noProcess() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.PID, r.status.Memory = 0, api.Memory{}
}

// firstSeq makes numbers grow over restarts of the instance's process too.
func firstSeq(now time.Time) uint64 { return uint64(now.UnixMicro()) }

// setAdapters says whether that is a change. What is set is replaced, never changed.
func setAdapters(st *api.InstanceStatus, loaded, standby []api.ModelName) bool {
	if slices.Equal(st.Adapters, loaded) && slices.Equal(st.Standby, standby) {
		return false
	}
	st.Adapters, st.Standby = slices.Clone(loaded), slices.Clone(standby)
	return true
}

func (r *reports) adapters() (loaded, standby []api.ModelName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status.Adapters, r.status.Standby
}

// SetAdapters says which adapters are loaded, and which are on standby; a change is reported. It does not
// block and may be called from anywhere, the hook Ready included. They outlive a
// sleep and a restart: Ready puts them back.
func (s *Supervisor) SetAdapters(loaded, standby []api.ModelName) {
	s.reports.changeFromOutside(func(st *api.InstanceStatus) bool { return setAdapters(st, loaded, standby) })
}

// SetLoad says what the runtime has to do, which is reported. It does not block and
// may be called from anywhere. It is forgotten when the runtime is no longer awake.
func (s *Supervisor) SetLoad(l api.Load) {
	s.reports.changeFromOutside(func(st *api.InstanceStatus) bool {
		if st.State != api.Awake && st.State != api.Draining {
			return false
		}
		st.Load = &l // replaced, never changed
		return true
	})
}

// Locate says where others reach the instance, for a control plane that is found
// late. It does not block and may be called from anywhere.
func (s *Supervisor) Locate(at api.Endpoint) {
	s.reports.changeFromOutside(func(st *api.InstanceStatus) bool {
		st.Endpoint = at
		return false // who is told learns it by the next report
	})
}

// keeps is the load of an instance that enters a state without requests: what it has in its prefix cache, if it sleeps and has kept any of it.
func (s *Supervisor) keeps(state api.State) *api.Load {
	if k, can := s.cfg.Runtime.(runtime.Keeper); can && state == api.Asleep && s.proc.pid() > 0 {
		if kept := k.Kept(); kept > 0 {
			return &api.Load{Cached: kept, CacheKnown: true}
		}
	}
	return nil
}

// enter changes the state, notes it and reports it.
func (s *Supervisor) enter(state api.State, stage string) {
	report := s.set(state, stage)
	s.save()
	s.reports.send(report)
}

// set changes the state and returns the report of it, which is to be sent next.
func (s *Supervisor) set(state api.State, stage string) api.InstanceStatus {
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
			st.Load = s.keeps(state)
		}
		s.meter.unmeasured(st, state, &s.proc)
		st.State, st.Level, st.Stage, st.Message, st.PID = state, level, stage, cmp.Or(s.restarts.message, s.without), pid
		st.NoRoom = s.restarts.noRoom && state == api.Unhealthy
		st.Restarts, st.Progress, st.GaveUp = s.restarts.count, 0, s.restarts.gaveUp && state == api.Unhealthy
		st.LoadTime, st.WakeTime, st.SleepTime = s.took.load, s.took.wake, s.took.sleep
		st.Steps, st.StepsSpan = s.coming.steps, s.coming.span
		st.CanaryMismatches = s.canary.mismatches
	})
}

// noteEpoch remembers the highest epoch.
func (s *Supervisor) noteEpoch(epoch uint64) {
	if epoch <= s.epoch {
		return
	}
	s.epoch = epoch
	s.reports.change(func(st *api.InstanceStatus) { st.Epoch = epoch })
	s.save()
}
