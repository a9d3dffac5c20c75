package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// State is the state of an instance.
type State string

const (
	Starting  State = "starting"  // the process runs and the model loads, or a wake is under way
	Awake     State = "awake"     // it answered a probe that generates a token
	Draining  State = "draining"  // accepts nothing new, finishes its requests
	Asleep    State = "asleep"    // the process lives, its device memory is released
	Unhealthy State = "unhealthy" // failed; being restarted, or waiting for that
	Gone      State = "gone"      // there is no process
)

// Level is the depth of a sleep.
type Level int

const (
	LevelAwake Level = 0
	Level1     Level = 1 // weights stay in host memory
	Level2     Level = 2 // weights are dropped, the process lives
	// Suspended is a sleep after which the driver has moved all device memory of the process to the host.
	Suspended Level = 3
)

// InstanceStatus is an instance's full report on itself: the payload of [EventInstanceState] and the answer to a
// state request.
type InstanceStatus struct {
	Instance InstanceID   `json:"instance"`
	Function FunctionName `json:"function"`
	State    State        `json:"state"`
	Level    Level        `json:"level"`
	// Stage is what a starting instance does: a Step or Stage constant.
	Stage string `json:"stage,omitempty"`
	// Progress is the completed share of the stage, 0 to 1; 0 also if unknown.
	Progress float64 `json:"progress,omitempty"`
	// Epoch is the highest that the instance has seen; it refuses lower ones.
	Epoch uint64 `json:"epoch"`
	// Seq grows with every report of this process; a lower one is outdated.
	Seq   uint64    `json:"seq"`
	Since time.Time `json:"since"`
	// Endpoint serves client paths and control paths.
	Endpoint Endpoint `json:"endpoint"`
	Running  int      `json:"running"`
	// Concurrency is how many requests the instance runs at once.
	Concurrency int `json:"concurrency"`
	// Node is the machine; empty if there is only one, or while unknown.
	Node string `json:"node,omitempty"`
	// Requests are what Kubernetes reserves for its pod, awake or asleep.
	Requests Requests `json:"requests,omitempty"`
	// Candidates are the nodes that could run an instance not yet placed. In-process only.
	Candidates []string `json:"-"`
	// Spare is the part of Requests that the pod could release while asleep, Shrunk that it is released. It is
	// restored before a wake. In-process only.
	Spare  Requests `json:"-"`
	Shrunk bool     `json:"-"`
	// Taken: Kubernetes was told to delete the pod of a gone or draining instance, which has not failed. In-process
	// only.
	Taken bool `json:"-"`
	// Load is nil if the runtime reports none. Asleep, it holds only the kept prefix cache.
	Load *Load `json:"load,omitempty"`
	// Steps are the stages of the last start or wake, in order.
	Steps []Step `json:"steps,omitempty"`
	// StepsSpan is the span ID of the call that caused Steps, if it carried one.
	StepsSpan string `json:"stepsSpan,omitempty"`
	// Memory is the measured use. A PerDevice of 0 is unknown.
	Memory Memory `json:"memory"`
	// Shared is the file, included in Memory.Host, that other instances of the node may map too.
	Shared SharedMemory `json:"shared,omitzero"`
	// Measuring: its use of GPU memory in this state is being measured; a report follows.
	Measuring bool `json:"measuring,omitempty"`
	// DeviceUse is the memory in use on its fullest GPU, by all processes, after it fell asleep; 0: unknown.
	DeviceUse Bytes `json:"deviceUse,omitempty"`
	// Suspends means that a suspension and the restore after it have worked here, NoSuspend is why they can't;
	// neither: not tried.
	Suspends  bool   `json:"suspends,omitempty"`
	NoSuspend string `json:"noSuspend,omitempty"`
	// Snapshot is that of the function's process; nil: it is to have none.
	Snapshot *Snapshot `json:"snapshot,omitempty"`
	// NoRoom: the runtime of an unhealthy instance found too little free GPU memory.
	NoRoom  bool       `json:"noRoom,omitempty"`
	Devices []DeviceID `json:"devices,omitempty"`
	// Durations of the last start (process to awake), wake and sleep; 0: unknown.
	LoadTime  time.Duration `json:"loadTime"`
	WakeTime  time.Duration `json:"wakeTime"`
	SleepTime time.Duration `json:"sleepTime"`
	// Restarts counts the runtime's restarts since the instance started.
	Restarts int `json:"restarts"`
	// CanaryMismatches counts the wakes after which the canary's answer differed, so that the runtime was
	// restarted.
	CanaryMismatches int `json:"canaryMismatches,omitempty"`
	// GaveUp: an unhealthy instance no longer retries.
	GaveUp bool `json:"gaveUp,omitempty"`
	// Message is, for people, why the instance is unhealthy, with the runtime's last log lines, or what a healthy
	// one lacks.
	Message string `json:"message,omitempty"`
	// Model is the model server's description; nil: none.
	Model *ModelFacts `json:"model,omitempty"`
	// Adapters are the loaded LoRA adapters; clients may name them as the model.
	Adapters []ModelName `json:"adapters,omitempty"`
	// Standby are the adapters that load when a request names them.
	Standby []ModelName `json:"standby,omitempty"`
	// Way is the network round trip to an instance in another cluster, Cost its price per hour, Waits how many
	// requests beyond Concurrency may wait there for their turn. In-process only.
	Way   time.Duration `json:"-"`
	Cost  float64       `json:"-"`
	Waits int           `json:"-"`
	// PID is the runtime's process; 0: none.
	PID int `json:"pid,omitempty"`
}

