package decide

import (
	"cmp"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide/internal/memo"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/internal/due"
)

// World is what [Plan] looks at, kept between plans, so that a plan after an
// event costs what the event touches, not what exists: the functions that were
// put since, those that wait, those whose time has come, and the devices of all
// these. It gives the actions that Plan gives for the same state.
//
// A World belongs to one goroutine. It keeps no copy of a record, and what it works out of one is in it: see [World.Put].
type World struct {
	pol Policy
	now time.Time // of the last plan
	topology

	// free and coming are the accounts of devices while nothing is planned; soft is
	// what sleepers and idle instances hold.
	free, coming, soft bytes
	// on are the instances that hold something of a device, in no order.
	on [][]*Instance

	fns map[api.FunctionName]*Function
	// rooms is what nodes have left of what pods request; pending are the functions with pods that find no node.
	rooms     []inventory.Room
	unmanaged []inventory.UnmanagedPod
	pending   map[*Function]struct{}
	elastic   bool // see [Snapshot.Elastic]
	// groups are the variants of models that have any; see elect.
	groups map[group][]*Function
	// active are the functions that the next plan looks at.
	active    []*Function
	deadlines due.Queue[*Function]
	// pinned is the host memory that MinScale keeps, over all functions.
	pinned api.Bytes
	// searches holds the fingerprints of nodes, and what was found there; limitsWatch and grantsWatch say which nodes
	// have changed since plans looked at the limits of sleepers, and at grants.
	searches                 *searches
	limitsWatch, grantsWatch memo.Watch
	scratch                  *plan
}

// NewWorld makes a world without functions.
func NewWorld(policy Policy, devices []inventory.Device) *World {
	w := &World{pol: policy.WithDefaults(), fns: make(map[api.FunctionName]*Function), pending: make(map[*Function]struct{})}
	w.SetDevices(devices)
	return w
}

// SetDevices replaces the devices: the host memories and the GPUs, a host first. What
// instances hold of one that is no longer there counts nowhere.
func (w *World) SetDevices(devices []inventory.Device) {
	if w.same(devices) {
		w.resize(devices)
		return
	}
	for _, f := range w.fns {
		w.leaveLedger(f)
	}
	w.topology = newTopology(slices.Clone(devices))
	n := len(w.devs)
	w.free, w.coming, w.soft = make(bytes, n), make(bytes, n), make(bytes, n)
	w.on = make([][]*Instance, n)
	for d := range w.devs {
		w.free[d] = w.devs[d].Capacity - w.devs[d].Others
	}
	w.newSearches()
	for _, f := range w.fns {
		for _, i := range f.Instances {
			w.locate(i)
		}
		w.activate(f)
	}
	w.scratch = nil
}

// Devices are those that there are. The list is the World's own: it is only read.
func (w *World) Devices() []inventory.Device { return w.devs }

// LargestHost is the largest host memory of a node.
func (w *World) LargestHost() api.Bytes { return w.largest }

// resize follows devices that are the same and have other numbers.
func (w *World) resize(devices []inventory.Device) {
	clear(w.feasibles)
	for d := range devices {
		old := w.devs[d]
		if old == devices[d] {
			continue
		}
		for _, i := range slices.Clone(w.on[d]) { // what takes all of it takes something else now
			w.leaveLedger(i.f)
			w.activate(i.f)
		}
		w.account(int32(d), devices[d].Capacity-devices[d].Others-(old.Capacity-old.Others), 0, 0)
		w.setDevice(int32(d), devices[d])
	}
}

// Put adds a function with all its instances, or says that it or any of them has changed. The records are read where they are, from now on:
// the owner puts a function again when it or an instance has changed, before the next plan.
func (w *World) Put(f *Function) {
	if old := w.fns[f.Spec.Name]; old != f {
		if old != nil {
			w.Remove(f.Spec.Name)
		}
		f.functionState = functionState{}
		w.fns[f.Spec.Name] = f
	}
	w.leaveLedger(f)
	f.edition++
	w.enrol(f)
	w.pinned -= f.pinned
	f.pinned = 0
	if f.Spec.MinScale > 0 && !f.Undeclared {
		f.pinned = f.Need.Host * api.Bytes(f.Spec.MinScale)
	}
	w.pinned += f.pinned
	for _, i := range f.Instances {
		i.instanceState = instanceState{f: f}
		w.locate(i)
	}
	w.notePending(f)
	w.activate(f)
}

