package supervise

import (
	"slices"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// book is the status as it can be read from any goroutine.
type book struct {
	gate *Gate

	mu     sync.Mutex // guards status; numbers are given out under it, so that they order what they number
	status api.InstanceStatus
}

// read returns the status, numbered as a report of its own.
func (b *book) read() api.InstanceStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status.Seq++
	s := b.status
	s.Running, _ = b.gate.Running()
	return s
}

// change changes the status and returns it, numbered.
func (b *book) change(f func(*api.InstanceStatus)) api.InstanceStatus {
	b.mu.Lock()
	f(&b.status)
	b.mu.Unlock()
	return b.read()
}

// noProcess forgets the process; the next report says so.
func (b *book) noProcess() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status.PID, b.status.Memory = 0, api.Memory{}
}

// firstSeq makes numbers grow over restarts of the instance's process too.
func firstSeq(now time.Time) uint64 { return uint64(now.UnixMicro()) }

// setAdapters says whether that is a change.
func (b *book) setAdapters(loaded, standby []api.ModelName) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.Equal(b.status.Adapters, loaded) && slices.Equal(b.status.Standby, standby) {
		return false
	}
	b.status.Adapters, b.status.Standby = slices.Clone(loaded), slices.Clone(standby)
	return true
}

func (b *book) adapters() (loaded, standby []api.ModelName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status.Adapters, b.status.Standby // replaced, never changed
}

// SetAdapters says which adapters are loaded, and which are on standby; a change is reported. It does not
// block and may be called from anywhere, the hook Ready included. They outlive a
// sleep and a restart: Ready puts them back.
func (s *Supervisor) SetAdapters(loaded, standby []api.ModelName) {
	if s.book.setAdapters(loaded, standby) {
		select {
		case s.changed <- struct{}{}:
		default: // the report that is due says it all
		}
	}
}

// SetLoad says what the runtime has to do, which is reported. It does not block and
// may be called from anywhere. It is forgotten when the runtime is no longer awake.
func (s *Supervisor) SetLoad(l api.Load) {
	if s.book.setLoad(l) {
		select {
		case s.changed <- struct{}{}:
		default: // the report that is due says it all
		}
	}
}

// setLoad says whether there is anybody who can have a load.
func (b *book) setLoad(l api.Load) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.status.State != api.Awake && b.status.State != api.Draining {
		return false
	}
	b.status.Load = &l // replaced, never changed
	return true
}

// Locate says where others reach the instance, for a control plane that is found
// late. It does not block and may be called from anywhere.
func (s *Supervisor) Locate(at api.Endpoint) {
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	s.book.status.Endpoint = at
}

// enter changes the state, notes it and reports it.
func (s *Supervisor) enter(state api.State, stage string) {
	report := s.set(state, stage)
	s.save()
	s.report(report)
}

// soon is how long the report of a wake is put off: where the instance is awake before, its awakening is
// all that is told. What a report sets in motion, here and in whoever reads it, would
// only be in the way of so short a wake.
const soon = 5 * time.Millisecond

// owe puts a report off.
func (s *Supervisor) owe(report api.InstanceStatus) {
	s.owed, s.owedUntil = &report, time.Now().Add(soon)
}

// report reports, after what was put off.
func (s *Supervisor) report(status api.InstanceStatus) {
	s.pay()
	s.cfg.Report(status)
}

// pay reports what was put off.
func (s *Supervisor) pay() {
	if owed := s.owed; owed != nil {
		s.owed = nil
		s.cfg.Report(*owed)
	}
}

// set changes the state and returns the report of it, which is to be sent next.
func (s *Supervisor) set(state api.State, stage string) api.InstanceStatus {
	level := api.LevelAwake
	if state == api.Asleep {
		level = s.level
	}
	pid := 0
	if s.child != nil {
		pid = s.child.PID()
	}
	if state != api.Awake {
		s.idle = s.gate.shut(refusal(state, s.message != ""), s.expected(state))
	}
	s.state = state
	s.cfg.Logger.Debug("state", "state", state, "level", level, "stage", stage, "pid", pid)
	return s.book.change(func(st *api.InstanceStatus) {
		if st.State != state || st.Level != level {
			st.Since = time.Now()
		}
		if state != api.Awake && state != api.Draining {
			st.Load = nil
		}
		s.unmeasured(st, state)
		st.State, st.Level, st.Stage, st.Message, st.PID = state, level, stage, s.message, pid
		st.NoRoom = s.noRoom && state == api.Unhealthy
		st.Restarts, st.Progress, st.GaveUp = s.restarts, 0, s.gaveUp && state == api.Unhealthy
		st.LoadTime, st.WakeTime, st.SleepTime = s.loadTime, s.wakeTime, s.sleepTime
		st.Steps, st.StepsSpan = s.steps, s.stepsSpan
		st.CanaryMismatches = s.mismatches
	})
}

// noteEpoch remembers the highest epoch.
func (s *Supervisor) noteEpoch(epoch uint64) {
	if epoch <= s.epoch {
		return
	}
	s.epoch = epoch
	s.book.change(func(st *api.InstanceStatus) { st.Epoch = epoch })
	s.save()
}

// startupStep begins a step of a start or wake. Where a start follows a fetch, it goes on with what the fetch began.
func (s *Supervisor) startupStep(step string) {
	if s.startup == nil {
		s.startup = runtime.NewStartup()
	}
	s.startup.Step(step)
}

// cameUp ends the steps of a start or wake. What comes up after this comes up for another reason.
func (s *Supervisor) cameUp() {
	s.steps, s.stepsSpan = nil, ""
	if s.startup != nil {
		s.steps, s.stepsSpan = s.startup.End(), s.trace.Span
	}
	s.startup, s.trace = nil, api.Trace{}
}
