package decide

import (
	"time"

	"github.com/rouse-dev/rouse/api"
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
