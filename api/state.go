package api

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// State is the state of an instance.
type State string

const (
	Starting  State = "starting"  // also while a wake is under way
	Awake     State = "awake"     // it has generated a token
	Draining  State = "draining"  // finishes its requests only
	Asleep    State = "asleep"    // its device memory is released
	Unhealthy State = "unhealthy" // also while restarted
	Gone      State = "gone"      // no process
)

// States are all states of an instance, from the one in which it accepts a request soonest.
var States = []State{Awake, Starting, Draining, Asleep, Unhealthy, Gone}

// Sooner reports whether an instance in state s accepts a request sooner than one in the other state. Unknown states come last.
func (s State) Sooner(other State) bool {
	return uint(slices.Index(States, s)) < uint(slices.Index(States, other)) // -1 becomes the highest
}

// Level is the depth of a sleep.
type Level int

const (
	LevelAwake Level = 0
	Level1     Level = 1 // weights in host memory
	Level2     Level = 2 // no weights
	// Suspended: the driver has moved the process's device memory to the host.
	Suspended Level = 3
)

// InstanceStatus is an instance's full report on itself. It is the payload of [EventInstanceState] and the answer to
// a state request.
type InstanceStatus struct {
	Instance InstanceID   `json:"instance"`
	Function FunctionName `json:"function"`
	State    State        `json:"state"`
	Level    Level        `json:"level"`
	// Stage is the current activity of a starting instance: "fetching", "starting runtime", "loading", "probing",
	// "waking".
	Stage string `json:"stage,omitempty"`
	// Progress is the completed share of the stage, 0 to 1; 0 also if unknown.
	Progress float64 `json:"progress,omitempty"`
	// Epoch is the highest epoch that the instance has seen; it refuses lower ones.
	Epoch uint64 `json:"epoch"`
	// Seq grows with every report of this process; a report with a lower number is outdated.
	Seq   uint64    `json:"seq"`
	Since time.Time `json:"since"`
	// Endpoint serves client paths and control paths.
	Endpoint Endpoint `json:"endpoint"`
	// Running is the number of requests in the runtime.
	Running int `json:"running"`
	// Concurrency is how many requests the instance runs at once.
	Concurrency int `json:"concurrency"`
	// Node is the machine of the instance; empty if there is only one machine, or while unknown.
	Node string `json:"node,omitempty"`
	// Requests are the resources that Kubernetes reserves for its pod, awake or asleep; nil on one machine.
	Requests Requests `json:"requests,omitempty"`
	// Candidates are the nodes that could run an instance not yet placed. In-process only.
	Candidates []string `json:"-"`
	// Spare is the part of Requests that the pod could release while asleep; nil: nothing. Shrunk means that it is
	// released; it is restored before a wake. In-process only.
	Spare  Requests `json:"-"`
	Shrunk bool     `json:"-"`
	// Taken means that Kubernetes was told to delete the pod of a gone or finally draining instance, for example by a
	// lower scale: the instance has not failed. In-process only.
	Taken bool `json:"-"`
	// Load is the runtime's load; nil if the runtime reports none. Asleep, it holds only the kept prefix cache.
	Load *Load `json:"load,omitempty"`
	// Steps are the stages of the last start or wake, in order, for people and traces.
	Steps []Step `json:"steps,omitempty"`
	// StepsSpan is the span ID of the call that caused Steps; empty if the call carried none.
	StepsSpan string `json:"stepsSpan,omitempty"`
	// Memory is the measured use. If its PerDevice is 0, the use of GPUs is unknown.
	Memory Memory `json:"memory"`
	// Shared is the file included in Memory.Host that other instances of the node may map too. Zero: none known.
	Shared SharedMemory `json:"shared,omitzero"`
	// Measuring means that its use of GPU memory in this state is being measured; a report follows.
	Measuring bool `json:"measuring,omitempty"`
	// DeviceUse is the memory in use on its fullest GPU, by all processes, when the instance had fallen asleep, as
	// reported by its runtime; 0: not reported.
	DeviceUse Bytes `json:"deviceUse,omitempty"`
	// Suspends means that a suspension and the restore after it have worked here. NoSuspend is why they can't; both
	// are empty before the first try.
	Suspends  bool   `json:"suspends,omitempty"`
	NoSuspend string `json:"noSuspend,omitempty"`
	// Snapshot is the snapshot of the function's process on the disk; nil: it is to have none.
	Snapshot *Snapshot `json:"snapshot,omitempty"`
	// NoRoom means that the runtime of an unhealthy instance found too little free GPU memory.
	NoRoom bool `json:"noRoom,omitempty"`
	// Devices are the devices held by the instance.
	Devices []DeviceID `json:"devices,omitempty"`
	// The durations of the last start (process to awake), wake and sleep; 0: unknown.
	LoadTime  time.Duration `json:"loadTime"`
	WakeTime  time.Duration `json:"wakeTime"`
	SleepTime time.Duration `json:"sleepTime"`
	// Restarts counts the runtime's restarts since the instance started.
	Restarts int `json:"restarts"`
	// CanaryMismatches counts the wakes after which the canary's answer differed from before the sleep, so that the
	// runtime was restarted.
	CanaryMismatches int `json:"canaryMismatches,omitempty"`
	// GaveUp means that an unhealthy instance no longer retries: it failed too often, or for a permanent reason.
	GaveUp bool `json:"gaveUp,omitempty"`
	// Message is why the instance is unhealthy, with the runtime's last log lines, or what a healthy instance lacks;
	// for people.
	Message string `json:"message,omitempty"`
	// Model describes the model, as its server did after the first start; nil: it did not.
	Model *ModelFacts `json:"model,omitempty"`
	// Adapters are the loaded LoRA adapters; clients may name them as the model.
	Adapters []ModelName `json:"adapters,omitempty"`
	// Standby are the adapters that load as soon as a request names them.
	Standby []ModelName `json:"standby,omitempty"`
	// Way is the network round trip to an instance in another cluster, and Cost the price of an instance there per
	// hour. Waits is how many more requests than its Concurrency may wait there for their turn. In-process only.
	Way   time.Duration `json:"-"`
	Cost  float64       `json:"-"`
	Waits int           `json:"-"`
	// PID is the runtime's process; 0: none.
	PID int `json:"pid,omitempty"`
}