// Snapshot is an image of a runtime's process, from which the next start begins if nothing has changed.
type Snapshot struct {
	// Made is zero if there is none.
	Made time.Time `json:"made,omitzero"`
	Size Bytes     `json:"size,omitempty"`
	// Restore is how long the last start from it took; 0: there was none.
	Restore time.Duration `json:"restore,omitempty"`
	// Missing is why there is none.
	Missing string `json:"missing,omitempty"`
}

// Load is a model server's load at the last read of its metrics.
type Load struct {
	// Running requests are processed, Waiting ones queued in the server.
	Running int `json:"running"`
	Waiting int `json:"waiting"`
	// KVUsage is the used share of the KV cache, 0 to 1; 0 also if unknown.
	KVUsage float64 `json:"kvUsage,omitempty"`
	// Cached is the number of tokens in the prefix cache, or its capacity if only that is reported, with running
	// requests. Valid only if CacheKnown.
	Cached     Tokens `json:"cached,omitempty"`
	CacheKnown bool   `json:"cacheKnown,omitempty"`
	// Rates of generation and prefill since the previous read; 0 also if unknown.
	TokensPerSecond       float64 `json:"tokensPerSecond,omitempty"`
	PromptTokensPerSecond float64 `json:"promptTokensPerSecond,omitempty"`
	// TTFT is the mean time to first token since the previous read.
	TTFT time.Duration `json:"ttft,omitempty"`
}

// ModelFacts describe a model; zero: unknown.
type ModelFacts struct {
	// Size counts its files.
	Size Bytes `json:"size"`
	// Context is how many tokens a request may have.
	Context int          `json:"context"`
	Details ModelDetails `json:"details"`
}

// ModelDetails are as in Ollama's API.
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
	// Name is an [InstanceStatus].Stage, or a step of the runtime's wake.
	Name string `json:"name"`
	// After is the offset from the start of the start or wake.
	After time.Duration `json:"after"`
	Took  time.Duration `json:"took"`
}

// Ready reports whether the instance accepts requests.
func (s InstanceStatus) Ready() bool { return s.State == Awake }

// StepsOf returns Steps if they belong to the call with this span, not to an earlier one.
func (s InstanceStatus) StepsOf(span string) []Step {
	if s.StepsSpan == "" || s.StepsSpan != span {
		return nil
	}
	return s.Steps
}

// Supersedes reports whether s should replace old: reports are ordered by Seq alone, but [Gone] always wins.
func (s InstanceStatus) Supersedes(old InstanceStatus) bool {
	return s.State == Gone || s.Seq > old.Seq
}

// Grant is the autoscaler's permission that an instance may be awake.
type Grant struct {
	Instance InstanceID   `json:"instance"`
	Function FunctionName `json:"function"`
	// Epoch orders grants and revocations of one instance, which refuses lower ones than it has seen.
	Epoch   uint64     `json:"epoch"`
	Devices []DeviceID `json:"devices,omitempty"`
	// Memory is reserved for the instance.
	Memory Memory `json:"memory"`
	// Expires is when the permission to begin a wake ends, by the grantor's clock. It frees nothing: the memory stays
	// reserved until the instance has seen a later epoch.
	Expires time.Time `json:"expires"`
	// Life is the time to Expires at sending: a receiver counts from the receipt, by its own clock. 0: Expires
	// counts.
	Life time.Duration `json:"life,omitempty"`
	// Trace is the W3C traceparent of the wake; empty for a standing grant.
	Trace string `json:"trace,omitempty"`
}

