package supervise

import (
	"cmp"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// proc is the runtime's process and the level of its sleep.
type proc struct {
	child    Child // nil: there is none
	launch   runtime.Launch
	ended    bool      // the child has ended and step has not handled it yet
	level    api.Level // of the sleep, or of the sleep that a wake ends
	own      api.Level // of the runtime's own sleep; below level if the driver has suspended it
	stopped  bool      // asleep without a process: the next start is a wake
	attached bool      // the runtime is a sidecar, as the last launch said
	wasAwake bool      // since the last start
}

// exited returns a channel that is closed when the process ends; nil if there is none, or its end is known.
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

// pid returns the process's ID; 0: there is none, or it is not ours.
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
	l.Announce = "" // the runtime may have printed it already
	p.launched(l)
	p.started(c)
}

func (p *proc) cleared() { p.child, p.ended = nil, false }

func (p *proc) awoke() {
	p.level, p.own, p.stopped, p.wasAwake = api.LevelAwake, api.LevelAwake, false, true
}

// sleepsStopped sets that the runtime sleeps without a process.
func (p *proc) sleepsStopped() { p.level, p.own, p.stopped = api.Level2, api.Level2, true }

// depth is the deepest level that the sleep fulfils: without a process all.
func (p *proc) depth() api.Level {
	if p.stopped {
		return api.Suspended
	}
	return p.level
}

// took is how long the last start, wake and sleep took; 0: not known.
type took struct{ load, wake, sleep time.Duration }

// started records a start; wake: the runtime slept without a process, so the start was a wake too.
func (t *took) started(d time.Duration, wake bool) {
	t.load = d
	if wake {
		t.wake = d
	}
}

func (t *took) toWake() time.Duration { return cmp.Or(t.wake, t.load) }
