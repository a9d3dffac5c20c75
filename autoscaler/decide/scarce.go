package decide

import (
	"fmt"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Where memory is scarce (docs/design/0037-scarce.md):
//
//  1. A suspended process is off its devices: what it had there is in host memory, which is booked before the order. It may be restored onto any GPUs of its
//     node, unless its status still names some.
//  2. Where the host does not hold the weights of all functions, those whose next requests are expected last drop them ([plan.keepsWeights]).

// suspends reports whether i can be suspended now: it has worked, for a function with its kind of runtime, and the host has memory for what i has on its
// devices.
func (l *ledger) suspends(i *instance) bool {
	s := &i.Status
	works := s.Suspends || s.NoSuspend == "" && (i.f.Spec.Suspend == api.SuspendOn || slices.Contains(l.proven, i.f.Spec.Runtime.Kind))
	return works && l.suspendable(i)
}

// suspendable reports whether i may be suspended, if that works. What its function keeps asleep must be known.
func (l *ledger) suspendable(i *instance) bool {
	return i.residue(api.Suspended).Host > 0 && i.f.Spec.Suspend != api.SuspendOff && len(i.at) > 1 && l.growth(i) <= max(0, l.free[i.at[0]])
}

// growth returns the host memory that i's suspension takes.
func (l *ledger) growth(i *instance) api.Bytes {
	return max(0, i.residue(api.Suspended).Host-i.Borne-i.held[0])
}

// contested reports whether i is to be off its devices asleep, and why: its function asks for it, or what its neighbours keep on a device asleep leaves too
// little for one that is awake.
func (p *plan) contested(i *instance) (why string, yes bool) {
	switch i.f.Spec.Suspend {
	case api.SuspendOn:
		return "its function is suspended at each sleep", true
	case api.SuspendOff:
		return "", false
	}
	for _, d := range i.at[1:] {
		c := p.contestOf(d, i.f)
		if over := c.asleep - c.own + c.awake - p.facts[d].capacity; c.awake > 0 && over > 0 {
			return fmt.Sprintf("sleepers can leave too little of %s, by %s", p.devs[d].ID, over), true
		}
	}
	return "", false
}

// untried reports whether i should be suspended once to see whether it works, and why.
func (p *plan) untried(i *instance) (why string, yes bool) {
	if i.Status.Suspends || i.Status.NoSuspend != "" || slices.Contains(p.proven, i.f.Spec.Runtime.Kind) || len(i.at) < 2 || !p.suspendable(i) {
		return "", false
	}
	why, yes = p.contested(i)
	return "whether it can be suspended is not known: " + why, yes
}

// suspendSleepers suspends sleepers of f whose devices are contested. The first try comes while no request for f is likely.
func (p *plan) suspendSleepers(f *function) {
	for _, i := range f.instances {
		if i.phase != phaseAsleep || i.Status.Level >= api.Suspended || i.lost || i.reserved() || i.settling(p.now) || i.Failures > 0 || p.aboutToWake(f, i) || !p.available(i) {
			continue
		}
		if p.suspends(i) {
			if why, yes := p.contested(i); yes {
				p.sleep(i, api.Suspended, why)
			}
		} else if why, yes := p.untried(i); yes {
			idle := max(0, p.now.Sub(f.idleSince()))
			if chance, _ := f.Past.Arrivals.Chance(idle, idle+rehearsalLasts); chance < rehearsalChance {
				p.sleep(i, api.Suspended, why).Rehearsal = true
			} else {
				p.planAt(p.now.Truncate(time.Second).Add(time.Second)) // the chance falls
			}
		}
	}
}

// movable reports whether i may be restored onto other devices than it had.
func (i *instance) movable() bool {
	return i.Status.State == api.Asleep && i.Status.Level == api.Suspended && len(i.Status.Devices) == 0 && i.f.Need.Devices > 0
}

// unbound reports whether a grant of an earlier leader may allow i to be restored onto any GPUs of its node. All are reserved until it is revoked.
func (i *instance) unbound() bool {
	return i.movable() && i.reserved() && len(i.at) != 1+i.f.Need.Devices
}

// namesOf returns the devices that a grant names for i to be awake on at.
func (l *ledger) namesOf(i *instance, at []int32) (ids []api.DeviceID) {
	if len(i.Status.Devices) > 0 {
		return i.Status.Devices
	}
	for _, d := range at[1:] {
		ids = append(ids, l.devs[d].ID)
	}
	return ids
}

// levelFor returns the level that i sleeps at, and a part of the reason.
func (p *plan) levelFor(i *instance) (level api.Level, why string) {
	if level, why = i.f.nextLevel(); level < api.Level2 && !p.keepsWeights(i) {
		return api.Level2, "; its weights have no place in host memory"
	}
	return level, why
}

// keepsWeights reports whether the host of i has memory for the weights of its function asleep. If it does not have it for all functions, those keep theirs
// whose next requests are expected first. Beside them, as many others as the node has GPUs must fit awake.
func (p *plan) keepsWeights(i *instance) bool {
	f := i.f
	if len(i.at) < 2 || f.Spec.FixedLevel || f.Past.Asleep[api.Level1].Host == 0 {
		return true
	}
	w := p.weightsOn(i.node, f)
	left := p.facts[i.at[0]].capacity - p.devs[i.at[0]].Others - w.asleep
	return left >= min(w.all, w.most*api.Bytes(len(p.nodes[i.node].gpus)))
}
