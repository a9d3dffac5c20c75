package decide

import (
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/internal/due"
)

// Plan returns what to do at now, and when to plan again even if nothing happens until then; a zero time means never. s must be in the order of
// [Snapshot.Sort]. Plan does not block, and neither keeps nor changes anything of s.
//
// No action of Plan makes the memory that is awake, on its way or reserved exceed a device's capacity.
func Plan(s Snapshot, now time.Time) ([]Action, time.Time) {
	return worldOf(&s).Plan(now)
}

// worldOf returns a world of copies of the records in s.
func worldOf(s *Snapshot) *World {
	w := NewWorld(s.Policy, s.Devices)
	w.rooms, w.unmanaged, w.elastic = s.Rooms, s.Unmanaged, s.Elastic
	functions, instances := slices.Clone(s.Functions), slices.Clone(s.Instances)
	w.fns = make(map[api.FunctionName]*Function, len(functions))
	all := make([]*Instance, len(instances))
	for k := range all {
		all[k] = &instances[k]
	}
	of := func(name api.FunctionName) (is []*Instance) {
		k := 0
		for k < len(all) && all[k].Status.Function == name {
			k++
		}
		is, all = all[:k:k], all[k:]
		return is
	}
	undeclaredBelow := func(name api.FunctionName) {
		for len(all) > 0 && (name == "" || all[0].Status.Function < name) {
			f := &Function{Undeclared: true}
			f.Spec.Name = all[0].Status.Function
			f.Instances = of(f.Spec.Name)
			w.Put(f)
		}
	}
	for k := range functions {
		f := &functions[k]
		undeclaredBelow(f.Spec.Name)
		f.Instances = of(f.Spec.Name)
		w.Put(f)
	}
	undeclaredBelow("")
	return w
}

// bytes holds amounts of devices: of all devices of a world, or of those of a list beside it.
type bytes []api.Bytes

// functionState is the part of a function that the world computes.
type functionState struct {
	pinned api.Bytes // the host memory that MinScale keeps
	// inLedger says that entered, the instances at that time, are in the ledger; until is when those entries change by themselves.
	inLedger bool
	entered  []*Instance
	until    time.Time
	// removed says that the world has forgotten it.
	removed bool
	// edition counts the changes of it and its instances.
	edition uint64
	// active says that the next plan looks at it; hot, that the one after has to as well.
	active, hot bool
	// deadline is its entry in World.deadlines; next is the time that the current plan sets there.
	deadline due.Item[*Function]
	next     time.Time
	noted    bool // the current plan has dealt with it
	listed   bool // it is in the list that is being built
	// The number of instances in each phase.
	awake, rising, falling, leaving, ill, asleep int
	// passing is the number of sleepers whose grant is being given or revoked.
	passing int
	// desired is how many should be awake; scaled says that [Function.Scale] sets it.
	desired int
	scaled  bool
	// inMemory describes the file that its instances share, by node; see [Function.besides].
	inMemory []beside
	// enrolled is its key in [World.groups].
	enrolled group
	// pressed and pressure are results of [Function.Wanted].
	pressed  bool
	pressure string
	// refused says that this plan refuses its waiting requests; waits, that a Wait was recorded; gives, that it makes room for another function
	// and demands nothing itself.
	refused, waits, gives bool
	// starved is since when it waits without an awake instance.
	starved time.Time
}

// live returns the number of instances that are awake or will be.
func (f *Function) live() int { return f.awake + f.rising + f.ill }

// busy reports whether requests wait or run.
func (f *Function) busy() bool { return f.Waiting+f.Running > 0 }

// instanceState is the part of an instance that the world computes.
type instanceState struct {
	f *Function
	// node is its node; at are the devices that it holds memory of, the host first.
	node int32
	at   []int32
	// lost says that its node or one of its devices does not exist.
	lost  bool
	phase phase
	// held is what it takes now of each device in at, up what it takes while awake, leaves the part of held that is being released.
	held, up, leaves bytes
	// spared is the part of up that another instance bears until this one has reported its own; lent is what it bears so for others. See
	// [Function.besides].
	spared, lent api.Bytes
	// places are its indexes in World.on, one for each device in at.
	places []int
	soft   bool   // it could give way without interrupting work
	print  uint64 // its part of its node's fingerprint; see search.go
	// taken says that the current plan has dealt with it.
	taken bool
	// permitted says that it dealt with its grant.
	permitted bool
	// seen says that the current plan has it in a list; key is the sort key of that list.
	seen bool
	key  time.Time
}

// plan is the working state of one call of Plan. Its bookings are undone at its end.
type plan struct {
	w   *World
	pol *Policy
	now time.Time
	fs  []*Function // the functions to look at, by name
	// free is what is left of each device, negative if waiting demands have booked ahead. coming is what instances on their way down will
	// release.
	free, coming bytes
	journal      []entry
	takenOnes    []*Instance
	noted        []*Function
	// demands and order are buffers of meetDemands, kept for reuse.
	demands []demand
	order   []*demand
	// deferred are the needs of waiting demands that have not been booked yet.
	deferred []amounts
	slab     bytes                 // alloc cuts from it
	grants   map[int32][]*Instance // see standing
	slotOf   []int32
	spot     spot // the one that is offered just now
	// elected has one entry for each further instance that this plan chose for requests to a model with variants.
	elected []*Function
	// gainer is the function that room is being made for; empty: none.
	gainer api.FunctionName
	// moves says that requests of the instance that gives way are moved.
	moves   bool
	actions []Action
	most    int // the number of actions of the last plan
}

