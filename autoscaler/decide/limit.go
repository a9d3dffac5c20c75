package decide

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// limitSleepers ends over-commitment: it deepens or ends sleepers, then puts idle instances to sleep.
func (p *plan) limitSleepers() {
	for _, f := range p.fs {
		for _, i := range f.instances {
			if i.unbound() && p.available(i) {
				p.revoke(i, "an earlier grant may allow it any GPUs")
			}
		}
	}
	for d := range p.devs {
		if p.over(int32(d)) > 0 {
			p.deepenSleepersOn(int32(d))
			p.sleepIdleOn(int32(d))
		}
	}
}

// over returns by how much more of d is in use than there is, without what is being released.
func (p *plan) over(d int32) api.Bytes { return -p.free[d] - p.coming[d] }

func (p *plan) deepenSleepersOn(d int32) {
	why := fmt.Sprintf("%s more of %s is in use than there is", p.over(d), p.devs[d].ID)
	var is []*instance
	for _, i := range p.on[d] {
		if i.phase == phaseAsleep && !i.f.Undeclared && !i.reserved() && !i.settling(p.now) && !p.aboutToWake(i.f, i) {
			is = append(is, i)
		}
	}
	slices.SortFunc(is, func(a, b *instance) int { return compareNeed(b, a) })
	for _, i := range is {
		for to := i.Status.Level + 1; to <= inventory.Stopped; to++ {
			if i.Failures >= 2 && to < inventory.Stopped || !p.available(i) || p.over(d) <= 0 || to == api.Suspended && !p.suspends(i) || p.releases(i, d, to) <= 0 {
				continue
			}
			reason := fmt.Sprintf("%s; used last %s ago", why, short(p.now.Sub(p.usedUntil(i, 1))))
			if to == inventory.Stopped {
				p.stop(i, 0, reason)
			} else {
				p.sleep(i, to, reason)
			}
			break
		}
	}
}

// heldAsleep returns what the sleeper i holds of d, without its grant.
func (p *plan) heldAsleep(i *instance, d int32) api.Bytes {
	m := i.Status.Memory
	if i.settling(p.now) {
		m = i.f.Past.Residue(i.Status.Level)
	}
	return p.claim(d, m)
}

func (p *plan) releases(i *instance, d int32, to api.Level) api.Bytes {
	if to == inventory.Stopped {
		return p.heldAsleep(i, d)
	}
	return p.heldAsleep(i, d) - p.claim(d, i.residue(to))
}

// sleepIdleOn puts one idle instance to sleep if more of d is in use than there is, not counting reservations. Those
// with work go on: their next demand would need the same memory.
func (p *plan) sleepIdleOn(d int32) {
	left := p.free[d] + p.coming[d]
	for _, i := range p.on[d] {
		if i.phase == phaseAsleep && i.reserved() {
			left += max(0, i.held[slices.Index(i.at, d)]-p.claim(d, i.Status.Memory))
		}
	}
	if left >= 0 {
		return
	}
	var idlers []*instance
	for _, i := range p.on[d] {
		if i.phase == phaseAwake && !i.taken && !i.f.Undeclared && !i.f.busy() && p.available(i) {
			idlers = append(idlers, i)
		}
	}
	slices.SortFunc(idlers, func(a, b *instance) int { return compareNeed(b, a) })
	for _, i := range idlers {
		if i.f.live() <= i.f.desired {
			continue
		}
		level := i.f.level()
		p.sleep(i, level, fmt.Sprintf("%s more of %s is in use than there is; idle for %s", p.over(d), p.devs[d].ID, short(p.now.Sub(p.usedUntil(i, 1)))))
		return // its residue is measured first
	}
}

// Impossible says why f can never have an instance on these devices; empty: it can.
func (t *Topology) Impossible(f *Function) string {
	if len(t.devs) == 0 {
		return ""
	}
	reason, _ := t.impossible(f, Advice{})
	return reason
}

// impossible is [Topology.Impossible] with an answer for clients.
func (t *Topology) impossible(f *Function, advice Advice) (string, *api.Error) {
	need, largest := f.Need, t.largest
	of, show := "", "shows"
	if len(t.nodes) > 1 {
		of, show = " on one node", "shows, on its largest node,"
	}
	if f.Certain && need.Host > largest {
		there := "there are " + largest.String()
		if of != "" {
			there = "the largest node has " + largest.String()
		}
		return fmt.Sprintf("needs %s of host memory%s, %s", need.Host, of, there),
			noCapacity("%s needs %s of host memory for one instance and may use %s: %s, or lower rouse.dev/memory",
				f.Spec.Name, need.Host, largest, advice.Memory)
	}
	if need.Devices == 0 {
		return "", nil
	}
	v := t.feasible(need)
	if v.gpus < need.Devices {
		there := fmt.Sprintf("there are %d", v.gpus)
		if of != "" {
			there = fmt.Sprintf("the largest node has %d", v.gpus)
		}
		return fmt.Sprintf("needs %s%s, %s", many(need.Devices, "GPU"), of, there),
			noCapacity("%s needs %s for one instance and %s %s %d: %s",
				f.Spec.Name, many(need.Devices, "GPU"), advice.Place, show, v.gpus, advice.Devices)
	}
	if v.fits || !f.Certain {
		return "", nil
	}
	if of != "" && v.large >= need.PerDevice {
		return fmt.Sprintf("needs %s on one node, and none has all of that", amountOf(need)),
			noCapacity("%s needs %s on one node and no node of %s has all of that: lower rouse.dev/memory or rouse.dev/device-memory",
				f.Spec.Name, amountOf(need), advice.Place)
	}
	return fmt.Sprintf("needs %s on each of %s, the largest has %s", need.PerDevice, many(need.Devices, "GPU"), v.large),
		noCapacity("%s needs %s on each of %s and the largest has %s: lower rouse.dev/device-memory",
			f.Spec.Name, need.PerDevice, many(need.Devices, "GPU"), v.large)
}

