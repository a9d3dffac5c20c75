package decide

import (
	"cmp"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/autoscaler/rhythm"
)

// Snapshot is all that a plan looks at. The caller owns it; Plan only reads.
type Snapshot struct {
	Policy Policy
	// Devices are the memories, a host's first. Each GPU is booked with the host memory of its node.
	Devices []inventory.Device
	// Rooms is what nodes have left of what pods may request; see [World.SetRooms].
	Rooms []inventory.Room
	// Unmanaged are pods of others that no node takes.
	Unmanaged []inventory.UnmanagedPod
	// Elastic says that nodes may be added: what no node could ever hold is tried all the same.
	Elastic bool
	// Functions are the declared ones, by name.
	Functions []Function
	// Instances are all that exist, by function's name and then by ID. One of an
	// undeclared function is counted and left alone.
	Instances []Instance
}

// Sort brings functions and instances into the order that [Plan] needs.
func (s *Snapshot) Sort() {
	slices.SortFunc(s.Functions, func(a, b Function) int { return cmp.Compare(a.Spec.Name, b.Spec.Name) })
	slices.SortFunc(s.Instances, func(a, b Instance) int {
		return cmp.Or(cmp.Compare(a.Status.Function, b.Status.Function), cmp.Compare(a.Status.Instance, b.Status.Instance))
	})
}

// Order is what an operator asked for.
type Order int

// Orders.
const (
	OrderNone  Order = iota
	OrderWake        // have one instance awake, whatever the demand
	OrderSleep       // have none awake
	OrderStop        // have none at all
)

// Function is one function, the demand for it and its past. It is the owner's; a [World] to which it is put keeps in it what it works out.
type Function struct {
	Spec api.Function
	// Undeclared says that it only has instances, which are counted and left alone.
	Undeclared bool
	// Instances are all that it has, by ID. A [Snapshot] has them in a list of its own.
	Instances []*Instance
	// Need is what one awake instance takes. Certain says whether it was declared or
	// measured; only a certain need makes a function impossible.
	Need    api.Memory
	Certain bool
	// OneFile says that instances of it on one node were seen to have one file in memory: so do those that come. See [Share].
	OneFile bool
	// Past is what was learned.
	Past inventory.Experience
	// Rhythm is what was learned of when it is wanted; nil: nothing.
	Rhythm *rhythm.Rhythm

	// Waiting, Running and Background are the sums over all activators.
	Waiting, Running, Background int
	// Shared is how many of the waiting ones any variant of the model may take.
	Shared int
	// WaitingSince is when the oldest waiting request came, meaningless if none waits.
	WaitingSince time.Time
	// LastRequest is when the last request came, zero if none ever did.
	LastRequest time.Time
	// HeldTokens are the tokens of the requests that wait, as activators estimate them.
	HeldTokens api.Tokens
	// Prefers is a sleeper that has kept a conversation of what waits; empty: none, or it makes no difference.
	Prefers api.InstanceID
	// Bound says that no instance but Prefers may be woken or started for what waits.
	Bound bool
	// Load is what the awake instances say of their work; see [LoadOf].
	Load Load
	// PressedSince is since when [Function.Wanted] says pressed of what is awake; zero while it does not.
	PressedSince time.Time
	// NeededAt[n-1] is when n instances were last needed. What is needed now needs no entry.
	NeededAt []time.Time
	// Serving says that an instance is awake and stays so. ServedUntil is when that last ended, zero if it never has.
	Serving     bool
	ServedUntil time.Time

	// Failures counts starts and wakes that failed, since the last that succeeded.
	Failures int
	// Hopeless says that the last failure's reason is one that another try does not
	// change: a model that can't be fetched, a program that is not there.
	Hopeless bool
	// RetryAt is when the next may be tried.
	RetryAt time.Time
	// FailedOn are the GPUs that the last failure was on.
	FailedOn []api.DeviceID
	// FailedAt and LastError are of the last failure.
	FailedAt  time.Time
	LastError string
	// RefusedAt is when held requests were last refused; what came before was answered.
	RefusedAt time.Time

	// Scale is how many are wanted awake from outside.
	Scale Scale

	// Order is what was asked by hand, OrderLevel the level of [OrderSleep], OrderedAt the time.
	Order      Order
	OrderLevel api.Level
	OrderedAt  time.Time

	functionState
}

// Doing is the call that is under way at an instance. There is at most one.
type Doing int

// Calls under way.
const (
	Nothing Doing = iota
	DoingStart
	DoingWake
	DoingSleep
	DoingStop
	DoingGrant
	DoingRevoke
)

// Instance is one instance as it last reported, and what is being done to it.
type Instance struct {
	Status api.InstanceStatus
	Doing  Doing
	// Level is the level that [DoingSleep] aims at.
	Level api.Level
	// Since is when it came into the state that it is in.
	Since time.Time
	// From is the level it comes from while it is starting or awake; [inventory.Stopped] for a new process.
	From api.Level
	// Unloaded says that it kept no process while it slept, so that it has to load when it is
	// woken: its start's limit counts. It means nothing where From is no sleep.
	Unloaded bool
	// Ahead says that it was started or woken because a request was foreseen.
	Ahead bool
	// Slept says that its process has been asleep.
	Slept bool
	// Rehearsing says that it was told to sleep for a rehearsal, and is to be woken again; Rehearsed, that it was.
	Rehearsing, Rehearsed bool
	// Returns says that it was last told to sleep because nobody needed it, and may be told to go on.
	Returns bool
	// Waking says that an activator is waking it under its grant; see [Instance.NoteWaking].
	Waking bool
	// RoseAt is when its last start or wake began, by a call or by an activator. Plans do not read it.
	RoseAt time.Time
	// Grant is the permission to wake it that may be out: a standing grant, a wake whose answer
	// never came, or whatever one before us has given. Its memory is reserved until the instance
	// has seen a later epoch.
	Grant api.Grant
	// GrantedAt is when Grant was given.
	GrantedAt time.Time
	// Settles is until when the memory in Status may still be that of before the
	// sleep: it was reported unchanged and is being measured. Zero if it is known.
	Settles time.Time
	// Outdated says that the function has been declared anew since it started: it ends.
	Outdated bool
	// Lost says why it is assumed to be lost, though its end was not seen; empty if it is not.
	Lost string
	// Doubt says why what it keeps asleep is not believed, so that it has to end; empty if it is.
	Doubt string
	// Borne is what of its host memory another instance's account bears, because both have one file in memory; and Common is what
	// it bears for others, so that it is not free when this one ends. See [Share].
	Borne, Common api.Bytes
	// Failures counts calls that failed at this instance, since the last that succeeded.
	Failures int
	// RetryAt is when the next call may be made.
	RetryAt time.Time

	instanceState
}
