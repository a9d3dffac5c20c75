package decide

import (
	"fmt"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Kind is the kind of an action. The values are those of [api.Decision].
type Kind string

// Kinds of action.
const (
	Start  Kind = "start"  // start a new instance, awake when done
	Wake   Kind = "wake"   // wake a sleeping instance
	Sleep  Kind = "sleep"  // put an awake instance to sleep, or a sleeping one deeper
	Keep   Kind = "keep"   // cancel an instance's draining to sleep
	Stop   Kind = "stop"   // end an instance
	Grant  Kind = "grant"  // let activators wake the instance themselves
	Revoke Kind = "revoke" // withdraw that grant
	Fail   Kind = "fail"   // refuse held requests
	Wait   Kind = "wait"   // nothing can be done yet; the reason says why
)

// Action is one thing to do now. The actions of one plan don't depend on each other.
type Action struct {
	Kind     Kind
	Function api.FunctionName
	// Instance is empty for Start (the caller names it), Fail and Wait.
	Instance api.InstanceID
	// Level is the level to sleep at, for Sleep.
	Level api.Level
	// Shrink says that the sleeper's pod gives up the part of its requests that it can spare, for Sleep.
	Shrink bool
	// Node is the instance's node, for Start the chosen one; empty if there is only one.
	Node string
	// Devices and Memory are the granted memory, for Start, Wake and Grant.
	Devices []api.DeviceID
	Memory  api.Memory
	// Expires is the time when a standing grant ends, for Grant.
	Expires time.Time
	// Drain is how long running requests may take, for Sleep and Stop.
	Drain time.Duration
	// Move says that running requests are ended at once if all of them can continue at another instance, for Sleep and
	// Stop.
	Move bool
	// Ahead says that the action is for a predicted request and none waits, for Start and Wake.
	Ahead bool
	// Rehearsal says that the action is part of a rehearsal, for Sleep and the Wake that follows.
	Rehearsal bool
	// For is the function that room is made for, if any.
	For api.FunctionName
	// Fault is the error of an instance that failed to start; it counts as a failed start.
	Fault string
	// Err is the answer to held requests, for Fail.
	Err *api.Error
	// Reason is one sentence with the numbers that mattered.
	Reason string
}

// String returns the action in one line.
func (a Action) String() string {
	s := string(a.Kind) + " "
	if a.Instance != "" {
		s += string(a.Instance)
	} else {
		s += string(a.Function)
	}
	if a.Kind == Sleep {
		s += fmt.Sprintf(" at level %d", a.Level)
	}
	if a.Kind == Start && len(a.Devices) > 0 {
		s += fmt.Sprintf(" on %v", a.Devices)
	}
	if a.Kind == Start && len(a.Devices) == 0 && a.Node != "" {
		s += " on " + a.Node
	}
	return s + ": " + a.Reason
}
