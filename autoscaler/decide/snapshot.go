package decide

import (
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/autoscaler/rhythm"
)

// Snapshot is the input of a plan. The caller owns it; Plan only reads it.
type Snapshot struct {
	Policy Policy
	// Topology has the devices. Each GPU is booked with the host memory of its node.
	Topology *Topology
	// Rooms is the room for pods' requests on each node. It is needed while any pod fits on none.
	Rooms []inventory.Room
	// Unmanaged are pods of others that fit on no node.
	Unmanaged []inventory.UnmanagedPod
	// Elastic says that nodes may be added: an instance that fits on no node is started all the same.
	Elastic bool
	// Functions are all functions with all their instances, by name.
	Functions []*Function
}

// Order is an operator's order.
type Order int

// Orders.
const (
	OrderNone  Order = iota
	OrderWake        // have one instance awake, whatever the demand
	OrderSleep       // have none awake
	OrderStop        // have none at all
)

// Function is one function, the demand for it and its past. The caller owns it.
type Function struct {
	Spec api.Function
	// Undeclared says that it only has instances, which are counted and left alone.
	Undeclared bool
	// Instances are all its instances, by ID.
	Instances []*Instance
	// Need is the memory of one awake instance. Certain says that it was declared or measured; only a certain need makes a function
	// impossible.
	Need    api.Memory
	Certain bool
	// OneFile says that its instances on one node were seen to share a file in memory, so future ones will. See [Share].
	OneFile bool
	// Past holds the experience with the function's instances.
	Past inventory.Experience
	// Rhythm predicts requests; nil: nothing was learned.
	Rhythm *rhythm.Rhythm

	// Waiting, Running and Background are the sums over all activators.
	Waiting, Running, Background int
	// Shared is how many of the waiting requests any variant of the model may take.
	Shared int
	// WaitingSince is when the oldest waiting request came, meaningless if none waits.
	WaitingSince time.Time
	// LastRequest is when the last request came, zero if none ever did.
	LastRequest time.Time
	// HeldTokens is the estimated number of tokens of waiting requests.
	HeldTokens api.Tokens
	// Prefers is a sleeper that has kept a conversation of a waiting request; empty: none, or it makes no difference.
	Prefers api.InstanceID
	// Bound says that only Prefers may be woken or started for the waiting requests.
	Bound bool
	// Load is the awake instances' load; see [LoadOf].
	Load Load
	// PressedSince is since when [Function.Wanted] reports pressed for the awake instances; zero while it does not.
	PressedSince time.Time
	// NeededAt[n-1] is when n instances were last needed. Those needed now need no entry.
	NeededAt []time.Time
	// Serving says that an instance is awake and stays so. ServedUntil is when that last ended, zero if it never has.
	Serving     bool
	ServedUntil time.Time

	// Failures counts failed starts and wakes since the last success.
	Failures int
	// Hopeless says that retries can't help: the model can't be fetched, or the program does not exist.
	Hopeless bool
	// RetryAt is the time of the next try.
	RetryAt time.Time
	// FailedOn are the GPUs of the last failure.
	FailedOn []api.DeviceID
	// FailedAt and LastError describe the last failure.
	FailedAt  time.Time
	LastError string
	// RefusedAt is when held requests were last refused; earlier ones were answered.
	RefusedAt time.Time

	// Scale is the number of awake instances wanted from outside.
	Scale Scale

	// Order is the operator's order, OrderLevel the level of [OrderSleep], OrderedAt the time.
	Order      Order
	OrderLevel api.Level
	OrderedAt  time.Time
}

// Doing is the call under way at an instance. There is at most one.
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

// Instance is one instance as last reported, and the call under way at it.
type Instance struct {
	Status api.InstanceStatus
	Doing  Doing
	// Level is the target level of [DoingSleep].
	Level api.Level
	// Since is when it entered its present state.
	Since time.Time
	// From is the level it rose or rises from, while it is starting or awake; [inventory.Stopped] for a new process.
	From api.Level
	// Unloaded says that it kept no process while it slept, so that it has to load when it is woken: its start's limit applies. It is
	// meaningless if From is no sleep.
	Unloaded bool
	// Ahead says that it was started or woken for a predicted request.
	Ahead bool
	// Slept says that its process has been asleep.
	Slept bool
	// Rehearsing says that it was told to sleep for a rehearsal, and is to be woken again; Rehearsed, that it was.
	Rehearsing, Rehearsed bool
	// Returns says that its last sleep was ordered because it was not needed, and may be cancelled.
	Returns bool
	// Waking says that an activator is waking it under its grant; see [Instance.NoteWaking].
	Waking bool
	// RoseAt is when its last start or wake began, by a call or by an activator. Plans do not read it.
	RoseAt time.Time
	// Grant is the permission to wake it that may be out: a standing grant, a wake without an answer, or any grant of an earlier leader.
	// Its memory is reserved until the instance has seen a later epoch.
	Grant api.Grant
	// GrantedAt is when Grant was given.
	GrantedAt time.Time
	// Settles is until when the memory in Status may still be the value from before the sleep: it was reported unchanged and is being
	// measured. Zero if it is known.
	Settles time.Time
	// Outdated says that the function's declaration has changed since it started: it ends.
	Outdated bool
	// Lost says why it counts as lost, though its end was not seen; empty if it does not.
	Lost string
	// Doubt says why its assumed residue is not believed, so that it has to end; empty if it is.
	Doubt string
	// Borne is the part of its host memory that another instance is charged for, because both share a file. Common is the part that it is
	// charged for on behalf of others, which does not become free when it ends. See [Share].
	Borne, Common api.Bytes
	// Failures counts failed calls at this instance since the last success.
	Failures int
	// RetryAt is when the next call may be made.
	RetryAt time.Time
}
