package api

import (
	"time"
)

// State is the state of an instance.
type State string

// States of an instance.
const (
	Starting  State = "starting"  // the process runs, the model is loading; also a wake under way
	Awake     State = "awake"     // it answered a probe that generates a token
	Draining  State = "draining"  // takes nothing new, finishes what it has
	Asleep    State = "asleep"    // the process lives, its device memory is released
	Unhealthy State = "unhealthy" // it failed and is being restarted, or waits to be
	Gone      State = "gone"      // there is no process
)

// Level is the depth of a sleep.
type Level int

// Levels. Level 0 is awake.
const (
	LevelAwake Level = 0
	Level1     Level = 1 // weights stay in host memory
	Level2     Level = 2 // weights are dropped, the process lives
)

// StageWaking is the stage of an instance that starts out of a sleep.
const StageWaking = "waking"

// InstanceStatus is all that an instance says about itself. It is the payload
// of [EventInstanceState] and the answer to a state request.
type InstanceStatus struct {
	Instance InstanceID   `json:"instance"`
	Function FunctionName `json:"function"`
	State    State        `json:"state"`
	Level    Level        `json:"level"`
	// Stage is a word on what a starting instance is doing: "fetching", "starting runtime", "loading", "probing", "waking".
	Stage string `json:"stage,omitempty"`
	// Progress is the share of the stage that is done, 0 to 1; 0 also while it is unknown.
	Progress float64 `json:"progress,omitempty"`
	// Epoch is the highest grant epoch that the instance has seen; it refuses lower ones.
	Epoch uint64 `json:"epoch"`
	// Seq grows with every report of this instance's process; a report with a lower one is out of date.
	Seq uint64 `json:"seq"`
	// Since is when the state began.
	Since time.Time `json:"since"`
	// Endpoint is where the instance takes requests, client paths and control paths alike.
	Endpoint Endpoint `json:"endpoint"`
	// Running is the number of requests in the runtime now.
	Running int `json:"running"`
	// Concurrency is how many it takes at once.
	Concurrency int `json:"concurrency"`
	// Node is the machine that it runs on; empty where there is only one, or while it is unknown.
	Node string `json:"node,omitempty"`
	// Requests is what Kubernetes keeps of the node for its pod, awake or asleep; nil on one machine.
	Requests Requests `json:"requests,omitempty"`
	// Candidates are the nodes that could take it, of one that no node has taken; between parts of one process only.
	Candidates []string `json:"-"`
	// Spare is what its pod could give up of Requests if it slept, nil if nothing; Shrunk says that it has done so, and gets
	// it back before it wakes. Between parts of one process only.
	Spare  Requests `json:"-"`
	Shrunk bool     `json:"-"`
	// Taken says of one that is gone, or drains for the last time, that Kubernetes was told to delete its pod, with a lower scale for
	// instance: nothing of it has failed. Between parts of one process only.
	Taken bool `json:"-"`
	// Load is what its runtime says of its work; nil where it says nothing. Of one that is asleep it says only what it has kept of its prefix cache.
	Load *Load `json:"load,omitempty"`
	// Steps are the stages of the last start or wake, in their order, for people and traces.
	Steps []Step `json:"steps,omitempty"`
	// StepsSpan is the ID of the span of the call that Steps are of; empty if it carried none.
	StepsSpan string `json:"stepsSpan,omitempty"`
	// Memory is what the instance uses now, as measured. Where its PerDevice is 0, what it uses of GPUs is not known.
	Memory Memory `json:"memory"`
	// Shared is what of Memory.Host is a file that other instances of its node may have in memory too, all of it. Zero: nothing that is
	// known.
	Shared SharedMemory `json:"shared,omitzero"`
	// Measuring says that what it holds of GPUs in this state is being measured: a report of it follows.
	Measuring bool `json:"measuring,omitempty"`
	// DeviceUse is how much of its GPUs, of the fullest one, was in use by whomever when it had fallen asleep, as its
	// runtime said then; 0: it has not said.
	DeviceUse Bytes `json:"deviceUse,omitempty"`
	// NoRoom says of an unhealthy one that its runtime found too little free memory on a GPU.
	NoRoom bool `json:"noRoom,omitempty"`
	// Devices are the devices that it holds.
	Devices []DeviceID `json:"devices,omitempty"`
	// Durations of the last start (process to awake), wake and sleep; 0 while unknown.
	LoadTime  time.Duration `json:"loadTime"`
	WakeTime  time.Duration `json:"wakeTime"`
	SleepTime time.Duration `json:"sleepTime"`
	// Restarts counts the runtime's restarts since the instance began.
	Restarts int `json:"restarts"`
	// CanaryMismatches counts the wakes after which the model did not answer the canary as
	// before its sleep, and the runtime was started again.
	CanaryMismatches int `json:"canaryMismatches,omitempty"`
	// GaveUp says that an unhealthy instance does not try again by itself: it has failed
	// too often, or for a reason that another try does not change.
	GaveUp bool `json:"gaveUp,omitempty"`
	// Message says why the instance is unhealthy, for people, the runtime's last log lines included; or what a healthy one does without.
	Message string `json:"message,omitempty"`
	// Adapters are the names of the LoRA adapters that are loaded; clients may write them as the model.
	Adapters []ModelName `json:"adapters,omitempty"`
	// Standby are the names of those that are loaded as soon as a request names them.
	Standby []ModelName `json:"standby,omitempty"`
	// Way is the time of a message to it and back, of one in another cluster, and Cost what an instance there costs for an
	// hour. Between parts of one process only.
	Way  time.Duration `json:"-"`
	Cost float64       `json:"-"`
	// PID is the runtime's process, 0 where there is none.
	PID int `json:"pid,omitempty"`
}