// Remove forgets a function and its instances.
func (w *World) Remove(name api.FunctionName) {
	f := w.fns[name]
	if f == nil {
		return
	}
	w.leaveLedger(f)
	w.unenrol(f)
	w.pinned -= f.pinned
	delete(w.pending, f)
	w.deadlines.Set(&f.deadline, f, time.Time{})
	delete(w.fns, name)
	f.removed = true
}

// activate has the next plan look at f.
func (w *World) activate(f *Function) {
	if !f.active {
		f.active = true
		w.active = append(w.active, f)
	}
}

// Plan says what to do at now, and when to plan again even if nothing happens until
// then; a zero time means never. A function that an action is for is looked at
// again in the next plan, whether or not it is put in between.
func (w *World) Plan(now time.Time) ([]Action, time.Time) {
	if len(w.devs) == 0 {
		return nil, time.Time{}
	}
	p := w.begin(now)
	p.stopOverdue()   // 1
	p.followOrders()  // 2
	p.limitSleepers() // 3
	p.meetDemands()   // 4
	p.placePods()     // 5
	p.scaleDown()     // 6
	p.giveGrants()    // 7
	w.markChanged(&w.grantsWatch)
	return w.end(p)
}

// begin makes a plan of what there is to look at.
func (w *World) begin(now time.Time) *plan {
	if now.Before(w.now) { // the clock was put back
		for _, f := range w.fns {
			w.leaveLedger(f)
			w.activate(f)
		}
	}
	w.now = now
	for f, found := w.deadlines.Pop(now); found; f, found = w.deadlines.Pop(now) {
		w.activate(f)
		for _, i := range f.Instances { // others may have waited until i can be called again
			w.markNode(i)
		}
	}
	w.active = slices.DeleteFunc(w.active, func(f *Function) bool { return f.removed })
	slices.SortFunc(w.active, func(a, b *Function) int { return cmp.Compare(a.Spec.Name, b.Spec.Name) })
	w.active = slices.Compact(w.active)
	p := w.scratch
	if p == nil {
		p = &plan{w: w, slotOf: make([]int32, len(w.devs))}
		for d := range p.slotOf {
			p.slotOf[d] = -1
		}
		w.scratch = p
	}
	p.reset(now)
	w.settleLedger(p)
	for _, f := range w.active {
		p.weigh(f)
	}
	p.free, p.coming, p.fs = w.free, w.coming, w.active
	return p
}

// settleLedger brings the ledger up to date for all that is active.
func (w *World) settleLedger(p *plan) {
	for _, f := range w.active {
		if f.inLedger && !f.until.IsZero() && !f.until.After(p.now) {
			w.leaveLedger(f)
		}
		if !f.inLedger {
			w.enterLedger(f, p.now)
		}
		f.next, f.hot = time.Time{}, false
		p.note(f)
		p.at(f, f.until)
	}
}

// end takes back what p booked, and remembers what the next plan has to look at.
func (w *World) end(p *plan) ([]Action, time.Time) {
	for _, e := range p.journal {
		w.account(e.device, -e.free, -e.coming, 0)
	}
	for _, i := range p.takenOnes {
		i.taken, i.permitted = false, false
		w.deal(i, false)
	}
	w.searches.Sweep()
	w.active = nil
	for _, f := range p.noted {
		f.noted, f.active, f.refused, f.waits, f.gives = false, false, false, false, false
		w.deadlines.Set(&f.deadline, f, f.next)
		if f.hot {
			w.activate(f)
		}
	}
	actions := p.actions
	p.actions, p.most = nil, len(actions)
	if p.most == 0 {
		actions = nil
	}
	return actions, w.deadlines.First()
}
