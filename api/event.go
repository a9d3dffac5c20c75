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
	EventFunction      = "dev.rouse.function.declared.v1"   // data: Function, from whoever declares it
	EventFunctionGone  = "dev.rouse.function.removed.v1"    // data: Function, from whoever removes it
)

// Event is a CloudEvent (v1.0) with JSON data. It is a value and holds no
// reference to what it was made from. Its wire forms are in internal/cloudevent.
type Event struct {
	ID      string          `json:"id"`
	Source  string          `json:"source"`
	Type    string          `json:"type"`
	Subject string          `json:"subject"` // "namespace/function"
	Time    time.Time       `json:"time"`
	Data    json.RawMessage `json:"data"`
}

// NewEvent makes an event with a fresh ID and the current time. It panics if
// data can't be marshalled: payloads are our own types.
func NewEvent(eventType, source string, subject FunctionName, data any) Event {
	raw, err := json.Marshal(data)
	if err != nil {
		panic(fmt.Sprintf("api: marshal %s: %v", eventType, err))
	}
	return Event{ID: rand.Text(), Source: source, Type: eventType, Subject: string(subject), Time: time.Now(), Data: raw}
}

// Emitter takes events. Emit never blocks and is safe for many goroutines; an
// emitter that can't keep up drops its oldest events and counts them.
type Emitter interface {
	Emit(Event)
}

// EmitterFunc is a function that is an [Emitter].
type EmitterFunc func(Event)

// Emit calls f.
func (f EmitterFunc) Emit(e Event) { f(e) }

// Demand is what an activator sees of one function: a level, sent on change
// and repeated while it is not zero.
type Demand struct {
	Function FunctionName `json:"function"`
	// Activator is the sender; the autoscaler adds up the demands of all.
	Activator string `json:"activator"`
	// Waiting is the number of held requests.
	Waiting int `json:"waiting"`
	// Shared is how many of them any variant of their model may take.
	Shared int `json:"shared,omitempty"`
	// Tenants is how many of them each client has, where some instances may not see each one's; its keys are those of activators.
	Tenants map[string]int `json:"tenants,omitempty"`
	// OldestAge is how long the oldest of them has waited.
	OldestAge time.Duration `json:"oldestAge"`
	// WaitingTokens is the estimated size of the held requests.
	WaitingTokens Tokens `json:"waitingTokens"`
	// Running is the number of requests sent to instances and not finished.
	Running int `json:"running"`
	// Background is the number of those that take only what is left over, and are not in Running: an instance that has nothing else to do
	// stays awake for them.
	Background int `json:"background,omitempty"`
	// LastRequest is when the last request arrived; zero if none ever did.
	LastRequest time.Time `json:"lastRequest"`
	// Trace is the W3C traceparent of the wake that the oldest waiting request is for, in its root span; empty while none waits.
	Trace string `json:"trace,omitempty"`
	// Waking is the instance that the activator is waking under a grant; empty for none.
	Waking InstanceID `json:"waking,omitempty"`
	// Prefers is the sleeper that has kept the conversation of the request that waits first; empty: none has, or there is no choice.
	Prefers InstanceID `json:"prefers,omitempty"`
	// Bound says that what waits may not go to some of the instances: none but Prefers may be woken or started for it.
	Bound bool `json:"bound,omitempty"`
	// At is when this was true.
	At time.Time `json:"at"`
}

// Zero says whether no request waits or runs, and nothing is being woken.
func (d Demand) Zero() bool {
	return d.Waiting == 0 && d.Running == 0 && d.Background == 0 && d.Waking == ""
}

// Decision is one thing that the autoscaler decided, with its reason.
type Decision struct {
	At       time.Time    `json:"at"`
	Function FunctionName `json:"function"`
	Instance InstanceID   `json:"instance,omitempty"`
	// Action is a word: "start", "wake", "sleep", "keep", "stop", "grant", "revoke", "wait",
	// "scale" where somebody outside says how many are wanted, "woken" where an activator woke an instance under its grant,
	// "unhealthy" where one that was awake does not serve any more,
	// "reload" where an instance loads its model anew because it woke as another than it
	// was, "exceed" where one uses more than its function declares, "forecast" where it turned out
	// whether a request that was foreseen came, or "fail" where waiting requests are refused.
	Action string `json:"action"`
	// Reason says why in one sentence, with the numbers that mattered.
	Reason string `json:"reason"`
	// Error says why the action failed; empty while it runs and when it succeeded.
	Error string `json:"error,omitempty"`
}