// entry is one booking.
type entry struct {
	device       int32
	free, coming api.Bytes
}

// amounts is memory per device: n[k] bytes of device at[k].
type amounts struct {
	at []int32
	n  bytes
}

// reset prepares p for a plan at now.
func (p *plan) reset(now time.Time) {
	p.pol, p.now = &p.w.pol, now
	p.journal, p.takenOnes, p.noted, p.deferred = p.journal[:0], p.takenOnes[:0], p.noted[:0], p.deferred[:0]
	p.slab, p.gainer, p.elected = nil, "", p.elected[:0]
	p.actions = make([]Action, 0, p.most) // a new slice: the caller keeps it
}

// alloc returns n zeros. They are valid until the end of the plan.
func (p *plan) alloc(n int) bytes {
	if len(p.slab) < n {
		p.slab = make(bytes, max(n, 512))
	}
	b := p.slab[:n:n]
	p.slab = p.slab[n:]
	return b
}

// spend adds free and coming to device's account, for this plan only.
func (p *plan) spend(device int32, free, coming api.Bytes) {
	if free == 0 && coming == 0 {
		return
	}
	p.w.account(device, free, coming, 0)
	p.journal = append(p.journal, entry{device, free, coming})
}

// leave books what i releases as coming; stays is what it keeps, nil for nothing.
func (p *plan) leave(i *Instance, stays bytes) {
	for k, d := range i.at {
		c := i.held[k]
		if stays != nil {
			c -= min(stays[k], c)
		}
		if k == 0 {
			c -= min(i.common(), c)
		}
		p.spend(d, 0, c)
	}
}

// wholeDevice stands for all of a device.
const wholeDevice api.Bytes = -1

// whole turns a need that names GPUs but no amount into one of whole GPUs.
func whole(m api.Memory) api.Memory {
	if m.Devices > 0 && m.PerDevice == 0 && m.Share == 0 {
		m.PerDevice = wholeDevice
	}
	return m
}

// claim returns the bytes of a device that m takes.
func (f *facts) claim(m api.Memory) api.Bytes {
	if m.PerDevice == wholeDevice {
		return f.whole
	}
	return max(m.PerDevice, min(api.Bytes(m.Share*float64(f.total)), f.whole))
}

// fill sets b to what m takes of the devices at, of which the first is the host.
func (t *topology) fill(b bytes, at []int32, m api.Memory) {
	for k, d := range at {
		switch {
		case k == 0:
			b[k] = m.Host
		default:
			b[k] = t.facts[d].claim(m)
		}
	}
}

// weigh computes how many instances f should have awake, and since when it starves.
func (p *plan) weigh(f *Function) {
	f.desire(p.now)
	if f.scaled {
		p.at(f, f.Scale.Until)
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

// desire computes how many instances f should have awake.
func (f *Function) desire(now time.Time) {
	f.scaled = !f.Undeclared && f.Order == OrderNone && f.Scale.On(now)
	if f.Undeclared {
		f.desired = 0
		return
	}
	f.desired, f.pressed, f.pressure = f.Wanted(f.live())
	if f.live() == 0 && f.Waiting > 0 {
		f.desired = max(f.desired, min(f.Spec.ActivationScale, max(1, f.Spec.MaxScale)))
	}
	f.desired = max(f.desired, f.Spec.MinScale)
	if f.scaled {
		f.desired = f.Scale.Bound(f.Spec)
	}
	switch f.Order {
	case OrderWake:
		f.desired = max(f.desired, 1)
	case OrderSleep, OrderStop:
		f.desired = 0
	}
}

// note has the end of the plan update f.
func (p *plan) note(f *Function) {
	if !f.noted {
		f.noted = true
		if !f.active {
			f.next = f.deadline.At()
		}
		p.noted = append(p.noted, f)
	}
}

// at has a plan look at f at t.
func (p *plan) at(f *Function, t time.Time) {
	if t.After(p.now) {
		p.note(f)
		if f.next.IsZero() || t.Before(f.next) {
			f.next = t
		}
	}
}

// due reports whether t has come. If not, a plan looks at f then.
func (p *plan) due(f *Function, t time.Time) bool {
	p.at(f, t)
	return !t.After(p.now)
}

// do adds an action; i is nil if it concerns no instance.
func (p *plan) do(f *Function, i *Instance, a Action) {
	p.note(f)
	f.hot = true
	a.Function = f.Spec.Name
	if i != nil {
		p.take(i)
		a.Instance = i.Status.Instance
		if a.Node == "" && !i.lost {
			a.Node = p.w.nodes[i.node].name
		}
	}
	p.actions = append(p.actions, a)
}

// take marks i as dealt with.
func (p *plan) take(i *Instance) {
	if !i.taken {
		i.taken = true
		p.note(i.f)
		p.takenOnes = append(p.takenOnes, i)
		p.w.deal(i, true)
	}
}

// available reports whether i can be given something to do now.
func (p *plan) available(i *Instance) bool {
	return !i.taken && i.Doing == Nothing && p.due(i.f, i.RetryAt)
}

// past returns the experience of i's function.
func (i *Instance) past() *inventory.Experience { return &i.f.Past }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
