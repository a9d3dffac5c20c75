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
	self *Instance // the sleeper to wake; nil for a new instance
	node int32
	// at lists the devices, the host first; needs is what the option takes of them beyond what the instance holds already.
	at    []int32
	needs bytes
	// own is the part of the coming memory that the sleeper itself has not released yet.
	own bytes
	// touches is positive for each device that must not be over-committed: the option needs memory there or relies on a reservation.
	touches bytes
	victims []victim
	// Options are ordered by rank (see best), then by whether the model's files must be fetched, the devices' price, and regret (lost time).
	rank   int
	fetch  bool
	price  float64
	regret regret
	// ready is the time when the last of the victims may be touched.
	ready time.Time
	// says is the reason given while the demand waits, written at the first use.
	says string
}

// Ranks of options, best first. Waking costs less than starting, and starting in free memory less than interrupting work.
const (
	wakeNow    = iota // wake a sleeper in free memory
	wakeComing        // wake a sleeper in coming memory
	wakeIdle          // wake a sleeper after grants or idle instances gave way
	startNow
	startComing
	startIdle
	wakeAgain  // any of the wakes, where the last try failed
	startAgain // any of the starts, where the last try failed
	wakeBusy   // wake a sleeper after busy instances gave way
	startBusy
)

// compareWays orders options, the better first.
func (p *plan) compareWays(o, other *option) int {
	if way := cmp.Or(
		cmp.Compare(o.rank, other.rank),
		cmp.Compare(btoi(o.fetch), btoi(other.fetch)),
		cmp.Compare(o.price, other.price),
		compareKept(o, other)); way != 0 {
		return way
	}
	return p.compareRegrets(o.regret, other.regret)
}

// compareKept orders two wakes in free memory from the same level: the sleeper that has kept the requested conversation goes first.
func compareKept(o, other *option) int {
	a, b := o.self, other.self
	if a == nil || b == nil || o.rank != wakeNow || a.f.Prefers == "" || a.Status.Level != b.Status.Level {
		return 0
	}
	return cmp.Compare(btoi(a.Status.Instance != a.f.Prefers), btoi(b.Status.Instance != b.f.Prefers))
}

// find returns the best option for dm; sleepers are those of its function that may be woken now. See [plan.best].
func (p *plan) find(dm *demand, sleepers []*Instance) *option {
	var best *option
	consider := func(o *option) bool {
		if !p.rate(dm, o) {
			return false
		}
		if o.rank <= startIdle && p.again(dm.f, o) {
			o.rank = wakeAgain
			if o.self == nil {
				o.rank = startAgain
			}
		}
		if best == nil || p.compareWays(o, best) < 0 {
			best = o
		}
		return o.rank <= startIdle
	}
	f := dm.f
	for _, i := range sleepers {
		consider(p.waking(i))
	}
	if best != nil && best.rank <= wakeIdle || f.falling+f.passing > 0 || f.Bound {
		return best
	}
	turn := best != nil && p.turn(best, f.Past.Return(inventory.Stopped))
	easy := 0
	for _, s := range p.places() {
		o := &option{node: s.node, at: p.devicesOf(f, s), fetch: s.fetch, price: s.price}
		o.needs = p.alloc(len(o.at))
		p.w.fill(o.needs, o.at, whole(f.needOn(s.node)))
		o.touches = o.needs
		p.reads(o.at)
		o.regret.v = f.Past.Return(inventory.Stopped).Seconds()
		if turn && !o.fits(p.free, nil) {
			continue // its turn comes before a start would be done; only free memory is better
		}
		if consider(o) {
			easy++
		}
		if easy == mostEasy && p.w.large() {
			break
		}
	}
	return best
}

// turn reports whether o's sleeper, which needs busy instances to give way first, is awake sooner than in limit.
func (p *plan) turn(o *option, limit time.Duration) bool {
	var rest time.Duration
	for _, v := range o.victims {
		rest = max(rest, v.i.rest())
	}
	limit -= rest + o.self.past().Return(o.self.Status.Level)
	p.holdsUntil(o.ready.Add(1 - limit))
	return max(0, o.ready.Sub(p.now)) < limit
}

// waking returns the option to wake i.
func (p *plan) waking(i *Instance) *option {
	o := &option{self: i, node: i.node, at: i.at, needs: p.minus(i.up, i.held), price: p.price(i.at)}
	if i.settling(p.now) {
		// It may take back the memory that it has not released yet, unless that was promised to another.
		if o.own = p.minus(i.held, p.expected(i)); !p.mayKeep(i, o.own) {
			o.needs, o.own = p.minus(i.up, p.expected(i)), nil
		}
	}
	o.touches, o.regret.v = o.needs, i.f.Past.Return(i.Status.Level).Seconds()
	if i.reserved() {
		o.touches, o.regret.v = i.up, 0
	}
	return o
}

