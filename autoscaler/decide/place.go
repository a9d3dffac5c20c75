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

// option is one way to bring up an instance.
type option struct {
	self    *inst // the sleeper to wake; nil for a new instance
	devices []api.DeviceID
	// needs is what it takes beyond what it holds already.
	needs bytes
	// own is the part of what is coming that the sleeper itself has not left yet.
	own bytes
	// touches is above zero for each device that must not be over-committed for this:
	// where it needs something, or counts on a reservation.
	touches bytes
	victims []victim
	// rank orders ways, best first; see best. regret orders ways of one rank.
	rank   int
	regret float64
	// ready is when the last of the victims may be touched.
	ready time.Time
}

// Ranks of ways, best first. Waking costs less than starting, and a start in
// free memory costs less than interrupting anybody's work.
const (
	wakeNow    = iota // a sleeper, in free memory
	wakeComing        // a sleeper, in memory that is on its way
	wakeIdle          // a sleeper, after grants or idle instances gave way
	startNow
	startComing
	startIdle
	wakeBusy // a sleeper, after busy instances gave way
	startBusy
)

// best finds the best way for c, nil if there is none. What is returned may
// have to wait: for memory on its way, or until its victims are ready.
func (p *plan) best(c *claim) *option {
	var best *option
	consider := func(o *option) {
		if !p.rate(c, o) {
			return
		}
		if best == nil || cmp.Or(cmp.Compare(o.rank, best.rank), cmp.Compare(o.regret, best.regret)) < 0 {
			best = o
		}
	}
	f := c.f
	for j := f.lo; j < f.hi; j++ {
		i := &p.is[j]
		if i.phase != phaseAsleep || !p.quiet(i) {
			continue
		}
		o := &option{self: i, devices: i.Status.Devices, needs: p.minus(i.up, i.held)}
		if i.settling(p.now) {
			// What it has not left yet is its own to take back, unless it was promised to another.
			if o.own = p.minus(i.held, p.expected(i)); !within(o.own, p.coming) {
				o.needs, o.own = p.minus(i.up, p.expected(i)), nil
			}
		}
		o.touches, o.regret = o.needs, f.Past.Return(i.Status.Level).Seconds()
		if i.reserved(p.now) {
			o.touches, o.regret = i.up, 0
		}
		consider(o)
	}
	if best != nil && best.rank <= wakeIdle || f.falling+f.passing > 0 {
		return best
	}
	for _, devices := range p.placements(f) {
		o := &option{devices: devices, needs: p.alloc()}
		p.amount(o.needs, whole(f.Need), devices)
		o.touches = o.needs
		o.regret = f.Past.Return(inventory.Stopped).Seconds()
		consider(o)
	}
	return best
}

// rate fills in o's rank and victims, and says whether it is a way at all.
func (p *plan) rate(c *claim, o *option) bool {
	base := wakeNow
	if o.self == nil {
		base = startNow
	}
	if o.fits(p.free, nil) {
		o.rank = base
		return true
	}
	if o.fits(p.free, p.coming) {
		o.rank = base + 1
		return true
	}
	var ok bool
	if o.victims, ok = p.victims(c, o); !ok {
		return false
	}
	interrupts := slices.ContainsFunc(o.victims, func(v victim) bool { return v.kind == busy })
	switch {
	case !interrupts:
		o.rank = base + 2
	case o.self != nil:
		o.rank = wakeBusy
	default:
		o.rank = startBusy
	}
	for _, v := range o.victims {
		o.regret += v.regret
		o.ready = later(o.ready, v.ready)
	}
	return true
}

// fits says whether free and coming together hold what o needs. A device that
// o does not touch does not matter, however short it is.
func (o *option) fits(free, coming bytes) bool {
	for d, n := range o.needs {
		have := free[d]
		if coming != nil {
			have += coming[d]
		}
		if o.touches[d] > 0 && n > have {
			return false
		}
	}
	return true
}

// placements lists the sets of GPUs that a new instance of f may get: each GPU
// for an instance that needs one, otherwise the set with most to gain.
func (p *plan) placements(f *fn) [][]api.DeviceID {
	if f.Need.Devices == 0 {
		return [][]api.DeviceID{nil}
	}
	var fit []int
	for d := 1; d < len(p.s.Devices); d++ {
		if p.s.Devices[d].Capacity >= f.Need.PerDevice {
			fit = append(fit, d)
		}
	}
	// The GPU that is nearest to having room comes first; of those that have it,
	// the fullest, so that large gaps stay whole.
	lack := func(d int, coming api.Bytes) api.Bytes {
		need := f.Need.PerDevice
		if need == 0 {
			need = p.s.Devices[d].Capacity
		}
		return max(0, need-p.free[d]-coming)
	}
	slices.SortStableFunc(fit, func(a, b int) int {
		return cmp.Or(
			cmp.Compare(lack(a, p.coming[a]), lack(b, p.coming[b])),
			cmp.Compare(lack(a, 0), lack(b, 0)),
			cmp.Compare(p.free[a], p.free[b]))
	})
	if len(fit) < f.Need.Devices {
		return nil
	}
	if f.Need.Devices > 1 {
		fit = fit[:f.Need.Devices]
		ids := make([]api.DeviceID, len(fit))
		for k, d := range fit {
			ids[k] = p.s.Devices[d].ID
		}
		slices.Sort(ids)
		return [][]api.DeviceID{ids}
	}
	sets := make([][]api.DeviceID, len(fit))
	for k, d := range fit {
		sets[k] = []api.DeviceID{p.s.Devices[d].ID}
	}
	return sets
}

