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

// World keeps the state that [Plan] looks at between plans, so that the cost of a plan depends on what an event touches, not on what
// exists: functions that were put since, functions that wait or whose time has come, and the devices of all these. It returns the actions
// that Plan returns for the same state.
//
// A World belongs to one goroutine. It keeps no copies of records; computed state is in the records: see [World.Put].
type World struct {
	pol Policy
	now time.Time // of the last plan
	topology

	// free and coming are the accounts of devices between plans; soft is what sleepers and idle instances hold.
	free, coming, soft bytes
	// on lists the instances that hold memory of each device, in no order.
	on [][]*Instance

	fns map[api.FunctionName]*Function
	// rooms is what pods may still request on each node; pending are the functions with pods that fit on no node.
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
	// searches holds the nodes' fingerprints and search results; limitsWatch and grantsWatch track the nodes that have changed since plans
	// looked at the limits of sleepers, and at grants.
	searches                 *searches
	limitsWatch, grantsWatch memo.Watch
	scratch                  *plan
}

// NewWorld returns a world without functions.
func NewWorld(policy Policy, devices []inventory.Device) *World {
	w := &World{pol: policy.WithDefaults(), fns: make(map[api.FunctionName]*Function), pending: make(map[*Function]struct{})}
	w.SetDevices(devices)
	return w
}

// SetDevices replaces the devices: the host memories and the GPUs, a host first. Memory held on a missing device no longer counts.
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

// Devices returns the devices. The World owns the slice: don't change it.
func (w *World) Devices() []inventory.Device { return w.devs }

// LargestHost returns the largest host memory of a node.
func (w *World) LargestHost() api.Bytes { return w.largest }

// resize updates the numbers of devices that are otherwise the same.
func (w *World) resize(devices []inventory.Device) {
	clear(w.feasibles)
	for d := range devices {
		old := w.devs[d]
		if old == devices[d] {
			continue
		}
		for _, i := range slices.Clone(w.on[d]) { // an instance that takes the whole device takes another amount now
			w.leaveLedger(i.f)
			w.activate(i.f)
		}
		w.account(int32(d), devices[d].Capacity-devices[d].Others-(old.Capacity-old.Others), 0, 0)
		w.setDevice(int32(d), devices[d])
	}
}

// Put adds a function with all its instances, or says that it or any of them has changed. The World keeps f and its records: the owner must
// put a function again after it or an instance has changed, before the next plan.
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

// Plan returns what to do at now, and when to plan again even if nothing happens until then; a zero time means never. A function that has
// an action is looked at again in the next plan, even if it is not put in between.
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

// begin prepares a plan.
func (w *World) begin(now time.Time) *plan {
	if now.Before(w.now) { // the clock was set back
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

// settleLedger updates the ledger for all active functions.
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

// end undoes p's bookings, and records what the next plan has to look at.
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
