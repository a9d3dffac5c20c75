package autoscaler

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/internal/tombstone"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

type function struct {
	// Need and Certain are set before each plan.
	decide.Function
	removed   bool              // forgotten with its last instance
	demands   map[string]demand // by activator
	waiters   []waiter          // for the operator's order
	decisions []api.Decision    // the newest last
	lastWait  string            // the reason of the last wait: recorded once
}

type demand struct {
	api.Demand
	heard time.Time
}

type instance struct {
	decide.Instance
	tracked
	f *function
	// span may be nil: the call belongs to no wake.
	span *waketrace.Span
}

// tracked has the facts that plans do not read.
type tracked struct {
	Epoch uint64 // the highest given out
	// Reported: before its first report, Status is made up.
	Reported         bool
	UnansweredFences int
	// Faulted: the failure of the present start or wake has been counted.
	Faulted bool
	// Heard is when it last reported or was polled; Misses are in a row.
	Heard   time.Time
	Misses  int
	Probing bool
	// AdaptersKnown: Adapters are those of the start or of the last successful call.
	AdaptersKnown   bool
	Adapters        []api.Adapter
	Telling         bool
	AdapterFailures int
}

func (a *loop) record(name api.FunctionName) *function {
	if f := a.functions[name]; f != nil {
		return f
	}
	f := &function{demands: make(map[string]demand)}
	f.Spec.Name, f.Undeclared = name, true
	a.functions[name] = f
	i, _ := slices.BinarySearchFunc(a.order, name, func(f *function, n api.FunctionName) int { return cmp.Compare(f.Spec.Name, n) })
	a.order = slices.Insert(a.order, i, f)
	return f
}

func (a *loop) forgetFunction(f *function) {
	if !f.Undeclared || len(f.Instances) > 0 {
		return
	}
	f.answer(nil)
	a.wakes.Forget(f.Spec.Name)
	delete(a.functions, f.Spec.Name)
	a.order = slices.DeleteFunc(a.order, func(g *function) bool { return g == f })
}

func (a *loop) addInstance(f *function, s api.InstanceStatus, now time.Time) *instance {
	i := &instance{f: f}
	i.Status, i.Since, i.RoseAt, i.Heard = s, now, now, now
	a.insert(i)
	return i
}

func (a *loop) insert(i *instance) {
	a.instances[i.Status.Instance] = i
	i.f.Add(&i.Instance)
}

func (a *loop) dropInstance(i *instance, now time.Time) {
	id := i.Status.Instance
	if a.instances[id] != i {
		return
	}
	i.span.Done(nil) // its end may be known before the call's
	a.wakes.Gone(i.f.Spec.Name, id)
	delete(a.instances, id)
	a.usage.Drop(time.Now(), id)
	a.tellShare(i.f.Spec.Name, id, 0)
	a.history.Drop(time.Now(), id)
	i.f.Drop(&i.Instance)
	a.common(i.Status.Node, i.Status.Shared)
	a.tombstones.Add(id, tombstone.Final, time.Time{})
	i.f.Observe(now)
	a.forgetFunction(i.f)
}

// rename gives an instance its real ID. An instance with that ID that has reported already replaces i; if it is known to
// be gone, i is dropped.
func (a *loop) rename(i *instance, id api.InstanceID, now time.Time) {
	if id == "" || id == i.Status.Instance {
		return
	}
	a.wakes.Rename(i.f.Spec.Name, i.Status.Instance, id)
	known := a.instances[id]
	if known != nil {
		known.Epoch, known.RoseAt, known.Faulted = max(known.Epoch, i.Epoch), i.RoseAt, known.Faulted || i.Faulted
		if !known.AdaptersKnown {
			known.AdaptersKnown, known.Adapters = i.AdaptersKnown, i.Adapters
		}
		if len(known.Status.Devices) == 0 {
			known.Status.Devices = i.Status.Devices
		}
		if known.Status.Node == "" {
			known.Status.Node = i.Status.Node
		}
	}
	dead := a.tombstones.Holds(id, 0, now)
	a.dropInstance(i, now)
	if known != nil || dead {
		a.finishRemoval(i.f)
		return
	}
	i.Status.Instance = id
	a.insert(i)
	i.f.Observe(now)
}

