package decide

import (
	"fmt"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

type function struct {
	*Function
	instances                                  []*instance
	awake, rising, falling, leaving, unhealthy int
	// passing is the number of sleepers whose grant is being given or revoked.
	passing int
	// scaled: [Function.Scale] sets desired.
	desired int
	scaled  bool
	// at most one for each node; see [function.findSharedFiles]
	sharedFiles []sharedFile
	pressed     bool
	pressure    string
	// gives: it makes room for another function and demands nothing itself.
	refused, waits, gives bool
	// until is the expected time until its next request, set by sumWeights; starved is since when it waits without an
	// awake instance.
	until   time.Duration
	starved time.Time
}

func (f *function) live() int { return f.awake + f.rising + f.unhealthy }

func (f *function) busy() bool { return f.Waiting+f.Running > 0 }

func (f *function) pinned() api.Bytes {
	if f.Undeclared {
		return 0
	}
	return f.Need.Host * api.Bytes(f.Spec.MinScale)
}

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

type instance struct {
	*Instance
	f    *function
	node int32
	at   []int32 // the devices that it holds memory of, the host first; empty: its node is unknown
	// lost: its node or one of its devices does not exist.
	lost  bool
	phase phase
	// By at's index: it takes held now, and up awake; leaves is the part of held that is being released.
	held, up, leaves bytes
	// spared is the part of up that another is charged for, lent what it is charged for on behalf of others; see
	// findSharedFiles.
	spared, lent api.Bytes
	taken        bool // this plan has dealt with it
	grantChanged bool // and with its grant
	// wanted: a demand waits for i's memory. Until then i gets no grant.
	wanted bool
	key    time.Time // see needKey
}

// residue returns what i is expected to hold at level.
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
		if i.Status.Taken {
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
// holder may have another clock, and a wake may be on its way.
func (i *Instance) reserved() bool {
	return i.Doing == DoingGrant || i.Doing == DoingRevoke || i.Grant.Instance != ""
}

// settling reports whether i sleeps and is expected to report less memory than it holds.
func (i *instance) settling(now time.Time) bool {
	return i.phase == phaseAsleep && i.Doing == Nothing && now.Before(i.Settles) && !i.reserved()
}

const levelGain = 0.8

// level returns the level that f sleeps at: as declared, else 1 unless 2 was measured to take a fifth less. Level 2
// reads the weights again, and is faster only in special cases.
func (f *function) level() api.Level {
	if one, two := f.around(api.Level1), f.around(api.Level2); !f.Spec.FixedLevel && f.Spec.SleepLevel <= api.Level1 && one > 0 && two > 0 && float64(two) < levelGain*float64(one) {
		return api.Level2
	}
	return max(api.Level1, f.Spec.SleepLevel)
}

// around returns how long a sleep at level and the wake after it take; 0: one was not measured.
func (f *function) around(level api.Level) time.Duration {
	rest, wake := f.Past.Rests[level], f.Past.Wake[level]
	if rest <= 0 || wake <= 0 {
		return 0
	}
	return rest + wake
}

// nextLevel returns the level for an idle instance. Level 2 is tried once for functions with adapters.
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

// Account returns how the memory of each device is used at now, in the order of the topology.
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
			n := i.held[slices.Index(i.at, int32(d))]
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