// Valid reports whether a wake may begin under g at now.
func (g Grant) Valid(now time.Time) bool { return g.Instance != "" && now.Before(g.Expires) }

// Stages of an instance whose pod has no node. Message gives the obstacle.
const (
	// StageUnschedulable: no node fits the pod.
	StageUnschedulable = "unschedulable"
	// StageProvisioning: a node is being provisioned or freed.
	StageProvisioning = "provisioning-node"
)

// OnItsWay reports whether the instance's node is being provisioned or its model fetched. Both have timeouts of
// their own; those of its start and of waiting requests pause.
func (s InstanceStatus) OnItsWay() bool {
	return s.State == Starting && (s.Stage == StageProvisioning || s.Stage == StepFetching)
}

// Unplaced reports whether no node has accepted the instance's pod; Message says why.
func (s InstanceStatus) Unplaced() bool {
	return s.State == Starting && (s.Stage == StageProvisioning || s.Stage == StageUnschedulable)
}

// Drain says how a draining instance ends its requests.
type Drain struct {
	// Limit is the time that requests have to finish.
	Limit time.Duration
	// Move ends them at once if all can continue at another instance.
	Move bool
}

// StaleEpoch reports whether an instance that has seen one epoch must refuse an order with another. An equal one is
// accepted: one grant allows many wakes, and orders are repeated.
func StaleEpoch(epoch, seen uint64) bool { return epoch < seen }

// Activity is the load of one function, as seen by one activator or by all together.
type Activity struct {
	Waiting     int           `json:"waiting"`
	OldestAge   time.Duration `json:"oldestAge"`
	HeldBytes   Bytes         `json:"heldBytes"`
	Running     int           `json:"running"`
	LastRequest time.Time     `json:"lastRequest"`
	// Waking is the instance that the activator is waking.
	Waking InstanceID `json:"waking,omitempty"`
	// Failed is why requests are refused.
	Failed string `json:"failed,omitempty"`
	// LostNames are the service's names that belong to another function, with the reason.
	LostNames []string `json:"lostNames,omitempty"`
	// WrongFallbacks says of each useless fallback why.
	WrongFallbacks []string         `json:"wrongFallbacks,omitempty"`
	Instances      []InstanceStatus `json:"instances"`
}

// EventUsage reports what clients have used of a function through one activator. Data: Usage.
const EventUsage = "dev.rouse.function.usage.v1"

// Usage counts the requests and tokens of a function's clients through one activator. It is a total: a lost or
// repeated event does no harm.
type Usage struct {
	Function  FunctionName `json:"function"`
	Activator string       `json:"activator"`
	Uses      []Use        `json:"uses"`
}

// Use counts the requests with one key since Begun.
type Use struct {
	Begun time.Time `json:"begun"`
	// Tenant owns the requests' key, and Key is its name; empty: no key.
	Tenant   string `json:"tenant,omitempty"`
	Key      string `json:"key,omitempty"`
	Requests int64  `json:"requests"`
	Input    Tokens `json:"input"`
	// Cached counts the tokens of Input from the instance's cache, if reported.
	Cached Tokens `json:"cached,omitempty"`
	Output Tokens `json:"output"`
	// GPUSeconds is their share of the GPU time that instances held.
	GPUSeconds float64 `json:"gpuSeconds"`
}

// MostUses bounds the uses of one event.
const MostUses = 1 << 10

// Check validates a usage from outside: the error is an *[Error].
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

// Requests are amounts by Kubernetes' name of the resource, CPU in thousandths and memory in bytes. Methods do not
// modify it.
type Requests map[string]int64

// Plus returns the sum of r and s.
func (r Requests) Plus(s Requests) Requests { return r.plus(s, 1) }

// Minus returns r less s; amounts may be negative.
func (r Requests) Minus(s Requests) Requests { return r.plus(s, -1) }

func (r Requests) plus(s Requests, times int64) Requests {
	sum := Requests{}
	maps.Copy(sum, r)
	for name, n := range s {
		sum[name] += n * times
	}
	return sum
}

// Lack returns how much of need is missing in r; nil: nothing. Amounts of 0 in need are ignored.
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

// String formats the amounts by name: "100m cpu, 1GiB memory".
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
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}