// SameWay is how much two ways to instances may differ and be as long.
const SameWay = 20 * time.Millisecond

// Load is what a model server says of its work, as of the last look at its metrics.
type Load struct {
	// Running and Waiting are the requests that it works on and that wait inside of it.
	Running int `json:"running"`
	Waiting int `json:"waiting"`
	// KVUsage is the share of the KV cache that is in use, 0 to 1; 0 also while it is unknown.
	KVUsage float64 `json:"kvUsage,omitempty"`
	// Cached is how many tokens its prefix cache has, or where it says only that can have, those of running requests included. It means nothing
	// unless CacheKnown.
	Cached     Tokens `json:"cached,omitempty"`
	CacheKnown bool   `json:"cacheKnown,omitempty"`
	// TokensPerSecond and PromptTokensPerSecond are the rates of generation and of prefill
	// since the look before; 0 also while they are unknown.
	TokensPerSecond       float64 `json:"tokensPerSecond,omitempty"`
	PromptTokensPerSecond float64 `json:"promptTokensPerSecond,omitempty"`
	// TTFT is the mean time to first token of the requests that got theirs since the look before.
	TTFT time.Duration `json:"ttft,omitempty"`
}

// Step is one stage of a start or a wake.
type Step struct {
	// Name is a word of [InstanceStatus].Stage, or a step of the runtime's wake.
	Name string `json:"name"`
	// After is when it began, from the beginning of the start or wake.
	After time.Duration `json:"after"`
	Took  time.Duration `json:"took"`
}

// Ready says whether the instance takes requests.
func (s InstanceStatus) Ready() bool { return s.State == Awake }

// StepsOf returns Steps where they are of the call with this span, and else nil: a record
// must not show the steps of a start or wake before.
func (s InstanceStatus) StepsOf(span string) []Step {
	if s.StepsSpan == "" || s.StepsSpan != span {
		return nil
	}
	return s.Steps
}

// Supersedes says whether s is newer than old and should replace it.
// Reports of one instance are ordered by Seq alone; [Gone] always wins.
func (s InstanceStatus) Supersedes(old InstanceStatus) bool {
	return s.State == Gone || s.Seq > old.Seq
}

// Grant is the autoscaler's permission that an instance may be awake.
type Grant struct {
	Instance InstanceID   `json:"instance"`
	Function FunctionName `json:"function"`
	// Epoch orders grants and revocations of one instance. An instance refuses a lower one than it has seen.
	Epoch uint64 `json:"epoch"`
	// Devices are where it may be awake.
	Devices []DeviceID `json:"devices,omitempty"`
	// Memory is what is reserved for it.
	Memory Memory `json:"memory"`
	// Expires is when the permission to begin a wake ends, by the clock of who gave it. An instance
	// that is awake by then stays awake. It frees nothing: what was granted stays reserved until the
	// instance has seen a later epoch.
	Expires time.Time `json:"expires"`
	// Life is the time to Expires as of the sending. Who takes a grant in counts from then on, by
	// its own clock; 0: Expires counts.
	Life time.Duration `json:"life,omitempty"`
	// Trace is the W3C traceparent of the wake that a start or a call is for; empty for a
	// standing grant.
	Trace string `json:"trace,omitempty"`
}

// Valid says whether a wake may begin under g at now.
func (g Grant) Valid(now time.Time) bool { return g.Instance != "" && now.Before(g.Expires) }

// Words of [InstanceStatus].Stage of an instance whose pod has no node yet. Message then says what stands in the way.
const (
	// StageUnschedulable: no node takes the pod as things are.
	StageUnschedulable = "unschedulable"
	// StageProvisioning: a node is being provisioned for it, or made free.
	StageProvisioning = "provisioning-node"
)

// OnItsWay says whether s is of an instance whose node is being provisioned or whose model is being fetched. The clocks
// of its start and of the requests that wait for it stand still meanwhile: whoever provisions or fetches has limits for
// what comes no further.
func (s InstanceStatus) OnItsWay() bool {
	return s.State == Starting && (s.Stage == StageProvisioning || s.Stage == StepFetching)
}

// Unplaced says whether s is of an instance that no node has taken yet, and Message says why.
func (s InstanceStatus) Unplaced() bool {
	return s.State == Starting && (s.Stage == StageProvisioning || s.Stage == StageUnschedulable)
}

// Drain says how an instance that gives way ends the requests that it has.
type Drain struct {
	// Limit is how long they may take to finish.
	Limit time.Duration
	// Move ends them at once, where all of them can go on at another instance.
	Move bool
}
