package autoscaler

import "github.com/rouse-dev/rouse/api"

// Paths of a wake.
const (
	PathHot       api.Path = "hot"        // a sleeping runtime was woken in place, whether or not another had to make room
	PathWarm      api.Path = "warm"       // a runtime was started in an existing instance
	PathCold      api.Path = "cold"       // an instance was created
	PathColdFreed api.Path = "cold-freed" // an instance was created after another was stopped or put to sleep
	pathAwake     api.Path = "awake"      // an instance was already up but accepted nothing at that moment
)

// Names of the autoscaler's and Kubernetes' spans, besides those of [api].
const (
	spanEvent    = "event"          // the demand, from the activator's sending to the autoscaler's receiving
	spanDecision = "decision"       // from the demand until the autoscaler acts
	spanVictim   = "victim's sleep" // freeing memory, with the victim's draining
	spanStart    = "start call"     // until there is a process, or Kubernetes was asked for a pod
	spanStartup  = "start"          // from the decision to start until the instance is awake

	// In a cluster.
	SpanWrite = "API write" // one write request to the API server; its note says which

	// What Kubernetes does for a new pod; with dual pods, for the pod that claims the devices.
	SpanCreated   = "pod created"
	SpanScheduled = "scheduled"
	SpanStarted   = "started"

	// Dual pods: the claim and the server pod are bound.
	SpanBound    = "bound"
	SpanMade     = "server pod made" // until the server pod exists, after the pods that had to go first have ended
	SpanServerUp = "server pod up"   // from then until its function reports that it is up
	SpanReady    = "ready"
)

// stepLabels are the steps that metrics have labels for; others may be any text of an instance.
var stepLabels = map[string]string{
	api.SpanHold: "hold", spanEvent: "event", spanDecision: "decision", spanVictim: "victim_sleep", api.SpanWake: "wake_call",
	spanStart: "start_call", spanStartup: "start", api.SpanDispatch: "dispatch", api.SpanFirstToken: "first_token",
	SpanWrite: "api_write", api.SpanVictimEnd: "victim_end", SpanMade: "server_pod_made", SpanServerUp: "server_pod_up",
	SpanCreated: "pod_created", SpanScheduled: "pod_scheduled", SpanStarted: "pod_started", SpanBound: "pod_bound", SpanReady: "pod_ready",
	api.StepWaking: "runtime_wake", api.StepWeights: "runtime_weights", api.StepCache: "runtime_cache", api.StepProbing: "probe", "canary": "canary",
	api.StepRestoring: "restore", api.StepFetching: "fetch", api.StepForking: "fork", api.StepLoading: "load",
}