// Snapshot is an image of a runtime's process, from which the next start of one begins if nothing of the start has changed.
type Snapshot struct {
	// Made is when it was made; zero: there is none.
	Made time.Time `json:"made,omitzero"`
	Size Bytes     `json:"size,omitempty"`
	// Restore is how long the last start from it took; 0: there was none.
	Restore time.Duration `json:"restore,omitempty"`
	// Missing is why there is none.
	Missing string `json:"missing,omitempty"`
}

// Load is a model server's load at the last read of its metrics.
type Load struct {
	// Running and Waiting count the requests being processed and those queued in the server.
	Running int `json:"running"`
	Waiting int `json:"waiting"`
	// KVUsage is the used share of the KV cache, 0 to 1; 0 also if unknown.
	KVUsage float64 `json:"kvUsage,omitempty"`
	// Cached is the number of tokens in the prefix cache, or its capacity if the server reports only that; running
	// requests are included. It is valid only if CacheKnown.
	Cached     Tokens `json:"cached,omitempty"`
	CacheKnown bool   `json:"cacheKnown,omitempty"`
	// TokensPerSecond and PromptTokensPerSecond are the rates of generation and prefill since the previous read; 0
	// also if unknown.
	TokensPerSecond       float64 `json:"tokensPerSecond,omitempty"`
	PromptTokensPerSecond float64 `json:"promptTokensPerSecond,omitempty"`
	// TTFT is the mean time to first token of requests that got it since the previous read.
	TTFT time.Duration `json:"ttft,omitempty"`
}