func noCapacity(format string, args ...any) *api.Error {
	e := api.Errorf(http.StatusServiceUnavailable, api.CodeNoCapacity, format, args...)
	e.NoRetry = true
	return e
}

type feasibility struct {
	fits bool
	// gpus are those of the largest node; large is the largest GPU's memory.
	gpus  int
	large api.Bytes
}

// feasible computes whether a node could hold need if it were empty.
func (t *Topology) feasible(need api.Memory) (v feasibility) {
	for _, k := range t.kinds {
		n := &t.nodes[k]
		gpus, fit := 0, 0
		for _, d := range n.gpus {
			if !t.devs[d].Joins(need.Devices) {
				continue
			}
			gpus++
			v.large = max(v.large, t.devs[d].Capacity)
			if t.devs[d].Capacity >= need.PerDevice {
				fit++
			}
		}
		v.gpus = max(v.gpus, gpus)
		v.fits = v.fits || fit >= need.Devices && t.devs[n.host].Capacity >= need.Host
	}
	return v
}

// Where memory is scarce (docs/design/0037-scarce.md):
//
//  1. A suspended process is off its devices: what it had there is in host memory, booked before the order. It may be
//     restored onto any GPUs of its node, unless its status names some.
//  2. Where the host does not hold the weights of all functions, those whose next requests are expected last drop them
//     ([plan.keepsWeights]).

// suspends reports whether i can be suspended now: it has worked for its kind of runtime, and the host has memory.
func (l *ledger) suspends(i *instance) bool {
	s := &i.Status
	works := s.Suspends || s.NoSuspend == "" && (i.f.Spec.Suspend == api.SuspendOn || slices.Contains(l.proven, i.f.Spec.Runtime.Kind))
	return works && l.suspendable(i)
}

// suspendable reports whether i may be suspended, if that works. What its function keeps asleep must be known.
func (l *ledger) suspendable(i *instance) bool {
	return i.residue(api.Suspended).Host > 0 && i.f.Spec.Suspend != api.SuspendOff && len(i.at) > 1 && l.growth(i) <= max(0, l.free[i.at[0]])
}

// growth returns the host memory that i's suspension takes beyond what it holds.
func (l *ledger) growth(i *instance) api.Bytes {
	return max(0, i.residue(api.Suspended).Host-i.Borne-i.held[0])
}

// contested reports whether i is to be off its devices asleep: its function asks for it, or neighbours asleep leave too
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

// untried reports whether i should be suspended once to see whether it works.
func (p *plan) untried(i *instance) (why string, yes bool) {
	if i.Status.Suspends || i.Status.NoSuspend != "" || slices.Contains(p.proven, i.f.Spec.Runtime.Kind) || len(i.at) < 2 || !p.suspendable(i) {
		return "", false
	}
	why, yes = p.contested(i)
	return "whether it can be suspended is not known: " + why, yes
}

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

// unbound reports whether a grant of an earlier leader may restore i onto any GPUs of its node. All are reserved until
// it is revoked.
func (i *instance) unbound() bool {
	return i.movable() && i.reserved() && len(i.at) != 1+i.f.Need.Devices
}

func (l *ledger) namesOf(i *instance, at []int32) (ids []api.DeviceID) {
	if len(i.Status.Devices) > 0 {
		return i.Status.Devices
	}
	for _, d := range at[1:] {
		ids = append(ids, l.devs[d].ID)
	}
	return ids
}

func (p *plan) levelFor(i *instance) (level api.Level, why string) {
	if level, why = i.f.nextLevel(); level < api.Level2 && !p.keepsWeights(i) {
		return api.Level2, "; its weights have no place in host memory"
	}
	return level, why
}

// keepsWeights reports whether the host of i has memory for its weights asleep, beside those of functions expected
// earlier and as many others awake as the node has GPUs.
func (p *plan) keepsWeights(i *instance) bool {
	f := i.f
	if len(i.at) < 2 || f.Spec.FixedLevel || f.Past.Asleep[api.Level1].Host == 0 {
		return true
	}
	w := p.weightsOn(i.node, f)
	left := p.facts[i.at[0]].capacity - p.devs[i.at[0]].Others - w.asleep
	return left >= min(w.all, w.most*api.Bytes(len(p.nodes[i.node].gpus)))
}
