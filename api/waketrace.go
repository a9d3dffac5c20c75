package api

import (
	"slices"
	"time"
)

// EventWoken says that the first byte of the answer to a wake's first request was sent. Its data is a [WakeTrace]
// with the spans of the activator, which sends it; the autoscaler adds the other parts' spans.
const EventWoken = "dev.rouse.function.woken.v1"

// Path is how an instance came up: the autoscaler has its values. The words hot, warm and cold come from the dual-pod
// reference. Its "cold" with and without a launcher is one here, as nothing is launched ahead; cold-freed means that
// memory had to be freed first.
type Path string

// Part is a part of Rouse, or a system around it.
type Part string

// Parts that record spans.
const (
	PartActivator  Part = "activator"
	PartAutoscaler Part = "autoscaler"
	PartInstance   Part = "instance"
	PartKubernetes Part = "kubernetes"
)

// Names of spans. [PartInstance] also uses the names of [Step], the autoscaler has names of its own, and a front door
// names the work of a cluster.
const (
	SpanHold       = "hold"         // activator: from the request's arrival until an instance is awake
	SpanWake       = "wake call"    // activator or autoscaler: the call to the instance
	SpanDispatch   = "dispatch"     // activator: from awake until the request is sent
	SpanFirstToken = "first token"  // activator: from then until the first byte of the answer
	SpanVictimEnd  = "victim's end" // Kubernetes: from a victim's deletion until all its processes are gone
)

// Names of [Step] besides the stages of [InstanceStatus].
const (
	StepWaking    = "waking"    // the runtime's own wake
	StepWeights   = "weights"   // within it: weights are read again
	StepCache     = "cache"     // within it: memory for the KV cache is allocated; its old content is lost
	StepProbing   = "probing"   // until a token is generated
	StepRestoring = "restoring" // adapters, and everything in front of the runtime
	StepFetching  = "fetching"  // the model's files
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

// End returns the end of s, as an offset from the record's Start.
func (s Span) End() time.Duration { return s.After + s.Took }

// Whole returns the root span of o.
func (o WakeTrace) Whole() Span { return Span{ID: o.Root, Took: o.Total} }

// Add inserts a span into o, clipped to o's duration, as clocks of machines differ.
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
		if a.After <= b.After { // after spans that begin at the same time
			return -1
		}
		return 1
	})
	o.Spans = slices.Insert(o.Spans, k, s)
}