// ModelFacts describe a model; what is unknown is zero.
type ModelFacts struct {
	// Size counts its files.
	Size Bytes `json:"size"`
	// Context is how many tokens a request may have at its server.
	Context int          `json:"context"`
	Details ModelDetails `json:"details"`
}

// ModelDetails are a model's details in Ollama's API.
type ModelDetails struct {
	Parent       string   `json:"parent_model"`
	Format       string   `json:"format"`
	Family       string   `json:"family"`
	Families     []string `json:"families"`
	Size         string   `json:"parameter_size"`
	Quantization string   `json:"quantization_level"`
}

// Step is one stage of a start or a wake.
type Step struct {
	// Name is a stage of [InstanceStatus].Stage, or a step of the runtime's wake.
	Name string `json:"name"`
	// After is the offset from the start of the start or wake.
	After time.Duration `json:"after"`
	Took  time.Duration `json:"took"`
}

// Ready reports whether the instance accepts requests.
func (s InstanceStatus) Ready() bool { return s.State == Awake }

// StepsOf returns Steps unless they are an earlier call's.
func (s InstanceStatus) StepsOf(span string) []Step {
	if span == "" || s.StepsSpan != span {
		return nil
	}
	return s.Steps
}

// Supersedes compares reports of one instance by Seq; [Gone] always wins.
func (s InstanceStatus) Supersedes(old InstanceStatus) bool {
	return s.State == Gone || s.Seq > old.Seq
}

// Grant is the autoscaler's permission that an instance may be awake.
type Grant struct {
	Instance InstanceID   `json:"instance"`
	Function FunctionName `json:"function"`
	// Of one instance, which refuses lower ones than it has seen.
	Epoch   uint64     `json:"epoch"`
	Devices []DeviceID `json:"devices,omitempty"`
	// Reserved for the instance.
	Memory Memory `json:"memory"`
	// Until then a wake may begin, by the grantor's clock. The memory stays reserved until the instance has seen a
	// later epoch.
	Expires time.Time `json:"expires"`
	// From receipt, by the receiver's clock. 0: Expires counts.
	Life time.Duration `json:"life,omitempty"`
	// The W3C traceparent of the wake; empty for a standing grant.
	Trace string `json:"trace,omitempty"`
}

// Valid reports whether a wake may begin under g at now.
func (g Grant) Valid(now time.Time) bool { return g.Instance != "" && now.Before(g.Expires) }

// Stages of an instance whose pod has no node. Message gives the obstacle.
const (
	// No node fits the pod.
	StageUnschedulable = "unschedulable"
	// A node is being provisioned or freed.
	StageProvisioning = "provisioning-node"
)

// OnItsWay reports whether the node is being provisioned or the model fetched, which have timeouts of their own:
// others pause.
func (s InstanceStatus) OnItsWay() bool {
	return s.State == Starting && (s.Stage == StageProvisioning || s.Stage == StepFetching)
}

// Unplaced reports whether the pod has no node.
func (s InstanceStatus) Unplaced() bool {
	return s.State == Starting && (s.Stage == StageProvisioning || s.Stage == StageUnschedulable)
}

// Drain says how a draining instance ends its requests.
type Drain struct {
	// For requests to finish.
	Limit time.Duration
	// They end at once if all can continue elsewhere.
	Move bool
}

// StaleEpoch reports whether an instance must refuse an order. An equal epoch is accepted: one grant allows many
// wakes, and orders are repeated.
func StaleEpoch(epoch, seen uint64) bool { return epoch < seen }

// Activity is a function's load, as seen by activators.
type Activity struct {
	Waiting     int           `json:"waiting"`
	OldestAge   time.Duration `json:"oldestAge"`
	HeldBytes   Bytes         `json:"heldBytes"`
	Running     int           `json:"running"`
	LastRequest time.Time     `json:"lastRequest"`
	// By the activator.
	Waking InstanceID `json:"waking,omitempty"`
	// Why requests are refused.
	Failed string `json:"failed,omitempty"`
	// Names that belong to another function, with the reason.
	LostNames []string `json:"lostNames,omitempty"`
	// Why a fallback is useless.
	WrongFallbacks []string         `json:"wrongFallbacks,omitempty"`
	Instances      []InstanceStatus `json:"instances"`
}

