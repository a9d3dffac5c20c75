package decide

import (
	"iter"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// What follows keeps the records that plans look at. The owner loop and the
// simulator keep them alike, so it is here once.

// mostNoted bounds what is noted of what was needed.
const mostNoted = 1024

// NoteNeed records that what is needed until now was needed until now. Call it
// before Waiting, Running or Load changes.
func (f *Function) NoteNeed(now time.Time) {
	n, _, _ := f.Wanted(f.Load.Awake)
	n = min(n, mostNoted)
	for len(f.NeededAt) < n {
		f.NeededAt = append(f.NeededAt, now)
	}
	for k := range n {
		f.NeededAt[k] = now
	}
}

// NotePressure records since when the load asks for more than is awake. Call it
// after Waiting, Running or Load has changed.
func (f *Function) NotePressure(now time.Time) {
	if _, pressed, _ := f.Wanted(f.Load.Awake); !pressed {
		f.PressedSince = time.Time{}
	} else if f.PressedSince.IsZero() {
		f.PressedSince = now
	}
}

// NoteLoad takes in what f's instances report.
func (f *Function) NoteLoad(all iter.Seq[api.InstanceStatus], now time.Time) {
	load := LoadOf(all)
	if load == f.Load {
		return
	}
	f.NoteNeed(now)
	f.Load = load
	f.NotePressure(now)
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
