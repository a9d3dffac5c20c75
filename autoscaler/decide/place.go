package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// follow carries out o as far as possible now.
func (q *queue) follow(dm *demand, o *option) {
	if o.self != nil {
		o.self.taken = true
	}
	// 1. Victims that are not ready: wait.
	if !q.due(o.ready) {
		lack := q.lack(o)
		q.bookAhead(dm, amounts{o.at, o.needs})
		q.wait(dm, fmt.Sprintf("lacks %s; %s makes room at %s", lack, o.victims[len(o.victims)-1].i.Status.Instance, o.ready.Format("15:04:05.000")))
		return
	}
	// 2. Victims, or coming memory: book it for this demand.
	if len(o.victims) > 0 || !o.fits(q.free, nil) {
		lack, leavers := q.lack(o), q.leavers(o)
		for k := range o.victims {
			q.evict(dm, &o.victims[k], lack)
		}
		q.book(amounts{o.at, o.needs})
		q.wait(dm, fmt.Sprintf("lacks %s; waits for %s", lack, leavers))
		return
	}
	// 3. There is room.
	q.bringUp(dm, o)
}

// bringUp starts or wakes an instance for dm, in free memory.
func (p *plan) bringUp(dm *demand, o *option) {
	f, free := dm.f, p.room(o.at)
	var gpus []api.DeviceID
	for k, d := range o.at {
		own := api.Bytes(0)
		if o.own != nil {
			own = o.own[k]
		}
		p.spend(d, -o.needs[k], -own)
		if k > 0 {
			gpus = append(gpus, p.devs[d].ID)
		}
	}
	if o.self == nil {
		slices.Sort(gpus)
		need := f.needOn(o.node)
		p.do(f, nil, Action{Kind: Start, Node: p.nodes[o.node].name, Devices: gpus, Memory: f.Need, Ahead: dm.class == ahead,
			Reason: fmt.Sprintf("%s; needs %s%s, free %s", dm.why, amountOf(need), inMemoryThere(f.Need.Host-need.Host), free)})
		return
	}
	p.do(f, o.self, Action{Kind: Wake, Devices: o.self.Status.Devices, Memory: f.Need, Ahead: dm.class == ahead && !dm.rehearsal, Rehearsal: dm.rehearsal,
		Reason: fmt.Sprintf("%s; asleep at level %d, back in about %s; needs %s more%s, free %s", dm.why,
			o.self.Status.Level, short(f.Past.Return(o.self.Status.Level)), p.left(o.at, o.needs), inMemoryThere(o.self.spared), free)})
}

// bookAhead books for a demand that has to wait. A demand that has starved for a turn books at once, so that smaller ones don't overtake it for ever; others
// let first instances that fit go ahead, but nothing else.
func (q *queue) bookAhead(dm *demand, needs amounts) {
	q.at(dm.f.starved.Add(time.Duration(q.pol.Patience) * q.pol.TurnWait)) // its place in the order changes then
	switch {
	case dm.class != first:
	case q.due(dm.f.starved.Add(q.pol.TurnWait)):
		q.book(needs)
	default:
		q.deferred = append(q.deferred, needs)
	}
}

// leavers names what o waits for: its victims, else the instances that release memory of a device that it lacks.
func (p *plan) leavers(o *option) string {
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

// lack formats what o needs beyond the free memory.
func (p *plan) lack(o *option) string {
	short := p.alloc(len(o.at))
	for k, d := range o.at {
		if o.needs[k] > 0 {
			short[k] = max(0, o.needs[k]-max(0, p.free[d]))
		}
	}
	return p.left(o.at, short)
}

// room formats the free memory of devices.
func (p *plan) room(at []int32) string {
	free := p.alloc(len(at))
	for k, d := range at {
		free[k] = p.free[d]
	}
	return p.left(at, free)
}

// left formats the amount of each device that has one.
func (p *plan) left(at []int32, b bytes) string {
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

// amountOf formats a need.
func amountOf(m api.Memory) string {
	s := m.Host.String() + " of host"
	switch {
	case m.Devices > 0 && m.PerDevice == 0 && m.Share == 0:
		s += fmt.Sprintf(" and %s (nothing says how much of it: %s would, such as %s: 20Gi)", many(m.Devices, "whole GPU"), api.AnnotationDeviceMemory, api.AnnotationDeviceMemory)
	case m.Devices > 0 && m.PerDevice == 0 && m.Share == 1:
		s += " and " + many(m.Devices, "whole GPU")
	case m.Devices > 0 && m.PerDevice == 0:
		s += fmt.Sprintf(" and %.0f%% of %s", m.Share*100, many(m.Devices, "GPU"))
	case m.Devices > 0:
		s += fmt.Sprintf(" and %s on %s", m.PerDevice, many(m.Devices, "GPU"))
	}
	return s
}