// expire forgets demands that were not repeated. It returns when the next one expires; zero: none does.
func (a *loop) expire(f *function, now time.Time) (next time.Time) {
	changed := false
	for who, d := range f.demands {
		if d.Zero() {
			continue
		}
		t := d.heard.Add(control.DemandTTL)
		if !t.After(now) {
			delete(f.demands, who)
			changed = true
		} else if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	if changed {
		a.log.Warn("an activator went silent: its demand no longer counts", "function", f.Spec.Name)
		f.sum(now)
	}
	return next
}

// Bounds of what one activator can claim: sums must not overflow.
const (
	mostRequests = 1 << 30
	mostTokens   = 1 << 50
)

func (f *function) sum(now time.Time) {
	f.NoteNeed(now)
	idle, last := f.Waiting+f.Running == 0, f.LastRequest
	f.Waiting, f.Running, f.Background, f.Shared, f.HeldTokens, f.WaitingSince, f.Prefers = 0, 0, 0, 0, 0, time.Time{}, ""
	f.Bound = true
	var waking []api.InstanceID
	for _, d := range f.demands {
		f.Waiting += min(max(0, d.Waiting), mostRequests)
		f.Running += min(max(0, d.Running), mostRequests)
		f.Background += min(max(0, d.Background), mostRequests)
		f.Shared += min(max(0, d.Shared), max(0, d.Waiting), mostRequests)
		f.HeldTokens += min(max(0, d.WaitingTokens), mostTokens)
		if d.Waiting > 0 {
			f.Bound = f.Bound && d.Bound
			if t := d.heard.Add(-max(0, d.OldestAge)); f.WaitingSince.IsZero() || t.Before(f.WaitingSince) {
				f.WaitingSince = t
			}
			if f.Prefers == "" || d.Prefers != "" && d.Prefers < f.Prefers { // any will do, but always the same one
				f.Prefers = d.Prefers
			}
		}
		if t := d.LastRequest; t.After(last) {
			last = t
			if t.After(now) { // another machine's clock
				last = now
			}
		}
		if d.Waking != "" {
			waking = append(waking, d.Waking)
		}
	}
	f.Bound = f.Bound && f.Waiting > 0
	if f.Waiting == 0 && f.Order == decide.OrderNone {
		f.lastWait = ""
	}
	if idle && last.After(f.LastRequest) {
		f.Arrived(last)
	}
	f.LastRequest = last
	f.NotePressure(now)
	for _, i := range f.Instances {
		i.NoteWaking(slices.Contains(waking, i.Status.Instance), now)
	}
}

const mostDecisions = 100

func (f *function) decided(d api.Decision) {
	if len(f.decisions) == mostDecisions {
		f.decisions = slices.Delete(f.decisions, 0, 1)
	}
	f.decisions = append(f.decisions, d)
}

func (a *loop) finishRemoval(f *function) {
	if f.removed && len(f.Instances) == 0 {
		f.Undeclared = true
		a.forgetFunction(f)
	}
}

func (a *loop) tellShare(f api.FunctionName, id api.InstanceID, gpus float64) {
	if a.cfg.Hold == nil || a.shares[id] == gpus {
		return
	}
	if a.shares[id] = gpus; gpus == 0 {
		delete(a.shares, id)
	}
	a.cfg.Hold(f, id, gpus)
}

// common redistributes the cost of a file that a node's instances have mapped.
func (a *loop) common(node string, shared api.SharedMemory) {
	if shared.File == "" {
		return
	}
	var among []*decide.Instance
	for _, i := range a.instances {
		if s := &i.Status; s.Node == node && s.Shared.File == shared.File {
			among = append(among, &i.Instance)
		}
	}
	for k, i := range among {
		f := a.functions[i.Status.Function]
		if f != nil && !f.OneFile && slices.ContainsFunc(among[:k], func(o *decide.Instance) bool { return o.Status.Function == i.Status.Function }) {
			f.OneFile = true // future instances count it, too
		}
	}
	decide.Share(among)
}

// share redistributes the cost of the file that i shares, and of the one that it shared before.
func (a *loop) share(i *instance, old api.InstanceStatus) {
	s := i.Status
	if s.Shared == old.Shared && s.Node == old.Node && s.Memory.Host == old.Memory.Host {
		return
	}
	if s.Shared.File != old.Shared.File || s.Node != old.Node {
		a.common(old.Node, old.Shared)
	}
	if s.Shared.File == "" && i.Borne+i.Common > 0 {
		i.Borne, i.Common = 0, 0
	}
	a.common(s.Node, s.Shared)
}

// complete fills in what an instance did not measure; old is the previous status. What a sleeping process keeps of each
// GPU is, in this order:
//
//  1. measured by the instance
//  2. the GPU's use that its runtime reported as it fell asleep, less what others hold
//  3. known from this sleep, or from the function's last
//  4. as much as awake, while the instance measures it
//  5. [assumedResidue]
func (a *loop) complete(f *function, s *api.InstanceStatus, old api.InstanceStatus) {
	m := &s.Memory
	m.Host, s.Level = max(0, m.Host), min(max(s.Level, api.LevelAwake), api.Suspended)
	all := a.smallest(s.Devices)
	if m.PerDevice < 0 || m.PerDevice > all {
		m.Devices, m.PerDevice = 0, 0
	}
	declared := f.Spec.Memory.PerDevice
	if s.State != api.Asleep {
		// Contexts and fragmentation.
		if m.PerDevice > declared && m.PerDevice <= declared+declared/10 {
			m.PerDevice = declared
		}
		return
	}
	if s.Level == api.Suspended {
		m.Devices, m.PerDevice = 0, 0
		return
	}
	if len(s.Devices) == 0 || s.PID == 0 || m.PerDevice > 0 { // 1
		return
	}
	m.Devices = len(s.Devices)
	before, past := old.Memory, f.Past.Residue(s.Level)
	known := old.State == api.Asleep && old.Level == s.Level && !before.Assumed
	said := a.rest(*s, old)
	switch {
	case said > 0: // 2
		m.PerDevice = said
	case known && before.PerDevice > 0: // 3
		m.PerDevice = before.PerDevice
	case past.PerDevice > 0 && !past.Assumed:
		m.PerDevice = past.PerDevice
	case s.Measuring: // 4
		m.PerDevice, m.Assumed = min(cmp.Or(declared, all), all), true
	default: // 5
		m.PerDevice, m.Assumed = assumedResidue, true
	}
}

func beingMeasured(s api.InstanceStatus) bool {
	return s.State == api.Asleep && s.Measuring && s.Memory.Assumed
}

func (a *loop) smallest(devices []api.DeviceID) api.Bytes {
	least := api.MaxDeviceMemory
	for _, d := range a.topology.Devices() {
		if slices.Contains(devices, d.ID) {
			least = min(least, cmp.Or(d.Total, d.Capacity))
		}
	}
	return least
}

// rest returns what a sleeper holds of its GPUs, from the fullest one's reported use; 0: unknown. All other instances
// there must sleep: theirs is subtracted.
func (a *loop) rest(s, old api.InstanceStatus) api.Bytes {
	if s.DeviceUse <= 0 || old.State == api.Asleep && s.DeviceUse == old.DeviceUse || s.DeviceUse > a.smallest(s.Devices) {
		return 0
	}
	rest := s.DeviceUse
	for _, d := range a.topology.Devices() {
		if !slices.Contains(s.Devices, d.ID) {
			continue
		}
		held := d.Others
		for id, i := range a.instances {
			if id == s.Instance || !slices.Contains(i.Status.Devices, d.ID) {
				continue
			}
			if i.Status.State != api.Asleep || i.BeingWoken() {
				return 0
			}
			held += i.Status.Memory.PerDevice
		}
		rest = min(rest, d.Unaccounted(s.DeviceUse, held))
	}
	return rest
}

// doubt ends the sleepers beside i, which found too little GPU memory, whose residue is only assumed: it would fail
// another start. Sleepers with a grant stay: their memory awake is reserved.
func (a *loop) doubt(i *instance) {
	for _, s := range a.instances {
		if s == i || s.Status.State != api.Asleep || !s.Status.Memory.Assumed || s.f.Spec.DualPods || s.Grant.Instance != "" ||
			!slices.ContainsFunc(s.Status.Devices, func(d api.DeviceID) bool { return slices.Contains(i.Status.Devices, d) }) {
			continue
		}
		s.Doubt = fmt.Sprintf("%s found too little GPU memory beside it, and what it keeps asleep is assumed (%s), not measured", i.f.Spec.Name, s.Status.Memory.PerDevice)
	}
}
