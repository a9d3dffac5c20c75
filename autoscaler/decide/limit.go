package decide

import (
	"fmt"
	"slices"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// limitSleepers limits what sleepers hold of each device together. The sleepers that were used longest ago go deeper or
// end if
//
//  1. more memory is in use than there is, because instances or others use more than planned
//  2. more instances sleep on a GPU than [Policy.SleepersPerDevice]
//  3. they hold more of a GPU than [Policy.ResidueShare]
func (p *plan) limitSleepers() {
	for d := range p.devs {
		p.limitDevice(int32(d))
	}
}

func (p *plan) limitDevice(d int32) {
	dev := &p.devs[d]
	if over := -p.free[d] - p.coming[d]; over > 0 { // 1
		p.offerSleepers(d, fmt.Sprintf("%s more of %s is in use than there is", over, dev.ID), func(i *instance, to api.Level) bool {
			return !i.reserved() && p.free[d]+p.coming[d] < 0 && p.releases(i, d, to) > 0
		})
		p.sleepIdleOn(d)
	}
	if d == p.nodes[p.of[d]].host {
		return
	}
	count, sum, changing := p.sleepersOf(d)
	if changing {
		return // the change under way may be enough
	}
	if most := p.pol.SleepersPerDevice; most > 0 && count > most { // 2
		p.offerSleepers(d, fmt.Sprintf("%d sleep on %s, which may have %d", count, dev.ID, most), func(i *instance, to api.Level) bool {
			if to < inventory.Stopped || count <= most {
				return false
			}
			count--
			sum -= p.heldAsleep(i, d)
			return true
		})
	}
	if share := p.pol.ResidueShare; share > 0 { // 3
		most := api.Bytes(share * float64(dev.Capacity))
		p.offerSleepers(d, fmt.Sprintf("sleepers hold %s of %s, of which they may have %s", sum, dev.ID, most), func(i *instance, to api.Level) bool {
			if sum <= most || p.releases(i, d, to) <= 0 {
				return false
			}
			sum -= p.releases(i, d, to)
			return true
		})
	}
}

// sleepersOf counts the sleepers of a GPU and the memory they hold asleep. changing reports whether one is changing its
// grant or going deeper.
func (p *plan) sleepersOf(d int32) (count int, sum api.Bytes, changing bool) {
	for _, i := range p.on[d] {
		changing = changing || i.Status.State == api.Asleep && i.Doing != Nothing && i.Doing != DoingWake
		if i.phase == phaseAsleep && !i.taken {
			count++
			sum += p.heldAsleep(i, d)
		}
	}
	return count, sum, changing
}

// offerSleepers offers the sleepers of d, the least recently used first, with each deeper level; accept decides whether one
// goes.
func (p *plan) offerSleepers(d int32, why string, accept func(i *instance, to api.Level) bool) {
	var is []*instance
	for _, i := range p.on[d] {
		if i.phase == phaseAsleep && !i.f.Undeclared && !i.settling(p.now) && !p.aboutToWake(i.f, i) {
			is = append(is, i)
		}
	}
	slices.SortFunc(is, func(a, b *instance) int { return compareNeed(b, a) })
	for _, i := range is {
		for to := i.Status.Level + 1; to <= inventory.Stopped; to++ {
			if i.Failures >= 2 && to < inventory.Stopped || !p.available(i) || !accept(i, to) {
				continue
			}
			reason := fmt.Sprintf("%s; used last %s ago", why, short(p.now.Sub(p.usedUntil(i, 1))))
			switch {
			case i.reserved(): // the holder of its grant may be waking it
				p.revoke(i, reason)
			case to == inventory.Stopped:
				p.stop(i, 0, reason)
			default:
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
	return p.heldAsleep(i, d) - p.claim(d, i.f.Past.Residue(to))
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
		p.sleep(i, level, fmt.Sprintf("%s more of %s is in use than there is; idle for %s",
			-(p.free[d]+p.coming[d]), p.devs[d].ID, short(p.now.Sub(p.usedUntil(i, 1)))))
		return // one at a time: its residue is measured first
	}
}
