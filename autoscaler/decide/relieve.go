package decide

import (
	"fmt"
	"slices"
)

// relieve puts idle instances to sleep, the least recently used first, while more of d is in use than there is, not
// counting reservations: instances or other processes use more than declared. Instances with work go on: stopping them
// would not help, since their next demand would need the same memory.
func (p *plan) relieve(d int32) {
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
	slices.SortFunc(idlers, func(a, b *instance) int { return p.wanted(b, a) })
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
