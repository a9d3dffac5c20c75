package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

const mostNoted = 1024

// NoteNeed records which instances were needed until now. Call it before Waiting, Running or Load changes.
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

// NotePressure sets PressedSince. Call it after Waiting, Running or Load has changed.
func (f *Function) NotePressure(now time.Time) {
	if _, pressed, _ := f.Wanted(f.Load.Awake); !pressed {
		f.PressedSince = time.Time{}
	} else if f.PressedSince.IsZero() {
		f.PressedSince = now
	}
}

// Observe updates f from its instances.
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

// BeingWoken reports whether a call or an activator is waking i.
func (i *Instance) BeingWoken() bool {
	return i.Doing == DoingWake || i.Waking && i.Status.State == api.Asleep
}

// Changed records i's change from old to its present state. rose reports whether it is awake after a start or a wake.
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

func short(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Microsecond).String()
}

func many(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// formatLeavers names what o waits for.
func (p *plan) formatLeavers(o *option) string {
	var names []string
	for _, v := range o.victims {
		names = append(names, string(v.i.Status.Instance))
	}
	if len(names) == 0 {
		for k, d := range o.at {
			if o.needs[k] <= p.free[d] {
				continue
			}
			for _, i := range p.on[d] {
				if i.phase == phaseFalling || i.phase == phaseLeaving || i.Doing == DoingRevoke || i.settling(p.now) {
					names = append(names, string(i.Status.Instance))
				}
			}
		}
		slices.Sort(names)
		names = slices.Compact(names)
	}
	if len(names) == 0 {
		return "what is on its way"
	}
	return strings.Join(names, " and ")
}

func (p *plan) formatLack(o *option) string {
	short := p.alloc(len(o.at))
	for k, d := range o.at {
		if o.needs[k] > 0 {
			short[k] = max(0, o.needs[k]-max(0, p.free[d]))
		}
	}
	return p.formatAmounts(o.at, short)
}

func (p *plan) formatFree(at []int32) string {
	free := p.alloc(len(at))
	for k, d := range at {
		free[k] = p.free[d]
	}
	return p.formatAmounts(at, free)
}

func (p *plan) formatAmounts(at []int32, b bytes) string {
	var parts []string
	for k, v := range b {
		if v == 0 && len(p.devs) > 1 || k > 0 && v < 0 {
			continue
		}
		parts = append(parts, fmt.Sprintf("%s of %s", max(0, v), p.devs[at[k]].ID))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

func amountOf(m api.Memory) string {
	s := m.Host.String() + " of host"
	switch {
	case m.Devices > 0 && m.PerDevice == 0 && m.Share == 0:
		s += fmt.Sprintf(" and %s (nothing says how much of it: rouse.dev/device-memory would, such as rouse.dev/device-memory: 20Gi)", many(m.Devices, "whole GPU"))
	case m.Devices > 0 && m.PerDevice == 0 && m.Share == 1:
		s += " and " + many(m.Devices, "whole GPU")
	case m.Devices > 0 && m.PerDevice == 0:
		s += fmt.Sprintf(" and %.0f%% of %s", m.Share*100, many(m.Devices, "GPU"))
	case m.Devices > 0:
		s += fmt.Sprintf(" and %s on %s", m.PerDevice, many(m.Devices, "GPU"))
	}
	return s
}

func inMemoryThere(n api.Bytes) string {
	if n == 0 {
		return ""
	}
	return ", beside " + n.String() + " that are in memory there"
}

// snapshotOf says from which snapshot a start may begin; empty: none is wanted.
func (p *plan) snapshotOf(f *function) string {
	switch s := f.Past.Snapshot; {
	case s == nil:
		return ""
	case s.Missing != "":
		return "; no snapshot: " + s.Missing
	default:
		return fmt.Sprintf("; its snapshot has %s and is %s old", s.Size, short(p.now.Sub(s.Made)))
	}
}
