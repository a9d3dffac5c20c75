package decide

import (
	"fmt"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Kind is what an action does; its words are those of [api.Decision].
type Kind string

// Kinds of action.
const (
	Start  Kind = "start"  // a new instance, awake when it is done
	Wake   Kind = "wake"   // a sleeping instance
	Sleep  Kind = "sleep"  // an awake instance, or a sleeping one deeper
	Keep   Kind = "keep"   // an instance that drains to sleep goes on
	Stop   Kind = "stop"   // an instance ends
	Grant  Kind = "grant"  // activators may wake the instance themselves
	Revoke Kind = "revoke" // they may no longer
	Fail   Kind = "fail"   // held requests are refused
	Wait   Kind = "wait"   // nothing can be done yet; the reason says for what
)

// Action is one thing to do now. Actions of one plan don't depend on each other.
type Action struct {
	Kind     Kind
	Function api.FunctionName
	// Instance is empty for Start (the caller names it), Fail and Wait.
	Instance api.InstanceID
	// Level is the level to sleep at, for Sleep.
	Level api.Level
	// Shrink says that its pod gives up what it can spare asleep of its requests, for Sleep.
	Shrink bool
	// Node is the machine that it is about: where Start goes; empty where there is only one.
	Node string
	// Devices and Memory are where and what: the grant of Start, Wake and Grant.
	Devices []api.DeviceID
	Memory  api.Memory
	// Expires is when a standing grant ends, for Grant.
	Expires time.Time
	// Drain is how long running requests may take, for Sleep and Stop.
	Drain time.Duration
	// Move says that they are ended at once where all of them can go on at another instance, for Sleep and Stop.
	Move bool
	// Ahead says that a request is foreseen, for Start and Wake: none waits.
	Ahead bool
	// Rehearsal says that it is one, for Sleep and the Wake that follows.
	Rehearsal bool
	// For is the function that gets the room, where one makes room for another.
	For api.FunctionName
	// Fault says that the instance failed, and how; it counts as a failed start.
	Fault string
	// Err is what held requests are told, for Fail.
	Err *api.Error
	// Reason is one sentence with the numbers that mattered.
	Reason string
}

// String is the action in one line, for tests and people.
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

// short prints a duration as people say it.
func short(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Microsecond).String()
}

// many prints a count with its noun.
func many(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