// EventUsage reports clients' use through one activator. Data: Usage.
const EventUsage = "dev.rouse.function.usage.v1"

// Usage counts the requests and tokens of a function's clients through one activator. It is a total, not a
// difference: a lost or repeated event does no harm.
type Usage struct {
	Function  FunctionName `json:"function"`
	Activator string       `json:"activator"`
	Uses      []Use        `json:"uses"`
}

// Use counts the requests with one key since Begun, when the activator started counting.
type Use struct {
	Begun time.Time `json:"begun"`
	// Tenant is the owner of the requests' key and Key its name; empty: no key.
	Tenant   string `json:"tenant,omitempty"`
	Key      string `json:"key,omitempty"`
	Requests int64  `json:"requests"`
	Input    Tokens `json:"input"`
	// Cached counts the tokens of Input that came from the instance's cache, if it reports them.
	Cached Tokens `json:"cached,omitempty"`
	Output Tokens `json:"output"`
	// GPUSeconds is their share of the GPU time that instances held.
	GPUSeconds float64 `json:"gpuSeconds"`
}

// MostUses bounds the uses of one event.
const MostUses = 1 << 10

// Check validates a usage from outside.
func (u Usage) Check() error {
	if u.Function == "" || u.Activator == "" || len(u.Uses) > MostUses {
		return BadRequest("data", "want a function, an activator, and at most %d uses", MostUses)
	}
	for _, s := range u.Uses {
		if s.Begun.IsZero() || len(s.Tenant+s.Key) > 512 ||
			s.Requests < 0 || s.Input < 0 || s.Cached < 0 || s.Output < 0 || s.GPUSeconds < 0 ||
			max(float64(s.Requests), float64(s.Input), float64(s.Output), s.GPUSeconds) > 1e12 { // sums must not overflow
			return BadRequest("data", "the use by %.100q: want the time when counting began, a short tenant and key, and numbers from 0 to 1e12", s.Tenant)
		}
	}
	return nil
}

// Requests are amounts by Kubernetes' name of the resource, CPU in thousandths and memory in bytes: a pod's resource requests, or a node's capacity. nil is empty. Methods do not
// modify it.
type Requests map[string]int64

// Plus returns the sum of r and s.
func (r Requests) Plus(s Requests) Requests { return r.plus(s, 1) }

// Minus may be negative.
func (r Requests) Minus(s Requests) Requests { return r.plus(s, -1) }

func (r Requests) plus(s Requests, times int64) Requests {
	sum := Requests{}
	maps.Copy(sum, r)
	for name, n := range s {
		sum[name] += n * times
	}
	return sum
}

// Lack returns what r lacks of need; nil: nothing.
func (r Requests) Lack(need Requests) Requests {
	var lack Requests
	for name, n := range need {
		if n > 0 && r[name] < n {
			if lack == nil {
				lack = make(Requests)
			}
			lack[name] = n - max(0, r[name])
		}
	}
	return lack
}

// String is such as "100m cpu, 1GiB memory".
func (r Requests) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(r)) {
		n := r[name]
		switch {
		case n == 0:
		case name == "cpu" && n%1000 == 0:
			parts = append(parts, fmt.Sprintf("%d cpu", n/1000))
		case name == "cpu":
			parts = append(parts, fmt.Sprintf("%dm cpu", n))
		case strings.HasSuffix(name, "memory") || strings.HasSuffix(name, "storage"):
			parts = append(parts, Bytes(n).String()+" "+name)
		default:
			parts = append(parts, fmt.Sprintf("%d %s", n, name))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "nothing")
}
