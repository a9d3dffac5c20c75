package decide

import (
	"fmt"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// function is one function in a plan.
type function struct {
	*Function
	instances []*instance
	// The number of instances in each phase.
	awake, rising, falling, leaving, unhealthy int
	// passing is the number of sleepers whose grant is being given or revoked.
	passing int
	// desired is how many should be awake; scaled says that [Function.Scale] sets it.
	desired int
	scaled  bool
	// sharedFiles describes the file that its instances share, by node; see [function.findSharedFiles].
	sharedFiles []sharedFile
	// pressed and pressure are results of [Function.Wanted].
	pressed  bool
	pressure string
	// refused says that this plan refuses its waiting requests; waits, that a Wait was recorded; gives, that it makes room for another function
	// and demands nothing itself.
	refused, waits, gives bool
	// until is the expected time until its next request, known once [plan.weightsOn] was called.
	until time.Duration
	// starved is since when it waits without an awake instance.
	starved time.Time
}

// live returns the number of instances that are awake or will be.
func (f *function) live() int { return f.awake + f.rising + f.unhealthy }

// busy reports whether requests wait or run.
func (f *function) busy() bool { return f.Waiting+f.Running > 0 }

// pinned returns the host memory that MinScale keeps.
func (f *function) pinned() api.Bytes {
	if f.Undeclared {
		return 0
	}
	return f.Need.Host * api.Bytes(f.Spec.MinScale)
}

// count counts f's instances by phase.
func (f *function) count() {
	for _, i := range f.Instances {
		if i.Doing == DoingGrant || i.Doing == DoingRevoke {
			f.passing++
		}
		switch phaseOf(i) {
		case phaseRising:
			f.rising++
		case phaseAwake:
			f.awake++
		case phaseFalling:
			f.falling++
		case phaseLeaving:
			f.leaving++
		case phaseUnhealthy:
			f.unhealthy++
		}
	}
}

// starve computes since when f waits without an awake instance.
func (f *function) starve(now time.Time) {
	f.starved = now
	if f.awake == 0 {
		f.starved = later(f.ServedUntil, f.OrderedAt)
		if f.Waiting > 0 && !f.WaitingSince.IsZero() {
			f.starved = later(f.ServedUntil, f.WaitingSince)
		}
		if f.starved.IsZero() {
			f.starved = now
		}
	}
}

// instance is one instance in a plan.
type instance struct {
	*Instance
	f *function
	// node is its node; at are the devices that it holds memory of, the host first.
	node int32
	at   []int32
	// lost says that its node or one of its devices does not exist.
	lost  bool
	phase phase
	// held is the memory that it takes now of each device in at, up the memory that it takes while awake, leaves the
	// part of held that is being released.
	held, up, leaves bytes
	// spared is the part of up that another instance is charged for until this one has reported its own; lent is the
	// memory that it is charged for on behalf of others. See [function.findSharedFiles].
	spared, lent api.Bytes
	// taken says that the plan has dealt with it; grantChanged, that it dealt with its grant.
	taken        bool
	grantChanged bool
	// wanted says that a demand waits until it may have i's memory. Until then i gets no grant.
	wanted bool
	key    time.Time // orders instances by how soon they are needed; see [plan.needKey]
}

// residue returns what i is expected to hold at level; what it holds now if it is there already.
func (i *instance) residue(level api.Level) api.Memory {
	now := i.f.Past.Residue(i.f.level())
	if i.Status.State == api.Asleep {
		if now = i.Status.Memory; i.Status.Level == level {
			return now
		}
	}
	if level == api.Suspended {
		return inventory.OffDevices(now)
	}
	return i.f.Past.Residue(level)
}

// phase is the state of an instance, including the call under way.
type phase int

const (
	phaseAsleep phase = iota
	phaseRising       // starting or waking
	phaseAwake
	phaseFalling // draining or going to sleep, or deeper
	phaseLeaving // being stopped
	phaseUnhealthy
)

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
		if i.Status.Taken { // it does not come back
			return phaseLeaving
		}
		return phaseFalling
	case api.Unhealthy:
		return phaseUnhealthy
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

// reserved reports whether memory is kept for i to be awake although it is not. An expired grant still reserves: its
// holder may have another clock, and a wake under it may be on its way.
func (i *Instance) reserved() bool {
	return i.Doing == DoingGrant || i.Doing == DoingRevoke || i.Grant.Instance != ""
}

// settling reports whether i sleeps and is expected to report less memory than it holds.
func (i *instance) settling(now time.Time) bool {
	return i.phase == phaseAsleep && i.Doing == Nothing && now.Before(i.Settles) && !i.reserved()
}

// levelGain is the share of level 1's time that level 2 must stay below to be chosen.
const levelGain = 0.8

// level returns the level that f's instances sleep at: as declared, else the one where sleep and wake together were measured to take less. It is level 1 unless
// level 2 takes a fifth less: level 2 has to read the weights again and is faster only in special cases, such as with LoRA adapters.
func (f *function) level() api.Level {
	if one, two := f.around(api.Level1), f.around(api.Level2); !f.Spec.FixedLevel && f.Spec.SleepLevel <= api.Level1 && one > 0 && two > 0 && float64(two) < levelGain*float64(one) {
		return api.Level2
	}
	return max(api.Level1, f.Spec.SleepLevel)
}

// around returns the duration of a sleep at level and the wake after it; 0 if one of them was not measured.
func (f *function) around(level api.Level) time.Duration {
	rest, wake := f.Past.Rests[level], f.Past.Wake[level]
	if rest <= 0 || wake <= 0 {
		return 0
	}
	return rest + wake
}

// nextLevel returns the level for an instance that sleeps because it is idle, and a part of the reason. Level 2 is tried in such a sleep, for functions with
// adapters.
func (f *function) nextLevel() (level api.Level, why string) {
	level = f.level()
	one, two := f.around(api.Level1), f.around(api.Level2)
	kind := f.Spec.Runtime.Kind
	switch {
	case f.Spec.FixedLevel:
		return level, ""
	case level == api.Level2 && one > 0 && two > 0:
		return level, fmt.Sprintf("; level 2, because sleep and wake take %s there and %s at level 1", short(two), short(one))
	case level == api.Level1 && one > 0 && f.Past.Wake[api.Level2] == 0 && len(f.Spec.Runtime.Adapters) > 0 && (kind == api.RuntimeVLLM || kind == api.RuntimeSGLang):
		return api.Level2, fmt.Sprintf("; level 2, to see whether it is quicker with adapters than level 1, where sleep and wake take %s", short(one))
	}
	return level, ""
}

// Account returns how the memory of each device is used, as a plan sees it at now. It is in the order of the topology.
func Account(s Snapshot, now time.Time) []admin.Device {
	if len(s.Topology.devs) == 0 {
		return nil
	}
	ledger := newLedger(s.Topology, s.Functions, now)
	lines := make([]admin.Device, len(ledger.devs))
	for d := range lines {
		l, dev := &lines[d], &ledger.devs[d]
		*l = admin.Device{ID: dev.ID, Node: dev.Node, Name: dev.Name, Others: dev.Others, Capacity: dev.Capacity, Total: dev.Total,
			Free: ledger.free[d]}
		for _, i := range ledger.on[d] {
			n := i.heldOf(int32(d))
			switch i.phase {
			case phaseAwake, phaseUnhealthy:
				l.Awake += n
			case phaseRising:
				l.Rising += n
			case phaseFalling, phaseLeaving:
				l.Leaving += n
			case phaseAsleep:
				if i.reserved() {
					l.Reserved += n
				} else {
					l.Asleep += n
				}
			}
		}
	}
	return lines
}

// heldOf returns the memory that i takes of one device.
func (i *instance) heldOf(device int32) api.Bytes {
	for k, d := range i.at {
		if d == device {
			return i.held[k]
		}
	}
	return 0
}
