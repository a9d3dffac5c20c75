package decide

import (
	"cmp"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// Updating the records that plans read. The owner loop and the simulator share it.

// mostNoted bounds the length of NeededAt.
const mostNoted = 1024

// NoteNeed records that the instances needed so far were needed until now. Call it before Waiting, Running or Load
// changes.
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

// NotePressure records since when the load asks for more instances than are awake. Call it after Waiting, Running or
// Load has changed.
func (f *Function) NotePressure(now time.Time) {
	if _, pressed, _ := f.Wanted(f.Load.Awake); !pressed {
		f.PressedSince = time.Time{}
	} else if f.PressedSince.IsZero() {
		f.PressedSince = now
	}
}

// Observe updates f from its instances: their load, and until when one was awake.
func (f *Function) Observe(now time.Time) {
	if load := LoadOf(f.Instances); load != f.Load {
		f.NoteNeed(now)
		f.Load = load
		f.NotePressure(now)
	}
	serves := slices.ContainsFunc(f.Instances, func(i *Instance) bool {
		return i.Status.State == api.Awake && i.Doing != DoingSleep && i.Doing != DoingStop
	})
	if f.Serving && !serves {
		f.ServedUntil = now
	}
	f.Serving = serves
}

// Add inserts i into f's instances.
func (f *Function) Add(i *Instance) {
	k, _ := slices.BinarySearchFunc(f.Instances, i.Status.Instance, func(i *Instance, id api.InstanceID) int { return cmp.Compare(i.Status.Instance, id) })
	f.Instances = slices.Insert(f.Instances, k, i)
}

// Drop removes i from f's instances.
func (f *Function) Drop(i *Instance) {
	f.Instances = slices.DeleteFunc(f.Instances, func(j *Instance) bool { return i == j })
}

// NoteWaking records whether an activator is waking i under its grant.
func (i *Instance) NoteWaking(waking bool, now time.Time) {
	if waking != i.Waking {
		i.Waking = waking
		if i.Status.State == api.Asleep {
			i.Since, i.RoseAt, i.Ahead, i.Rehearsing, i.Rehearsed = now, now, false, false, false
		}
	}
}

// BeingWoken reports whether a wake of i is under way: by a call, or by an activator.
func (i *Instance) BeingWoken() bool {
	return i.Doing == DoingWake || i.Waking && i.Status.State == api.Asleep
}

// Changed records i's change from old to its present state: since when, from which level it rises, and what can be
// learned. rose reports whether it is awake after a start or a wake.
func (f *Function) Changed(i *Instance, old api.InstanceStatus, now time.Time) (rose bool) {
	s := i.Status
	i.Since = now
	switch s.State {
	case api.Starting:
		if old.State == api.Unhealthy {
			i.From, i.Slept = inventory.Stopped, false // its runtime starts again
		}
	case api.Awake:
		if old.State == api.Awake || old.State == api.Draining {
			return false
		}
		if i.From >= inventory.Stopped {
			f.Past = f.Past.Started(s)
		} else {
			f.Past = f.Past.Woken(s, i.From)
			i.Slept = !i.Unloaded
		}
		f.Failures, f.Hopeless, f.LastError, f.RetryAt, i.Failures = 0, false, "", time.Time{}, 0
		return true
	case api.Asleep:
		i.From = s.Level
		if old.State != api.Starting && old.State != api.Asleep {
			f.Past = f.Past.Slept(s, !i.Slept && s.Level == api.Level1)
		}
		i.Slept = i.Slept || s.Level == api.Level1 // level 2 keeps no weights in host memory, so none are pinned
	}
	return false
}
