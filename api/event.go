package api

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"
)

// Event types: dev.rouse.<subject>.<event>.v1.
const (
	EventDemand        = "dev.rouse.function.demand.v1"     // data: Demand, from an activator
	EventInstanceState = "dev.rouse.instance.state.v1"      // data: InstanceStatus, from an instance
	EventDecision      = "dev.rouse.autoscaler.decision.v1" // data: Decision, from the autoscaler
	EventFunction      = "dev.rouse.function.declared.v1"   // data: Function, from the part that declares it
	EventFunctionGone  = "dev.rouse.function.removed.v1"    // data: Function, from the part that removes it
)

// Event is a CloudEvent (v1.0) with JSON data. It holds no reference to the value that it was made from. Its wire
// forms are in internal/cloudevent.
type Event struct {
	ID      string          `json:"id"`
	Source  string          `json:"source"`
	Type    string          `json:"type"`
	Subject string          `json:"subject"` // "namespace/function"
	Time    time.Time       `json:"time"`
	Data    json.RawMessage `json:"data"`
}

// NewEvent returns an event with a new ID and the current time. It panics if data cannot be marshalled: payloads are
// our own types.
func NewEvent(eventType, source string, subject FunctionName, data any) Event {
	raw, err := json.Marshal(data)
	if err != nil {
		panic(fmt.Sprintf("api: marshal %s: %v", eventType, err))
	}
	return Event{ID: rand.Text(), Source: source, Type: eventType, Subject: string(subject), Time: time.Now(), Data: raw}
}

// Emitter accepts events. Emit never blocks and is safe for concurrent use; an emitter that cannot keep up drops its
// oldest events and counts them.
type Emitter interface {
	Emit(Event)
}

// EmitterFunc is an [Emitter] made of a function.
type EmitterFunc func(Event)

// Emit calls f.
func (f EmitterFunc) Emit(e Event) { f(e) }

// Demand is an activator's load for one function: a level, sent on change and repeated while it is not zero.
type Demand struct {
	Function FunctionName `json:"function"`
	// Activator is the sender; the autoscaler adds up the demands of all activators.
	Activator string `json:"activator"`
	// Waiting is the number of held requests.
	Waiting int `json:"waiting"`
	// Shared is how many of them any variant of their model may serve.
	Shared int `json:"shared,omitempty"`
	// Tenants is the number of waiting requests by client, for functions some of whose instances may not serve every
	// client; the keys are activators' own.
	Tenants map[string]int `json:"tenants,omitempty"`
	// OldestAge is how long the oldest held request has waited.
	OldestAge time.Duration `json:"oldestAge"`
	// WaitingTokens is the estimated size of the held requests.
	WaitingTokens Tokens `json:"waitingTokens"`
	// Running is the number of requests sent to instances and not yet finished.
	Running int `json:"running"`
	// Background is the number of running requests that use only spare capacity; Running does not include them. An
	// otherwise idle instance stays awake for them.
	Background int `json:"background,omitempty"`
	// LastRequest is when the last request arrived; zero: none ever did.
	LastRequest time.Time `json:"lastRequest"`
	// Trace is the W3C traceparent of the wake, in its root span, that the oldest waiting request is for; empty: none
	// waits.
	Trace string `json:"trace,omitempty"`
	// Waking is the instance that the activator is waking under a grant; empty: none.
	Waking InstanceID `json:"waking,omitempty"`
	// Prefers is the sleeping instance that has kept the conversation of the first waiting request; empty: none has,
	// or there is no choice.
	Prefers InstanceID `json:"prefers,omitempty"`
	// Bound means that only Prefers may be woken or started for the waiting requests: they may not go to some of the
	// instances.
	Bound bool `json:"bound,omitempty"`
	// At is when the demand was measured.
	At time.Time `json:"at"`
}

// Zero reports whether no request waits or runs and no instance is being woken.
func (d Demand) Zero() bool {
	return d.Waiting == 0 && d.Running == 0 && d.Background == 0 && d.Waking == ""
}

// Decision is one action of the autoscaler, with its reason.
type Decision struct {
	At       time.Time    `json:"at"`
	Function FunctionName `json:"function"`
	Instance InstanceID   `json:"instance,omitempty"`
	// Action is one of:
	//
	//   - "start", "wake", "sleep", "keep", "stop", "grant", "revoke", "wait";
	//   - "scale": an external controller set the number of instances;
	//   - "woken": an activator woke an instance under its grant;
	//   - "unhealthy": an awake instance no longer serves;
	//   - "reload": an instance reloads its model because its answers changed over a sleep;
	//   - "exceed": an instance uses more memory than its function declares;
	//   - "forecast": it is known whether a predicted request came;
	//   - "fail": waiting requests are refused.
	Action string `json:"action"`
	// Reason explains the action in one sentence, with the numbers that mattered.
	Reason string `json:"reason"`
	// Error is why the action failed; empty while it runs and if it succeeded.
	Error string `json:"error,omitempty"`
}
