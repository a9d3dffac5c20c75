package decide

import (
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/autoscaler/rhythm"
)

// Snapshot is the input of a plan, which only reads it.
type Snapshot struct {
	Policy   Policy
	Topology *Topology
	// Rooms is the room for pods' requests on each node, needed while a pod fits on none.
	Rooms []inventory.Room
	// Unmanaged are others' pods that fit on no node.
	Unmanaged []inventory.UnmanagedPod
	// Elastic: nodes may be added.
	Elastic bool
	// Functions are all functions, by name.
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

// Function is one function, its demand and its past. The caller owns it.
type Function struct {
	Spec api.Function
	// Undeclared: its instances are counted and left alone.
	Undeclared bool
	// Instances are all its instances, by ID.
	Instances []*Instance
	// Need is of one awake instance. Certain: declared or measured.
	Need    api.Memory
	Certain bool
	// OneFile: its instances were seen to share a file; see [Share].
	OneFile bool
	Past    inventory.Experience
	// Rhythm is nil if nothing was learned.
	Rhythm *rhythm.Rhythm

	// Sums over all activators.
	Waiting, Running, Background int
	// Shared is how many waiting requests any variant may take.
	Shared int
	// WaitingSince is when the oldest waiting request came; meaningless if none waits.
	WaitingSince time.Time
	// LastRequest is zero if none ever came.
	LastRequest time.Time
	// HeldTokens estimates the tokens of waiting requests.
	HeldTokens api.Tokens
	// Prefers is a sleeper with a conversation of a waiting request; empty: none.
	Prefers api.InstanceID
	// Bound: only Prefers may be woken or started for the waiting requests.
	Bound bool
	Load  Load
	// PressedSince is since when [Function.Wanted] reports pressed; zero: it does not.
	PressedSince time.Time
	// NeededAt[n-1] is when n instances were last needed. Those needed now need no entry.
	NeededAt []time.Time
	// Serving: an instance is awake and stays so. ServedUntil is when that last ended; zero: it never was.
	Serving     bool
	ServedUntil time.Time

	// Failures counts failed starts and wakes in a row.
	Failures int
	// Hopeless: retries can't help.
	Hopeless  bool
	RetryAt   time.Time      // the next try
	FailedOn  []api.DeviceID // GPUs of the last failure
	FailedAt  time.Time
	LastError string
	// Requests before RefusedAt were answered.
	RefusedAt time.Time

	Scale Scale

	// OrderLevel is the level of [OrderSleep].
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

// Instance is one instance as last reported.
type Instance struct {
	Status api.InstanceStatus
	Doing  Doing
	// Level is the target of DoingSleep.
	Level api.Level
	// Since is when it entered its present state.
	Since time.Time
	// From is the level it rose or rises from; [inventory.Stopped] for a new process.
	From api.Level
	// Unloaded: it kept no process asleep, so the start's limit applies to its wake.
	Unloaded bool
	// Ahead: it was started or woken for a predicted request.
	Ahead bool
	// Slept: its process has been asleep.
	Slept bool
	// Rehearsing: it sleeps for a rehearsal, and is to be woken again; Rehearsed: it was.
	Rehearsing, Rehearsed bool
	// Returns: its sleep was ordered because it was not needed, and may be cancelled.
	Returns bool
	// Waking: an activator is waking it under its grant; see [Instance.NoteWaking].
	Waking bool
	// RoseAt is when its last start or wake began. Plans do not read it.
	RoseAt time.Time
	// Grant may be out: a standing one, a wake without an answer, or one of an earlier leader. Its memory is reserved
	// until the instance has seen a later epoch.
	Grant     api.Grant
	GrantedAt time.Time
	// Until Settles the memory in Status may be from before the sleep; zero: it is known.
	Settles time.Time
	// Outdated: the function's declaration has changed since it started.
	Outdated bool
	// Lost says why it counts as lost, though its end was not seen.
	Lost string
	// Doubt says why its residue is not believed, so that it has to end.
	Doubt string
	// Borne is the part of its host memory that another is charged for, Common what it is charged for on behalf of
	// others. See [Share].
	Borne, Common api.Bytes
	// Failures counts failed calls in a row.
	Failures int
	RetryAt  time.Time // the next call
}
