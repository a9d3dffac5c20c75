package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
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

// Event is a CloudEvent (v1.0); see internal/cloudevent for wire forms.
type Event struct {
	ID      string          `json:"id"`
	Source  string          `json:"source"`
	Type    string          `json:"type"`
	Subject string          `json:"subject"` // "namespace/function"
	Time    time.Time       `json:"time"`
	Data    json.RawMessage `json:"data"`
}

// NewEvent panics if data cannot be marshalled.
func NewEvent(eventType, source string, subject FunctionName, data any) Event {
	raw, err := json.Marshal(data)
	if err != nil {
		panic(fmt.Sprintf("api: marshal %s: %v", eventType, err))
	}
	return Event{ID: rand.Text(), Source: source, Type: eventType, Subject: string(subject), Time: time.Now(), Data: raw}
}

// Emitter accepts events. Emit never blocks and is safe for concurrent use; one that cannot keep up drops and
// counts its oldest events.
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

// Zero reports whether no request waits or runs and nothing is being woken.
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

// HeaderTrace is W3C Trace Context's, Level 1.
const HeaderTrace = "Traceparent"

// Trace is a W3C trace context. Zero: none.
type Trace struct {
	// In hexadecimal, 32 and 16 digits.
	ID   string
	Span string
	// Unsampled: not to be exported.
	Unsampled bool
}

// ParseTrace parses [HeaderTrace], of version 00 or later.
func ParseTrace(s string) (Trace, bool) {
	// Later versions may append fields.
	if len(s) < 55 || len(s) > 512 || s[2] != '-' || s[35] != '-' || s[52] != '-' || s[:2] == "ff" || len(s) > 55 && (s[:2] == "00" || s[55] != '-') {
		return Trace{}, false
	}
	t := Trace{ID: s[3:35], Span: s[36:52]}
	flags, err := hex.DecodeString(s[53:55])
	if err != nil || !isHex(s[:2]) || !isID(t.ID) || !isID(t.Span) {
		return Trace{}, false
	}
	t.Unsampled = flags[0]&1 == 0
	return t, true
}

func isID(s string) bool { return isHex(s) && strings.Trim(s, "0") != "" }

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

// TraceFrom returns the trace in a header.
func TraceFrom(h http.Header) Trace {
	v := h[HeaderTrace]
	if len(v) != 1 {
		return Trace{}
	}
	t, _ := ParseTrace(v[0])
	return t
}

// Zero reports whether t is no trace.
func (t Trace) Zero() bool { return t.ID == "" }

// String returns the value of [HeaderTrace]; empty for the zero value.
func (t Trace) String() string {
	switch {
	case t.Zero():
		return ""
	case t.Unsampled:
		return "00-" + t.ID + "-" + t.Span + "-00"
	}
	return "00-" + t.ID + "-" + t.Span + "-01"
}

type traceKey struct{}

// WithTrace makes calls to other parts carry t.
func WithTrace(ctx context.Context, t Trace) context.Context {
	if t.Zero() {
		return ctx
	}
	return context.WithValue(ctx, traceKey{}, t)
}

// TraceOf returns the trace of ctx.
func TraceOf(ctx context.Context) Trace {
	t, _ := ctx.Value(traceKey{}).(Trace)
	return t
}

// EventWoken reports the first byte of the answer to a wake's first request. Data: [WakeTrace] with the activator's
// spans.
const EventWoken = "dev.rouse.function.woken.v1"

// Path is how an instance came up, in the words of the dual-pod reference; cold-freed: memory had to be freed first.
type Path string

// Part is a part of Rouse, or a system around it.
type Part string

const (
	PartActivator  Part = "activator"
	PartAutoscaler Part = "autoscaler"
	PartInstance   Part = "instance"
	PartKubernetes Part = "kubernetes"
)

// Names of spans, besides [Step]'s and those of autoscaler and front doors.
const (
	SpanHold       = "hold"         // activator: until an instance is awake
	SpanWake       = "wake call"    // to the instance
	SpanDispatch   = "dispatch"     // activator: until the request is sent
	SpanFirstToken = "first token"  // activator: until the answer begins
	SpanVictimEnd  = "victim's end" // Kubernetes: until a victim's processes are gone
)

// Names of [Step] besides the stages of [InstanceStatus].
const (
	StepWaking    = "waking"
	StepWeights   = "weights"   // read again
	StepCache     = "cache"     // memory for the KV cache, whose content is lost
	StepProbing   = "probing"   // until a token is generated
	StepRestoring = "restoring" // adapters, and what is in front of the runtime
	StepFetching  = "fetching"
	StepForking   = "starting runtime"
	StepLoading   = "loading"
)

// WakeTrace is the record of one wake: from the arrival of the request that found no instance awake to the first byte
// of its answer. If no request caused the wake, it ends when the instance is awake. It is a value; a part that has
// two records of one wake merges them.
type WakeTrace struct {
	Function FunctionName `json:"function"`
	Instance InstanceID   `json:"instance"`
	// Trace is the wake's trace ID, Root the ID of its root span, and Parent the client's span, if the request
	// carried one.
	Trace  string `json:"trace"`
	Root   string `json:"root"`
	Parent string `json:"parent,omitempty"`
	// Unsampled means that the client did not want its trace exported.
	Unsampled bool `json:"unsampled,omitempty"`
	// Path is empty while unknown; only the autoscaler sets it.
	Path Path `json:"path,omitempty"`
	// By is the part that made the call which brought the instance up; empty while unknown.
	By Part `json:"by,omitempty"`
	// Activator is the one that held the request; empty if no request caused the wake.
	Activator string `json:"activator,omitempty"`
	// Cluster is where the instance came up, if that cluster joins the front door that held the request.
	Cluster string `json:"cluster,omitempty"`
	// Reason is the autoscaler's reason, if it decided the wake.
	Reason string `json:"reason,omitempty"`
	// Start is the beginning of the wake, by the clock of the part that made the record.
	Start time.Time     `json:"start"`
	Total time.Duration `json:"total"`
	// Spans are sorted by their beginning; each lies within [0, Total].
	Spans []Span `json:"spans"`
}

// Span is one step of a wake.
type Span struct {
	// ID and Parent are span IDs of the trace; the outermost spans have the record's Root as parent.
	ID     string `json:"id"`
	Parent string `json:"parent"`
	Name   string `json:"name"`
	Part   Part   `json:"part"`
	// Who is the instance that the step is about, if it is not the record's.
	Who InstanceID `json:"who,omitempty"`
	// After is the beginning, as an offset from the record's Start.
	After time.Duration `json:"after"`
	Took  time.Duration `json:"took"`
	// Note is a reason or an error.
	Note string `json:"note,omitempty"`
}

// End is an offset from the record's Start.
func (s Span) End() time.Duration { return s.After + s.Took }

// Whole returns the root span of o.
func (o WakeTrace) Whole() Span { return Span{ID: o.Root, Took: o.Total} }

// Add clips the span to o's duration: clocks of machines differ.
func (o *WakeTrace) Add(s Span) {
	s.After = min(max(0, s.After), o.Total)
	s.Took = min(max(0, s.Took), o.Total-s.After)
	if s.Parent == "" {
		s.Parent = o.Root
	}
	if s.Who == o.Instance {
		s.Who = ""
	}
	k, _ := slices.BinarySearchFunc(o.Spans, s, func(a, b Span) int {
		if a.After <= b.After { // after those that begin at the same time
			return -1
		}
		return 1
	})
	o.Spans = slices.Insert(o.Spans, k, s)
}
