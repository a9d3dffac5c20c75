package decide

import (
	"fmt"
	"slices"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// limitSleepers ends or deepens the sleepers that were used longest ago where more memory of a device is in use than there
// is, because instances or others use more than planned. What that does not free, idle instances free by going to sleep.
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

// over returns by how much more of d is in use than there is, once what is being released has gone.
func (p *plan) over(d int32) api.Bytes { return -p.free[d] - p.coming[d] }

// deepenSleepersOn deepens or ends sleepers of d without a grant, the least recently used first, until no more of it is in
// use than there is.
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

// heldAsleep returns the memory that the sleeper i holds of d, without its grant.
func (p *plan) heldAsleep(i *instance, d int32) api.Bytes {
	m := i.Status.Memory
	if i.settling(p.now) {
		m = i.f.Past.Residue(i.Status.Level)
	}
	return p.claim(d, m)
}

// releases returns the memory of d that the sleeper i releases by going to a level.
func (p *plan) releases(i *instance, d int32, to api.Level) api.Bytes {
	if to == inventory.Stopped {
		return p.heldAsleep(i, d)
	}
	return p.heldAsleep(i, d) - p.claim(d, i.residue(to))
}

// sleepIdleOn puts idle instances to sleep, the least recently used first, while more of d is in use than there is, not
// counting reservations: instances or other processes use more than declared. Instances with work go on: stopping them
// would not help, since their next demand would need the same memory.
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
		return // one at a time: its residue is measured first
	}
}
