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

// Demand is an activator's load for one function, sent on change and repeated while it is not zero.
type Demand struct {
	Function FunctionName `json:"function"`
	// The sender.
	Activator string `json:"activator"`
	Waiting   int    `json:"waiting"`
	// Any variant of their model may serve these.
	Shared int `json:"shared,omitempty"`
	// Waiting requests by client, if some instances may not serve all; keys are activators' own.
	Tenants   map[string]int `json:"tenants,omitempty"`
	OldestAge time.Duration  `json:"oldestAge"`
	// The estimated size.
	WaitingTokens Tokens `json:"waitingTokens"`
	// At instances.
	Running int `json:"running"`
	// Requests that use only spare capacity, not in Running. An idle instance stays awake for them.
	Background  int       `json:"background,omitempty"`
	LastRequest time.Time `json:"lastRequest"`
	// The W3C traceparent of the wake that the oldest request waits for.
	Trace string `json:"trace,omitempty"`
	// Woken by the activator under a grant.
	Waking InstanceID `json:"waking,omitempty"`
	// The sleeper that has kept the first waiting request's conversation, if one has.
	Prefers InstanceID `json:"prefers,omitempty"`
	// Bound: only Prefers may be woken or started for the waiting requests.
	Bound bool      `json:"bound,omitempty"`
	At    time.Time `json:"at"`
}

// Zero reports whether no request waits or runs and nothing is being woken.
func (d Demand) Zero() bool {
	return d.Waiting == 0 && d.Running == 0 && d.Background == 0 && d.Waking == ""
}

// Decision is one action of the autoscaler.
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
	// One sentence, with the numbers that mattered.
	Reason string `json:"reason"`
	// Why the action failed.
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

// Path is how an instance came up, in the words of the dual-pod reference.
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

// WakeTrace is the record of one wake, from the request that found no instance awake to its answer's first byte,
// or, without a request, until the instance is awake.
type WakeTrace struct {
	Function FunctionName `json:"function"`
	Instance InstanceID   `json:"instance"`
	// Root is the root span, Parent the client's.
	Trace     string `json:"trace"`
	Root      string `json:"root"`
	Parent    string `json:"parent,omitempty"`
	Unsampled bool   `json:"unsampled,omitempty"`
	// Set by the autoscaler.
	Path Path `json:"path,omitempty"`
	// The part whose call brought the instance up.
	By Part `json:"by,omitempty"`
	// Empty: no request caused the wake.
	Activator string `json:"activator,omitempty"`
	// Where the instance came up, if it joins the front door.
	Cluster string `json:"cluster,omitempty"`
	// The autoscaler's.
	Reason string `json:"reason,omitempty"`
	// By the clock of the record's maker.
	Start time.Time     `json:"start"`
	Total time.Duration `json:"total"`
	// By beginning; within [0, Total].
	Spans []Span `json:"spans"`
}

// Span is one step of a wake.
type Span struct {
	// Outermost spans have the record's Root as Parent.
	ID     string `json:"id"`
	Parent string `json:"parent"`
	Name   string `json:"name"`
	Part   Part   `json:"part"`
	// If not the record's instance.
	Who InstanceID `json:"who,omitempty"`
	// From the record's Start.
	After time.Duration `json:"after"`
	Took  time.Duration `json:"took"`
	// A reason or an error.
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
		if a.After <= b.After {
			return -1
		}
		return 1
	})
	o.Spans = slices.Insert(o.Spans, k, s)
}
