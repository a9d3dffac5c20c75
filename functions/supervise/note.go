package supervise

import (
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// Note is what a supervisor leaves for the one that goes on with its runtime. It
// is a value that survives JSON; it holds no secrets.
type Note struct {
	// State and Level are as reported.
	State api.State `json:"state"`
	Level api.Level `json:"level"`
	// Turning says that the runtime was told to sleep or to wake and that it has not
	// answered: nobody knows which of both it does. Level is that of the sleep.
	Turning bool `json:"turning,omitempty"`
	// Endpoint is where the runtime listens, Attach that it is a sidecar.
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
	// Canary is what the runtime should answer after a sleep, nil where it was not asked
	// yet; CanaryMismatches are as in the status.
	Canary           *runtime.Answer `json:"canary,omitempty"`
	CanaryMismatches int             `json:"canaryMismatches,omitempty"`
}

// Launch is the launch that a note tells of, as Config.Adopt returns it.
func (n Note) Launch() runtime.Launch {
	return runtime.Launch{Endpoint: n.Endpoint, Attach: n.Attach}
}

// save leaves a note.
func (s *Supervisor) save() {
	if s.leaving {
		return // the last note before the leave is the one that counts
	}
	loaded, standby := s.reports.adapters()
	n := Note{
		State: s.state, Turning: s.phase == sleeping || s.phase == waking, Epoch: s.epoch,
		LoadTime: s.took.load, WakeTime: s.took.wake, SleepTime: s.took.sleep, Restarts: s.restarts.count,
		Adapters: loaded, Standby: standby, Canary: s.canary.answer, CanaryMismatches: s.canary.mismatches,
	}
	switch {
	case s.phase == sleeping:
		n.Level = max(s.want.level, s.proc.level)
	case s.phase == waking || s.state == api.Asleep:
		n.Level = s.proc.level
	}
	if s.proc.child != nil {
		n.Endpoint, n.Attach = s.proc.launch.Endpoint, s.proc.launch.Attach
	}
	s.cfg.Save(n)
}

// adopt goes on with a runtime that another supervisor has left: 1. there is no
// process: it sleeps without one, or is to be started; 2. nobody knows whether it
// sleeps: it is woken, which proves that it generates or ends in a restart; 3. it
// sleeps, which is believed; 4. it was starting, and is waited for; 5. it was
// awake, and is once it has generated a token.
func (s *Supervisor) adopt() {
	child, launch, n, found := s.cfg.Adopt()
	if !found {
		return
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
		s.phase = waking
		s.proc.sleeps(n.Level)
		s.coming.step(api.StepWaking)
		s.enter(api.Starting, api.StageWaking)
		s.begin(opWake)
	case n.State == api.Asleep: // 3.
		s.phase, s.want = asleep, goal{api.Asleep, n.Level}
		s.proc.sleeps(n.Level)
		s.enter(api.Asleep, "")
		s.meter.start(&s.proc, s.phase)
	case n.State == api.Starting: // 4.
		s.phase = starting
		s.coming.step(api.StepLoading)
		s.enter(api.Starting, "loading")
		s.begin(opStart)
		s.op.run()
	default: // 5.
		s.phase = starting
		s.coming.step(api.StepProbing)
		s.enter(api.Starting, "probing")
		s.begin(opAdopt)
	}
}