// take goes o's way as far as it goes now.
func (p *plan) take(c *claim, o *option) {
	f := c.f
	if o.self != nil {
		o.self.taken = true
	}
	// 1. Victims that are not ready: wait.
	if !p.due(o.ready) {
		lack := p.lack(o.needs)
		p.ahead(c, o.needs)
		p.wait(c, fmt.Sprintf("lacks %s; %s makes room at %s",
			lack, o.victims[len(o.victims)-1].i.Status.Instance, o.ready.Format("15:04:05.000")))
		return
	}
	// 2. Victims, or memory that is on its way: what comes is booked for this claim.
	if len(o.victims) > 0 || !o.fits(p.free, nil) {
		lack, from := p.lack(o.needs), p.leavers(o)
		for k := range o.victims {
			p.sacrifice(c, &o.victims[k], lack)
		}
		p.book(o.needs)
		p.wait(c, fmt.Sprintf("lacks %s; waits for %s", lack, from))
		return
	}
	// 3. There is room.
	free := p.s.left(p.free)
	for d, n := range o.needs {
		p.free[d] -= n
		if o.own != nil {
			p.coming[d] -= o.own[d]
		}
	}
	if o.self == nil {
		p.do(nil, Action{Kind: Start, Function: f.Spec.Name, Devices: o.devices, Memory: f.Need,
			Reason: fmt.Sprintf("%s; needs %s, free %s", c.why, amountOf(f.Need), free)})
		return
	}
	p.do(o.self, Action{Kind: Wake, Devices: o.devices, Memory: f.Need,
		Reason: fmt.Sprintf("%s; asleep at level %d, back in about %s; needs %s more, free %s", c.why,
			o.self.Status.Level, short(f.Past.Return(o.self.Status.Level)), p.s.left(o.needs), free)})
}

// ahead books for a claim that has to wait. Who has starved for a turn books at
// once, so that smaller ones don't slip in for ever; others let first instances
// that fit go ahead, but nothing else.
func (p *plan) ahead(c *claim, needs bytes) {
	p.at(c.f.starved.Add(time.Duration(p.pol.Patience) * p.pol.TurnWait)) // its place in the order changes then
	switch {
	case c.class != first:
	case p.due(c.f.starved.Add(p.pol.TurnWait)):
		p.book(needs)
	default:
		p.deferred = append(p.deferred, needs)
	}
}

// book takes needs for a claim that waits: what is on its way first, so that others may
// use what is free, and the rest from what is free, below zero if it must be.
func (p *plan) book(needs bytes) {
	for d, n := range needs {
		c := min(n, max(0, p.coming[d]))
		p.coming[d] -= c
		p.free[d] -= n - c
	}
}

// leavers names what o waits for.
func (p *plan) leavers(o *option) string {
	var names []string
	for _, v := range o.victims {
		names = append(names, string(v.i.Status.Instance))
	}
	for k := range p.is {
		i := &p.is[k]
		if len(o.victims) == 0 && (i.phase == phaseFalling || i.phase == phaseLeaving || i.Doing == DoingRevoke || i.settling(p.now)) {
			names = append(names, string(i.Status.Instance))
		}
	}
	return strings.Join(names, " and ")
}

// lack prints what needs go beyond what is free.
func (p *plan) lack(needs bytes) string {
	short := p.alloc()
	for d, n := range needs {
		if n > 0 {
			short[d] = max(0, n-max(0, p.free[d]))
		}
	}
	return p.s.left(short)
}

// left prints an amount for each device that has one.
func (s *Snapshot) left(b bytes) string {
	var parts []string
	for d, v := range b {
		if v == 0 && len(b) > 1 || d > 0 && v < 0 {
			continue
		}
		parts = append(parts, fmt.Sprintf("%s of %s", max(0, v), s.Devices[d].ID))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// amountOf prints a need.
func amountOf(m api.Memory) string {
	s := m.Host.String() + " of host"
	switch {
	case m.Devices > 0 && m.PerDevice == 0:
		s += " and " + many(m.Devices, "whole GPU")
	case m.Devices > 0:
		s += fmt.Sprintf(" and %s on %s", m.PerDevice, many(m.Devices, "GPU"))
	}
	return s
}
