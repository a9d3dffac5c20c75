package api

import (
	"slices"
	"time"
)

// EventWoken says that the first byte of the first request that a wake was for has gone
// out. Its data is a [WakeTrace] with the spans of the activator, which sends it; the
// autoscaler adds those of the others.
const EventWoken = "dev.rouse.function.woken.v1"

// Path is how an instance came up. The first three words are those of the dual-pod
// reference; what it calls cold with or without a launcher is one here, as nothing
// is launched ahead, and cold-freed is the case in which room had to be made before.
type Path string

// Paths of a wake.
const (
	PathHot       Path = "hot"        // a sleeping runtime was woken in place, whether or not another had to make room for it
	PathWarm      Path = "warm"       // a runtime was started in an instance that was there
	PathCold      Path = "cold"       // an instance was made
	PathColdFreed Path = "cold-freed" // an instance was made, and another had to go or to sleep before
	PathAwake     Path = "awake"      // an instance was up already, but took nothing at that moment
)

// Part is a part of Rouse, or what stands around it.
type Part string

// Parts that spans are of.
const (
	PartActivator  Part = "activator"
	PartAutoscaler Part = "autoscaler"
	PartInstance   Part = "instance"
	PartKubernetes Part = "kubernetes"
	PartCluster    Part = "cluster" // another one, that joins a front door
)

// Names of spans. Those of [PartInstance] are besides the words of [Step].
const (
	SpanHold       = "hold"           // activator: from the request's arrival until an instance is awake
	SpanEvent      = "event"          // the demand, from the activator's sending to the autoscaler's receiving
	SpanDecision   = "decision"       // autoscaler: from the demand until it acts
	SpanVictim     = "victim's sleep" // autoscaler: what made room, its draining included
	SpanWake       = "wake call"      // activator or autoscaler: the call to the instance
	SpanStart      = "start call"     // autoscaler: until there is a process, or Kubernetes was asked for a pod
	SpanStartup    = "start"          // autoscaler: from the decision to start until the instance is awake
	SpanDispatch   = "dispatch"       // activator: from awake until the request is sent
	SpanFirstToken = "first token"    // activator: from then until the first byte of the answer

	SpanElsewhere = "woken elsewhere" // cluster: what another cluster did for a request that a front door held; its note says which

	// In a cluster.
	SpanWrite     = "API write"    // autoscaler: one request that changes something at the API server; its note says what
	SpanVictimEnd = "victim's end" // Kubernetes: from a victim's deletion until none of its processes is left

	// What Kubernetes does for a pod that is made; with dual pods, for the one that claims the devices.
	SpanCreated   = "pod created"
	SpanScheduled = "scheduled"
	SpanStarted   = "started"

	// Dual pods: the claim and the pod that runs the server come together.
	SpanBound    = "bound"
	SpanMade     = "server pod made" // where it is: until it exists, those that have to go before it ended
	SpanServerUp = "server pod up"   // from then until its function says so
	SpanReady    = "ready"
)

// Words of [Step] beside the stages of [InstanceStatus].
const (
	StepWaking    = "waking"    // the runtime's own wake
	StepWeights   = "weights"   // within it: they are read again
	StepCache     = "cache"     // within it: memory for the KV cache is taken, and what lies in it is forgotten
	StepProbing   = "probing"   // until a token is generated
	StepCanary    = "canary"    // its tokens are compared
	StepRestoring = "restoring" // adapters, and whatever stands before the runtime
	StepFetching  = "fetching"  // the model's files
	StepForking   = "starting runtime"
	StepLoading   = "loading"
)

// WakeTrace is the record of one wake: what happened between the arrival of the request
// that found no instance awake and the first byte of its answer, or, where no request
// was the reason, until the instance was awake. It is a value; two records of one
// wake are merged by the part that has both.
type WakeTrace struct {
	Function FunctionName `json:"function"`
	Instance InstanceID   `json:"instance"`
	// Trace is the ID of the wake's trace, Root that of the span that is the whole of it,
	// and Parent that of the client's span where the request carried one.
	Trace  string `json:"trace"`
	Root   string `json:"root"`
	Parent string `json:"parent,omitempty"`
	// Unsampled says that the client did not want its trace exported.
	Unsampled bool `json:"unsampled,omitempty"`
	// Path is empty while it is unknown, which only the autoscaler ends.
	Path Path `json:"path,omitempty"`
	// By is the part that made the call which brought the instance up; empty while it is unknown.
	By Part `json:"by,omitempty"`
	// Activator held the request; empty where no request was the reason.
	Activator string `json:"activator,omitempty"`
	// Cluster is the one where the instance came up, where it joins the front door that held the request.
	Cluster string `json:"cluster,omitempty"`
	// Reason is that of the decision, where the autoscaler decided.
	Reason string `json:"reason,omitempty"`
	// Start is when it began, by the clock of the part that made the record.
	Start time.Time     `json:"start"`
	Total time.Duration `json:"total"`
	// Spans are ordered by their beginning; each lies within [0, Total].
	Spans []Span `json:"spans"`
}

// Span is one step of a wake.
type Span struct {
	// ID and Parent are those of the trace; the parent of the outermost ones is the record's Root.
	ID     string `json:"id"`
	Parent string `json:"parent"`
	Name   string `json:"name"`
	Part   Part   `json:"part"`
	// Who is the instance that the step is about, where it is not the record's own.
	Who InstanceID `json:"who,omitempty"`
	// After is when it began, from the record's Start.
	After time.Duration `json:"after"`
	Took  time.Duration `json:"took"`
	// Note is a reason, or an error.
	Note string `json:"note,omitempty"`
}

// End is when s ended, from the record's Start.
func (s Span) End() time.Duration { return s.After + s.Took }

// Whole is the span that is the whole of o.
func (o WakeTrace) Whole() Span { return Span{ID: o.Root, Took: o.Total} }

// Add puts a span into o, cut to what lies within it: clocks of different machines differ.
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
		if a.After <= b.After { // behind those that begin at the same time
			return -1
		}
		return 1
	})
	o.Spans = slices.Insert(o.Spans, k, s)
}
