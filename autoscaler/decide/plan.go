package decide

import (
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// Plan says what to do at now, and when to look again even if nothing happens
// until then; a zero time means never. s must be in the order of
// [Snapshot.Sort]. Plan neither blocks nor keeps or changes anything of s.
//
// The memory of what is awake, on its way or reserved never exceeds a device's
// capacity by an action of Plan.
func Plan(s Snapshot, now time.Time) ([]Action, time.Time) {
	if len(s.Devices) == 0 {
		return nil, time.Time{}
	}
	p := newPlan(&s, now)
	p.overdue() // 1
	p.obey()    // 2
	p.claim()   // 3
	p.rest()    // 4
	p.grant()   // 5
	return p.actions, p.next
}

// phase is what an instance is about, the call under way included.
type phase int

const (
	phaseAsleep  phase = iota
	phaseRising        // starting or waking
	phaseAwake         //
	phaseFalling       // draining or going to sleep, or deeper
	phaseLeaving       // being stopped
	phaseIll           // unhealthy
)

// bytes holds an amount for each device, in the order of Snapshot.Devices.
type bytes []api.Bytes

// fn is a function in a plan.
type fn struct {
	*Function
	lo, hi int // its instances are is[lo:hi]
	// How many instances are in which phase.
	awake, rising, falling, leaving, ill, asleep int
	// passing counts sleepers to which a grant is just being given, or taken from.
	passing int
	// desired is how many should be awake.
	desired int
	// refused says that this plan refuses what waits for it; waits that it was told
	// to wait; gives that it makes room for another and claims nothing itself.
	refused, waits, gives bool
	// starved is since when it waits without having anything awake.
	starved time.Time
}

// live counts the instances that are awake or will be.
func (f *fn) live() int { return f.awake + f.rising + f.ill }

// busy says whether requests wait or run.
func (f *fn) busy() bool { return f.Waiting+f.Running > 0 }

// inst is an instance in a plan.
type inst struct {
	*Instance
	f     *fn // nil if the function is not declared
	phase phase
	// held is what it takes now; up is what it takes while awake.
	held, up bytes
	// taken says that this plan has dealt with it.
	taken bool
}

// plan is the working state of one call of Plan.
type plan struct {
	s    *Snapshot
	pol  Policy
	now  time.Time
	next time.Time
	fs   []fn
	is   []inst
	// free is what is left of each device. It goes below zero where claims that may
	// not act yet have booked ahead. coming is what instances on their way down will leave.
	free, coming bytes
	// deferred is what claims need that wait and have not booked yet.
	deferred []bytes
	scratch  bytes
	slab     bytes // what alloc cuts from
	// gainer is the function that room is being made for, empty for none.
	gainer  api.FunctionName
	actions []Action
}

func newPlan(s *Snapshot, now time.Time) *plan {
	p := &plan{s: s, pol: s.Policy.WithDefaults(), now: now}
	p.fs = make([]fn, len(s.Functions))
	p.is = make([]inst, len(s.Instances))
	p.slab = make(bytes, len(s.Devices)*(3+2*len(s.Instances)))
	p.free, p.coming, p.scratch = p.alloc(), p.alloc(), p.alloc()
	for i, dev := range s.Devices {
		p.free[i] = dev.Capacity
	}
	k := 0
	for i := range s.Functions {
		f := &p.fs[i]
		f.Function = &s.Functions[i]
		for k < len(s.Instances) && s.Instances[k].Status.Function < f.Spec.Name {
			p.place(k, nil, p.alloc(), p.alloc())
			k++
		}
		f.lo = k
		for k < len(s.Instances) && s.Instances[k].Status.Function == f.Spec.Name {
			p.place(k, f, p.alloc(), p.alloc())
			k++
		}
		f.hi = k
		p.weigh(f)
	}
	for ; k < len(s.Instances); k++ {
		p.place(k, nil, p.alloc(), p.alloc())
	}
	return p
}

// alloc returns zeros for each device. They live as long as the plan.
func (p *plan) alloc() bytes {
	d := len(p.s.Devices)
	if len(p.slab) < d {
		p.slab = make(bytes, 64*d)
	}
	b := p.slab[:d:d]
	p.slab = p.slab[d:]
	return b
}

// place books instance k.
func (p *plan) place(k int, f *fn, held, up bytes) {
	i := &p.is[k]
	*i = inst{Instance: &p.s.Instances[k], f: f, held: held, up: up}
	i.phase = phaseOf(i.Instance)
	m := i.Status.Memory
	p.amount(held, m, i.Status.Devices)
	p.amount(up, m, i.Status.Devices)
	if f != nil {
		p.amount(p.scratch, whole(f.Need), i.Status.Devices)
		for d := range up {
			up[d] = max(up[d], p.scratch[d])
		}
		f.count(i.phase)
		if i.Doing == DoingGrant || i.Doing == DoingRevoke {
			f.passing++
		}
	}
	if i.Status.State != api.Asleep || i.phase == phaseRising || i.reserved(p.now) {
		copy(held, up)
	}
	for d := range held {
		p.free[d] -= held[d]
	}
	switch {
	case i.phase == phaseLeaving:
		p.leave(held, nil)
	case i.phase == phaseFalling && f != nil:
		p.amount(p.scratch, f.Past.Residue(max(i.Level, api.Level1)), i.Status.Devices)
		p.leave(held, p.scratch)
	case i.Doing == DoingRevoke:
		p.amount(p.scratch, m, i.Status.Devices)
		p.leave(held, p.scratch)
	case i.settling(p.now):
		p.at(i.Settles)
		p.amount(p.scratch, i.past().Residue(i.Status.Level), i.Status.Devices)
		p.leave(held, p.scratch)
	}
}

// leave books held as coming, less what stays.
func (p *plan) leave(held, stays bytes) {
	for d := range held {
		c := held[d]
		if stays != nil {
			c -= min(stays[d], held[d])
		}
		p.coming[d] += c
	}
}

// wholeDevice stands for all of a device.
const wholeDevice api.Bytes = -1

// whole marks a need that names devices but no amount: all of each.
func whole(m api.Memory) api.Memory {
	if m.Devices > 0 && m.PerDevice == 0 {
		m.PerDevice = wholeDevice
	}
	return m
}

// amount writes m on devices into b.
func (p *plan) amount(b bytes, m api.Memory, devices []api.DeviceID) {
	clear(b)
	b[0] = m.Host
	for _, id := range devices {
		for d := 1; d < len(b); d++ {
			if p.s.Devices[d].ID != id {
				continue
			}
			b[d] = m.PerDevice
			if m.PerDevice == wholeDevice {
				b[d] = p.s.Devices[d].Capacity
			}
		}
	}
}

// phaseOf says what i is about.
func phaseOf(i *Instance) phase {
	switch i.Doing {
	case DoingStop:
		return phaseLeaving
	case DoingSleep:
		return phaseFalling
	case DoingStart, DoingWake:
		return phaseRising
	}
	if i.Outdated {
		return phaseLeaving
	}
	switch i.Status.State {
	case api.Awake:
		return phaseAwake
	case api.Draining:
		return phaseFalling
	case api.Unhealthy:
		return phaseIll
	case api.Asleep:
		if i.Waking {
			return phaseRising
		}
		return phaseAsleep
	case api.Gone:
		return phaseLeaving
	}
	return phaseRising
}

// reserved says whether memory is kept for i to be awake, though it is not.
func (i *Instance) reserved(now time.Time) bool {
	return i.Doing == DoingGrant || i.Doing == DoingRevoke || i.Grant.Valid(now)
}

// settling says whether i sleeps and is expected to report less than it holds.
func (i *inst) settling(now time.Time) bool {
	return i.phase == phaseAsleep && i.Doing == Nothing && now.Before(i.Settles) && !i.reserved(now)
}

// expected is what i, which is settling, will hold.
func (p *plan) expected(i *inst) bytes {
	b := p.alloc()
	p.amount(b, i.past().Residue(i.Status.Level), i.Status.Devices)
	return b
}

func (f *fn) count(ph phase) {
	switch ph {
	case phaseAsleep:
		f.asleep++
	case phaseRising:
		f.rising++
	case phaseAwake:
		f.awake++
	case phaseFalling:
		f.falling++
	case phaseLeaving:
		f.leaving++
	case phaseIll:
		f.ill++
	}
}

// weigh works out how many instances f should have awake, and since when it starves.
func (p *plan) weigh(f *fn) {
	c := max(1, f.Spec.Concurrency)
	f.desired = min((f.Waiting+f.Running+c-1)/c, max(1, f.Spec.MaxScale))
	if f.live() == 0 && f.Waiting > 0 {
		f.desired = max(f.desired, min(f.Spec.ActivationScale, max(1, f.Spec.MaxScale)))
	}
	f.desired = max(f.desired, f.Spec.MinScale)
	switch f.Order {
	case OrderWake:
		f.desired = max(f.desired, 1)
	case OrderSleep, OrderStop:
		f.desired = 0
	}
	f.starved = p.now
	if f.awake == 0 {
		f.starved = later(f.ServedUntil, f.OrderedAt)
		if f.Waiting > 0 && !f.WaitingSince.IsZero() {
			f.starved = later(f.ServedUntil, f.WaitingSince)
		}
		if f.starved.IsZero() {
			f.starved = p.now
		}
	}
}

// at asks for a look at t.
func (p *plan) at(t time.Time) {
	if t.After(p.now) && (p.next.IsZero() || t.Before(p.next)) {
		p.next = t
	}
}

// due says whether t has come, and asks for a look then if it has not.
func (p *plan) due(t time.Time) bool {
	p.at(t)
	return !t.After(p.now)
}

// do adds an action, and marks the instance that it is for.
func (p *plan) do(i *inst, a Action) {
	if i != nil {
		i.taken = true
		a.Instance = i.Status.Instance
		a.Function = i.Status.Function
	}
	p.actions = append(p.actions, a)
}

// quiet says whether i can be given something to do now.
func (p *plan) quiet(i *inst) bool {
	return !i.taken && i.Doing == Nothing && p.due(i.RetryAt)
}

// past is what was learned of i's function.
func (i *inst) past() inventory.Experience {
	if i.f == nil {
		return inventory.Experience{}
	}
	return i.f.Past
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
