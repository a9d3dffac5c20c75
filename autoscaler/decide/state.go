package decide

import (
	"cmp"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// function is one function in a plan.
type function struct {
	*Function
	instances []*instance
	// The number of instances in each phase.
	awake, rising, falling, leaving, ill, asleep int
	// passing is the number of sleepers whose grant is being given or revoked.
	passing int
	// desired is how many should be awake; scaled says that [Function.Scale] sets it.
	desired int
	scaled  bool
	// inMemory describes the file that its instances share, by node; see [function.besides].
	inMemory []beside
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
func (f *function) live() int { return f.awake + f.rising + f.ill }

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
		case phaseAsleep:
			f.asleep++
		case phaseRising:
			f.rising++
		case phaseAwake:
			f.awake++
		case phaseFalling:
			f.falling++
		case phaseLeaving:
			f.leaving++
		case phaseIll:
			f.ill++
		}
	}
}

// desire computes how many instances f should have awake.
func (f *function) desire(now time.Time) {
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

// Desired returns how many instances of f a plan at now wants awake.
func Desired(f *Function, now time.Time) int {
	g := function{Function: f}
	g.count()
	g.desire(now)
	return g.desired
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
	// held is what it takes now of each device in at, up what it takes while awake, leaves the part of held that is being released.
	held, up, leaves bytes
	// spared is the part of up that another instance bears until this one has reported its own; lent is what it bears so for others. See
	// [function.besides].
	spared, lent api.Bytes
	// taken says that the plan has dealt with it; permitted, that it dealt with its grant.
	taken     bool
	permitted bool
	key       time.Time // see [plan.byWanted]
}

// residue returns what i is expected to hold at level; what it holds now if it is there already.
func (i *instance) residue(level api.Level) api.Memory {
	if i.Status.State == api.Asleep && i.Status.Level == level {
		return i.Status.Memory
	}
	return i.f.Past.Residue(level)
}

// group identifies a model with variants in one namespace: functions that are different ways to run it.
type group struct {
	namespace string
	model     api.ModelName
}

func (f *function) group() group {
	if f.Undeclared || f.Spec.VariantOf == "" {
		return group{}
	}
	return group{f.Spec.Name.Namespace(), f.Spec.VariantOf}
}

// groupsOf returns the variants of each model that has any, the cheapest first.
func groupsOf(fs []*function) map[group][]*function {
	groups := make(map[group][]*function)
	for _, f := range fs {
		if g := f.group(); g != (group{}) {
			groups[g] = append(groups[g], f)
		}
	}
	for _, variants := range groups {
		slices.SortFunc(variants, func(a, b *function) int {
			return cmp.Or(cmp.Compare(a.Spec.Price(), b.Spec.Price()), cmp.Compare(a.Spec.Name, b.Spec.Name))
		})
	}
	return groups
}
