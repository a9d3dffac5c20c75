package decide

import (
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// enterLedger enters f's instances into the ledger, as they are at now. The entries are valid until f.until.
func (w *World) enterLedger(f *Function, now time.Time) {
	f.inLedger, f.until = true, time.Time{}
	f.entered = append(f.entered[:0], f.Instances...)
	f.awake, f.rising, f.falling, f.leaving, f.ill, f.asleep, f.passing = 0, 0, 0, 0, 0, 0, 0
	size := 0
	for _, i := range f.Instances {
		i.phase = phaseOf(i)
		f.count(i.phase)
		if i.Doing == DoingGrant || i.Doing == DoingRevoke {
			f.passing++
		}
		size += len(i.at)
	}
	if f.desire(now); f.scaled {
		f.changes(f.Scale.Until)
	}
	f.besides(now)
	slab := make(bytes, 3*size)
	for _, i := range f.Instances {
		n := len(i.at)
		i.held, i.up, i.leaves, slab = slab[:n:n], slab[n:2*n:2*n], slab[2*n:3*n:3*n], slab[3*n:]
		w.hold(i, now)
		i.soft = !f.Undeclared && (i.phase == phaseAsleep || i.phase == phaseAwake && f.live() > f.desired && !f.busy())
		i.places = slices.Grow(i.places[:0], n)
		for k, d := range i.at {
			i.places = append(i.places, len(w.on[d]))
			w.on[d] = append(w.on[d], i)
			w.enter(i, k, 1)
		}
	}
	w.fingerprint(f, now)
}

// hold computes the memory that i takes at now.
func (w *World) hold(i *Instance, now time.Time) {
	f := i.f
	w.fill(i.held, i.at, i.Status.Memory)
	copy(i.up, i.held)
	if !f.Undeclared {
		w.fill(i.leaves, i.at, whole(f.Need))
		for k := range i.up {
			i.up[k] = max(i.up[k], i.leaves[k])
		}
		clear(i.leaves)
	}
	i.spare()
	if i.Status.State != api.Asleep || i.phase == phaseRising || i.reserved() {
		copy(i.held, i.up)
	}
	if len(i.at) > 0 { // the first is the host
		i.held[0] -= min(i.Borne, i.held[0])
		i.up[0] -= min(i.Borne, i.up[0])
	}
	switch {
	case i.phase == phaseLeaving:
		copy(i.leaves, i.held)
		i.keepCommon()
	case i.phase == phaseFalling && !f.Undeclared:
		w.lessening(i, f.Past.Residue(max(i.Level, api.Level1)))
	case i.Doing == DoingRevoke:
		w.lessening(i, i.Status.Memory)
	case i.settling(now):
		f.changes(i.Settles)
		w.lessening(i, f.Past.Residue(i.Status.Level))
	}
}

// lessening books all but stays as coming.
func (w *World) lessening(i *Instance, stays api.Memory) {
	w.fill(i.leaves, i.at, stays)
	for k := range i.leaves {
		i.leaves[k] = i.held[k] - min(i.leaves[k], i.held[k])
	}
	i.keepCommon()
}

// keepCommon subtracts from i.leaves what others share with i.
func (i *Instance) keepCommon() {
	if len(i.leaves) > 0 {
		i.leaves[0] -= min(i.common(), i.leaves[0])
	}
}

// changes records that f's entries change at t.
func (f *Function) changes(t time.Time) {
	if f.until.IsZero() || t.Before(f.until) {
		f.until = t
	}
}

// enter books i's kth device, or undoes that if sign is -1.
func (w *World) enter(i *Instance, k int, sign api.Bytes) {
	d := i.at[k]
	soft := api.Bytes(0)
	if i.soft {
		soft = i.held[k]
	}
	w.account(d, -sign*i.held[k], sign*i.leaves[k], sign*soft)
}

// leaveLedger removes f's instances from the ledger.
func (w *World) leaveLedger(f *Function) {
	if !f.inLedger {
		return
	}
	f.inLedger = false
	f.edition++
	w.unfingerprint(f)
	for _, i := range f.entered {
		for k, d := range i.at {
			w.enter(i, k, -1)
			list := w.on[d]
			last := len(list) - 1
			moved := list[last]
			at, where := i.places[k], slices.Index(moved.at, d)
			list[at], moved.places[where] = moved, at
			list[last] = nil
			w.on[d] = list[:last]
		}
	}
}
