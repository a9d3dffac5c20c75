package supervise

import (
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// proc is the runtime's process and how deep it sleeps.
type proc struct {
	child    Child // nil: there is none
	launch   runtime.Launch
	ended    bool      // the child has ended and that is not dealt with
	level    api.Level // of the sleep, or of the sleep that a wake ends
	stopped  bool      // asleep without a process: the next start is a wake
	attached bool      // the runtime is a sidecar, as the last launch said
	wasAwake bool      // since the last start
}

// exited is closed when the process ends; nil where there is none, or its end is known.
func (p *proc) exited() <-chan struct{} {
	if p.child == nil || p.ended {
		return nil
	}
	return p.child.Exited()
}

// poll notes the end of the process where it has ended.
func (p *proc) poll() {
	select {
	case <-p.exited():
		p.ended = true
	default:
	}
}

// pid is that of the process; 0: there is none, or it is not ours.
func (p *proc) pid() int {
	if p.child == nil {
		return 0
	}
	return p.child.PID()
}

// begins says that a start begins.
func (p *proc) begins() { p.wasAwake = false }

// launched notes how the runtime is started.
func (p *proc) launched(l runtime.Launch) {
	p.launch, p.attached = l, l.Attach
	if l.Attach {
		p.launch.Announce = ""
	}
}

func (p *proc) started(c Child) { p.child, p.ended = c, false }

// adopted goes on with a process that another supervisor has started.
func (p *proc) adopted(c Child, l runtime.Launch) {
	l.Announce = "" // it may have been said
	p.launched(l)
	p.started(c)
}

// wasEnded notes that the process was ended.
func (p *proc) wasEnded() { p.ended = true }

// cleared forgets the process.
func (p *proc) cleared() { p.child, p.ended = nil, false }

func (p *proc) awoke() { p.level, p.stopped, p.wasAwake = api.LevelAwake, false, true }

// sleeps says that it sleeps at a level, or that a wake ends such a sleep.
func (p *proc) sleeps(level api.Level) { p.level = level }

// sleepsStopped says that it sleeps without a process.
func (p *proc) sleepsStopped() { p.level, p.stopped = api.Level2, true }

// took is how long the last start, wake and sleep took; 0: not known.
type took struct{ load, wake, sleep time.Duration }

// started notes a start; where the runtime slept without a process, that was a wake too.
func (t *took) started(d time.Duration, wake bool) {
	t.load = d
	if wake {
		t.wake = d
	}
}

// toWake is what a wake is expected to take.
func (t *took) toWake() time.Duration {
	if t.wake == 0 {
		return t.load
	}
	return t.wake
}
