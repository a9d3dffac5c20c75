package autoscaler

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/internal/tombstone"
)

// saved is the loop's state between two rounds, with which a segment begins.
type saved struct {
	Config Config
	Now    time.Time

	Devices    []inventory.Device
	Rooms      []inventory.Room
	Unmanaged  []inventory.UnmanagedPod
	Elastic    bool
	Others     map[api.DeviceID]api.Bytes
	Epochs     decide.Epochs
	Counter    map[string]int
	Stopping   bool
	Tombstones []tombstone.Stone
	LastCall   uint64
	Calls      []savedCall
	Functions  []savedFunction
}

type (
	savedCall struct {
		Call     call
		Instance api.InstanceID // its present ID, if it is not gone
	}
	savedFunction struct {
		Function  decide.Function         // without its instances
		Assumed   [inventory.Stopped]bool // of Function.Past.Asleep, which JSON leaves out
		Removed   bool
		Demands   []savedDemand
		Waiters   []uint64
		Decisions []api.Decision
		LastWait  string
		Instances []savedInstance
	}
	savedDemand struct {
		Demand api.Demand
		Heard  time.Time
	}
	savedInstance struct {
		Instance decide.Instance
		Hidden   *hidden
		tracked
	}
)

// hidden has the fields of a status that its JSON leaves out; nil: all are zero.
type hidden struct {
	Candidates []string      `json:",omitempty"`
	Spare      api.Requests  `json:",omitempty"`
	Shrunk     bool          `json:",omitempty"`
	Taken      bool          `json:",omitempty"`
	Way        time.Duration `json:",omitempty"`
	Cost       float64       `json:",omitempty"`
	Waits      int           `json:",omitempty"`
	Assumed    bool          `json:",omitempty"` // of its memory
}

// hiddenOf returns nil if all hidden fields are zero.
func hiddenOf(s api.InstanceStatus) *hidden {
	if len(s.Candidates) == 0 && s.Spare == nil && !s.Shrunk && !s.Taken && s.Way == 0 && s.Cost == 0 && s.Waits == 0 && !s.Memory.Assumed {
		return nil
	}
	return &hidden{s.Candidates, s.Spare, s.Shrunk, s.Taken, s.Way, s.Cost, s.Waits, s.Memory.Assumed}
}

func (h *hidden) restore(s *api.InstanceStatus) {
	if h != nil {
		s.Candidates, s.Spare, s.Shrunk, s.Taken, s.Way, s.Cost, s.Waits = h.Candidates, h.Spare, h.Shrunk, h.Taken, h.Way, h.Cost, h.Waits
		s.Memory.Assumed = h.Assumed
	}
}

// mostSavedDecisions is over all functions.
const mostSavedDecisions = 20000

// save shares nothing that the loop changes.
func (a *loop) save() *saved {
	s := &saved{
		Config: a.cfg, Now: a.now, Devices: slices.Clone(a.topology.Devices()), Rooms: a.rooms, Unmanaged: a.unmanaged, Elastic: a.elastic, Others: maps.Clone(a.others),
		Epochs: a.calls.epochs, Counter: maps.Clone(a.calls.counter), Stopping: a.stopping, Tombstones: a.tombstones.All(), LastCall: a.calls.last,
		Functions: make([]savedFunction, 0, len(a.order)),
	}
	for _, n := range slices.Sorted(maps.Keys(a.calls.under)) {
		c := savedCall{Call: *a.calls.under[n]}
		if a.calls.current(c.Call.i) {
			c.Instance = c.Call.i.Status.Instance
		}
		s.Calls = append(s.Calls, c)
	}
	keep := min(mostDecisions, max(1, mostSavedDecisions/max(1, len(a.order))))
	for _, f := range a.order {
		s.Functions = append(s.Functions, a.saveFunction(f, keep))
	}
	return s
}

func (a *loop) saveFunction(f *function, decisions int) savedFunction {
	s := savedFunction{Function: f.Function, Removed: f.removed, LastWait: f.lastWait,
		Decisions: slices.Clone(f.decisions[max(0, len(f.decisions)-decisions):])}
	s.Function.Instances, s.Function.NeededAt = nil, slices.Clone(f.NeededAt)
	s.Function.Rhythm = f.Rhythm.Clone()
	for k, m := range f.Past.Asleep {
		s.Assumed[k] = m.Assumed
	}
	for _, d := range f.demands {
		s.Demands = append(s.Demands, savedDemand{d.Demand, d.heard})
	}
	slices.SortFunc(s.Demands, func(a, b savedDemand) int { return cmp.Compare(a.Demand.Activator, b.Demand.Activator) })
	for _, w := range f.waiters {
		s.Waiters = append(s.Waiters, w.id)
	}
	for _, known := range f.Instances {
		i := a.instances[known.Status.Instance]
		s.Instances = append(s.Instances, savedInstance{i.Instance, hiddenOf(i.Status), i.tracked})
	}
	return s
}

// restore needs a new loop, made with s.Config and s.Devices.
func (a *loop) restore(s *saved) {
	a.now, a.others, a.calls.epochs, a.stopping, a.calls.last = s.Now, s.Others, s.Epochs, s.Stopping, s.LastCall
	if s.Counter != nil {
		a.calls.counter = s.Counter
	}
	a.tombstones = tombstone.SetOf(s.Tombstones)
	(&roomsSet{Rooms: s.Rooms, Unmanaged: s.Unmanaged}).apply(a)
	(&elasticSet{On: s.Elastic}).apply(a)
	for _, sf := range s.Functions {
		f := a.record(sf.Function.Spec.Name)
		f.Function, f.removed, f.lastWait, f.decisions = sf.Function, sf.Removed, sf.LastWait, sf.Decisions
		for k, assumed := range sf.Assumed {
			f.Past.Asleep[k].Assumed = assumed
		}
		for _, d := range sf.Demands {
			f.demands[d.Demand.Activator] = demand{d.Demand, d.Heard}
		}
		for _, id := range sf.Waiters {
			f.waiters = append(f.waiters, waiter{id: id})
		}
		for _, si := range sf.Instances {
			i := &instance{f: f, Instance: si.Instance, tracked: si.tracked}
			si.Hidden.restore(&i.Status)
			a.insert(i)
		}
	}
	for _, sc := range s.Calls {
		c := sc.Call
		c.i = a.instances[sc.Instance]
		a.calls.under[c.N] = &c
	}
}