// mayKeep reports whether i may take back memory that it has not released yet: it is promised to no other, and the device is not over-committed.
func (p *plan) mayKeep(i *Instance, own bytes) bool {
	for k, d := range i.at {
		if own[k] > 0 && own[k] > min(p.coming[d], p.free[d]+p.coming[d]) {
			return false
		}
	}
	return true
}

// price returns the GPUs' cost per hour.
func (p *plan) price(at []int32) (sum float64) {
	for _, d := range at[1:] {
		sum += p.w.facts[d].price
	}
	return sum
}

// rate sets o's rank and victims, and reports whether o is possible.
func (p *plan) rate(dm *demand, o *option) bool {
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
	if o.victims, ok = p.victims(dm, o); !ok {
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
		o.regret.v += v.regret.v
		o.regret.pace += v.regret.pace
		o.ready = later(o.ready, v.ready)
	}
	return true
}

// fits reports whether free and coming together cover o's needs. Devices that o does not touch are ignored, even over-committed ones.
func (o *option) fits(free, coming bytes) bool {
	for k, d := range o.at {
		have := free[d]
		if coming != nil {
			have += coming[d]
		}
		if o.touches[k] > 0 && o.needs[k] > have {
			return false
		}
	}
	return true
}

// follow carries out o as far as possible now.
func (p *plan) follow(dm *demand, o *option) {
	f := dm.f
	if o.self != nil {
		p.take(o.self)
	}
	// 1. Victims that are not ready: wait.
	if !p.due(f, o.ready) {
		if o.says == "" {
			o.says = fmt.Sprintf("lacks %s; %s makes room at %s", p.lack(o), o.victims[len(o.victims)-1].i.Status.Instance, o.ready.Format("15:04:05.000"))
		}
		p.bookAhead(dm, amounts{o.at, o.needs})
		p.wait(dm, o.says)
		return
	}
	// 2. Victims, or coming memory: book it for this demand.
	if len(o.victims) > 0 || !o.fits(p.free, nil) {
		if len(o.victims) > 0 || o.says == "" {
			lack := p.lack(o)
			o.says = fmt.Sprintf("lacks %s; waits for %s", lack, p.leavers(o))
			for k := range o.victims {
				p.evict(dm, &o.victims[k], lack)
			}
		}
		p.book(amounts{o.at, o.needs})
		p.wait(dm, o.says)
		return
	}
	// 3. There is room.
	free := p.room(o.at)
	var gpus []api.DeviceID
	for k, d := range o.at {
		own := api.Bytes(0)
		if o.own != nil {
			own = o.own[k]
		}
		p.spend(d, -o.needs[k], -own)
		if k > 0 {
			gpus = append(gpus, p.w.devs[d].ID)
		}
	}
	if o.self == nil {
		slices.Sort(gpus)
		need := f.needOn(o.node)
		p.do(f, nil, Action{Kind: Start, Node: p.w.nodes[o.node].name, Devices: gpus, Memory: f.Need, Ahead: dm.class == ahead,
			Reason: fmt.Sprintf("%s; needs %s%s, free %s", dm.why, amountOf(need), inMemoryThere(f.Need.Host-need.Host), free)})
		return
	}
	p.do(f, o.self, Action{Kind: Wake, Devices: o.self.Status.Devices, Memory: f.Need, Ahead: dm.class == ahead && !dm.rehearsal, Rehearsal: dm.rehearsal,
		Reason: fmt.Sprintf("%s; asleep at level %d, back in about %s; needs %s more%s, free %s", dm.why,
			o.self.Status.Level, short(f.Past.Return(o.self.Status.Level)), p.left(o.at, o.needs), inMemoryThere(o.self.spared), free)})
}

// bookAhead books for a demand that has to wait. A demand that has starved for a turn books at once, so that smaller ones don't overtake it for ever; others
// let first instances that fit go ahead, but nothing else.
func (p *plan) bookAhead(dm *demand, needs amounts) {
	p.at(dm.f, dm.f.starved.Add(time.Duration(p.pol.Patience)*p.pol.TurnWait)) // its place in the order changes then
	switch {
	case dm.class != first:
	case p.due(dm.f, dm.f.starved.Add(p.pol.TurnWait)):
		p.book(needs)
	default:
		p.deferred = append(p.deferred, needs)
	}
}

// book takes needs for a demand that waits: coming memory first, so that others may use free memory, and the rest from free memory, which may become
// negative.
func (p *plan) book(needs amounts) {
	for k, d := range needs.at {
		n := needs.n[k]
		c := min(n, max(0, p.coming[d]))
		p.spend(d, c-n, -c)
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
			for _, i := range p.w.on[d] {
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
		if v == 0 && len(p.w.devs) > 1 || k > 0 && v < 0 {
			continue
		}
		parts = append(parts, fmt.Sprintf("%s of %s", max(0, v), p.w.devs[at[k]].ID))
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
