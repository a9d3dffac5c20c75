package supervise

import (
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// Note is the record that a supervisor leaves for the next one of its runtime. It survives JSON and holds no secrets.
type Note struct {
	// State and Level are as reported.
	State api.State `json:"state"`
	Level api.Level `json:"level"`
	// Own is the level of the runtime's own sleep below a suspension; 0: none.
	Own api.Level `json:"own,omitempty"`
	// Turning says that the runtime was told to sleep or to wake and has not answered, so its state is unknown. Level is the sleep's.
	Turning bool `json:"turning,omitempty"`
	// Endpoint is the runtime's address, and Attach says that it is a sidecar.
	Endpoint api.Endpoint `json:"endpoint,omitempty"`
	Attach   bool         `json:"attach,omitempty"`
	// The rest is as in [api.InstanceStatus].
	Epoch     uint64          `json:"epoch"`
	LoadTime  time.Duration   `json:"loadTime,omitempty"`
	WakeTime  time.Duration   `json:"wakeTime,omitempty"`
	SleepTime time.Duration   `json:"sleepTime,omitempty"`
	Restarts  int             `json:"restarts,omitempty"`
	Adapters  []api.ModelName `json:"adapters,omitempty"`
	Standby   []api.ModelName `json:"standby,omitempty"`
	// Canary is the expected answer after a sleep, nil if it was not asked yet; CanaryMismatches is as in the status.
	Canary           *runtime.Answer `json:"canary,omitempty"`
	CanaryMismatches int             `json:"canaryMismatches,omitempty"`
}

// Launch returns the note's launch, as Config.Adopt returns it.
func (n Note) Launch() runtime.Launch {
	return runtime.Launch{Endpoint: n.Endpoint, Attach: n.Attach}
}

func (s *Supervisor) saveNote() {
	if s.leaving {
		return // the last note before the leave counts
	}
	loaded, standby := s.reports.adapters()
	n := Note{
		State: s.state, Turning: s.phase == sleeping || s.phase == waking, Epoch: s.epoch,
		LoadTime: s.took.load, WakeTime: s.took.wake, SleepTime: s.took.sleep, Restarts: s.restarts.count,
		Adapters: loaded, Standby: standby, Canary: s.canary.answer, CanaryMismatches: s.canary.mismatches,
	}
	switch {
	case s.phase == sleeping:
		n.Level, n.Own = s.sleepLevel()
	case s.phase == waking || s.state == api.Asleep:
		n.Level, n.Own = s.proc.level, s.proc.own
	}
	if s.proc.child != nil {
		n.Endpoint, n.Attach = s.proc.launch.Endpoint, s.proc.launch.Attach
	}
	s.cfg.Save(n)
}

// adoptRuntime continues with a runtime that another supervisor left: 1. there is no process: it sleeps without one, or must be
// started; 2. it may sleep or not: it is woken, which proves that it generates or ends in a restart; 3. it sleeps, according to the
// note; 4. it was starting, and is awaited; 5. it was awake, and is again once it has generated a token.
func (s *Supervisor) adoptRuntime() {
	child, launch, n, found := s.cfg.Adopt()
	if !found {
		return
	}
	if n.Level < api.Suspended {
		n.Own = n.Level
	}
	s.took, s.restarts.count = took{n.LoadTime, n.WakeTime, n.SleepTime}, n.Restarts
	s.canary = canary{answer: n.Canary, mismatches: n.CanaryMismatches}
	s.reports.change(func(st *api.InstanceStatus) { setAdapters(st, n.Adapters, n.Standby) })
	s.noteEpoch(n.Epoch)
	if child == nil && launch.Attach && launch.Endpoint != "" {
		child = newSidecar()
	}
	if child == nil { // 1.
		if n.State == api.Asleep {
			s.want = goal{api.Asleep, api.Level2}
		}
		return
	}
	s.proc.adopted(child, launch)
	s.coming.since = time.Now()
	switch {
	case n.Turning: // 2.
		s.wakeUnsure(n.Level, n.Own)
	case n.State == api.Asleep: // 3.
		s.phase, s.want, s.proc.level, s.proc.own = asleep, goal{api.Asleep, n.Level}, n.Level, n.Own
		s.enterState(api.Asleep, "")
		s.meter.start(&s.proc, s.phase)
	case n.State == api.Starting: // 4.
		s.phase = starting
		s.coming.step(api.StepLoading)
		s.enterState(api.Starting, "loading")
		s.beginOperation(opStart)
		s.op.run()
	default: // 5.
		s.phase = starting
		s.coming.step(api.StepProbing)
		s.enterState(api.Starting, "probing")
		s.beginOperation(opAdopt)
	}
}
