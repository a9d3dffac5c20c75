package decide

import (
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// What follows keeps the records that plans look at. The owner loop and the
// simulator keep them alike, so it is here once.

// Needed is how many instances what waits and runs fills.
func (f *Function) Needed() int {
	c := max(1, f.Spec.Concurrency)
	return min((f.Waiting+f.Running+c-1)/c, max(1, f.Spec.MaxScale), mostNeeded)
}

// mostNeeded bounds what is noted of what was needed.
const mostNeeded = 1024

// NoteNeed records that what is needed until now was needed until now. Call it
// before Waiting or Running changes.
func (f *Function) NoteNeed(now time.Time) {
	n := f.Needed()
	for len(f.NeededAt) < n {
		f.NeededAt = append(f.NeededAt, now)
	}
	for k := range n {
		f.NeededAt[k] = now
	}
}

// Changed takes in that i, an instance of f, has come from old into the state that
// it is in now: since when, from which level it rises, and what there is to learn.
// rose says that it is awake after a start or a wake.
func (f *Function) Changed(i *Instance, old api.InstanceStatus, now time.Time) (rose bool) {
	s := i.Status
	i.Since = now
	switch s.State {
	case api.Starting:
		if old.State == api.Unhealthy {
			i.From = inventory.Stopped // its runtime starts again
		}
	case api.Awake:
		if old.State == api.Awake || old.State == api.Draining {
			return false
		}
		if i.From >= inventory.Stopped {
			f.Past = f.Past.Started(s)
		} else {
			f.Past = f.Past.Woken(s, i.From)
		}
		f.Failures, f.Hopeless, f.LastError, f.RetryAt, i.Failures = 0, false, "", time.Time{}, 0
		return true
	case api.Asleep:
		i.From = s.Level
		if old.State != api.Starting {
			f.Past = f.Past.Slept(s)
		}
	}
	return false
}
