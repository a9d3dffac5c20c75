package supervise

import (
	"cmp"
	"math"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/runtime"
)

const (
	firstPause   = 100 * time.Millisecond // before a restart; doubles
	longestPause = 10 * time.Second
	maxFailures  = 3
	maxSlow      = 7 // starts that the server gave up on a busy machine; not counted as failures
)

type restarts struct {
	log        *process.Log // its last lines explain a failure
	backoff    time.Duration
	retryAt    time.Time
	failures   int // starts and wakes that failed in a row
	gaveUp     bool
	noRoom     bool // the last failure was for want of GPU memory
	slow       int  // starts too slow for the server, since it was awake
	message    string
	count      int
	awakeSince time.Time
}

func (r *restarts) tryAnew() {
	if r.gaveUp {
		r.gaveUp, r.failures, r.backoff, r.retryAt = false, 0, 0, time.Time{}
	}
}

func (r *restarts) awoke(now time.Time) {
	r.failures, r.slow, r.gaveUp, r.noRoom, r.message, r.awakeSince = 0, 0, false, false, "", now
}

func (r *restarts) tooSlow() bool {
	if r.slow >= maxSlow || !runtime.TooSlow(r.log.Message(math.MaxInt)) {
		return false
	}
	r.slow++
	return true
}

// failedToCome reports whether it was the last attempt: then the runtime is given up, unless others restart it.
func (r *restarts) failedToCome(permanent, attached, noRoom bool) (last bool) {
	r.failures++
	last = permanent || r.failures >= maxFailures
	r.gaveUp, r.noRoom = last && !attached, noRoom
	return last
}

func (r *restarts) explained(reason string) { r.message = explain(reason, r.log) }

// failed sets the time of the next start. A runtime that was awake for longer than the last pause begins with the first one again.
func (r *restarts) failed(now time.Time, awake bool, reason string) {
	if awake && now.Sub(r.awakeSince) > r.backoff {
		r.backoff = 0
	}
	r.backoff = min(max(2*r.backoff, firstPause), longestPause)
	r.retryAt = now.Add(r.backoff)
	r.explained(reason)
}

type proc struct {
	child    Child // nil: there is no process
	launch   runtime.Launch
	ended    bool      // step has not handled it yet
	level    api.Level // of the sleep, or of the sleep that a wake ends
	own      api.Level // of the runtime's own sleep; below level if the driver has suspended it
	stopped  bool      // asleep without a process: the next start is a wake
	attached bool      // as the last launch said
	wasAwake bool      // since the last start
}

// exited returns nil if there is no process, or its end is known.
func (p *proc) exited() <-chan struct{} {
	if p.child == nil || p.ended {
		return nil
	}
	return p.child.Exited()
}

func (p *proc) poll() {
	select {
	case <-p.exited():
		p.ended = true
	default:
	}
}

func (p *proc) pid() int {
	if p.child == nil {
		return 0
	}
	return p.child.PID()
}

func (p *proc) launched(l runtime.Launch) {
	p.launch, p.attached = l, l.Attach
	if l.Attach {
		p.launch.Announce = ""
	}
}

func (p *proc) started(c Child) { p.child, p.ended = c, false }

func (p *proc) adopted(c Child, l runtime.Launch) {
	l.Announce = "" // perhaps already printed
	p.launched(l)
	p.started(c)
}

func (p *proc) cleared() { p.child, p.ended = nil, false }

func (p *proc) awoke() {
	p.level, p.own, p.stopped, p.wasAwake = api.LevelAwake, api.LevelAwake, false, true
}

func (p *proc) sleepsStopped() { p.level, p.own, p.stopped = api.Level2, api.Level2, true }

// depth is the deepest level that the sleep fulfils.
func (p *proc) depth() api.Level {
	if p.stopped {
		return api.Suspended
	}
	return p.level
}

// took is how long the last start, wake and sleep took; 0: not known.
type took struct{ load, wake, sleep time.Duration }

// started records a start; wake: the runtime slept without a process, so it was a wake too.
func (t *took) started(d time.Duration, wake bool) {
	t.load = d
	if wake {
		t.wake = d
	}
}

func (t *took) toWake() time.Duration { return cmp.Or(t.wake, t.load) }

// Note is left by a supervisor for the next one of its runtime. It survives JSON and holds no secrets. Its fields are as in
// [api.InstanceStatus] but for those with comments.
type Note struct {
	State api.State `json:"state"`
	Level api.Level `json:"level"`
	Own   api.Level `json:"own,omitempty"` // of the runtime's own sleep below a suspension; 0: none
	// Turning says that the runtime was told to sleep or to wake and has not answered. Level is the sleep's.
	Turning          bool            `json:"turning,omitempty"`
	Endpoint         api.Endpoint    `json:"endpoint,omitempty"` // the runtime's, not the instance's
	Attach           bool            `json:"attach,omitempty"`   // a sidecar
	Epoch            uint64          `json:"epoch"`
	LoadTime         time.Duration   `json:"loadTime,omitempty"`
	WakeTime         time.Duration   `json:"wakeTime,omitempty"`
	SleepTime        time.Duration   `json:"sleepTime,omitempty"`
	Restarts         int             `json:"restarts,omitempty"`
	Adapters         []api.ModelName `json:"adapters,omitempty"`
	Standby          []api.ModelName `json:"standby,omitempty"`
	Canary           *runtime.Answer `json:"canary,omitempty"` // nil: not asked yet
	CanaryMismatches int             `json:"canaryMismatches,omitempty"`
}

// Launch returns the launch that Config.Adopt returns.
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

// adoptRuntime continues with a runtime that another supervisor left: 1. there is no process: it sleeps without one, or must be started;
// 2. it may sleep or not: it is woken; 3. it sleeps; 4. it was starting, and is awaited; 5. it was awake, and is again once it has
// generated a token.
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
