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
	Starting  State = "starting"  // also while a wake is under way
	Awake     State = "awake"     // it has generated a token
	Draining  State = "draining"  // finishes its requests only
	Asleep    State = "asleep"    // its device memory is released
	Unhealthy State = "unhealthy" // also while restarted
	Gone      State = "gone"      // no process
)

// Level is the depth of a sleep.
type Level int

const (
	LevelAwake Level = 0
	Level1     Level = 1 // weights in host memory
	Level2     Level = 2 // no weights
	// Suspended: the driver has moved the process's device memory to the host.
	Suspended Level = 3
)

// InstanceStatus is an instance's report on itself, in [EventInstanceState] and as an answer.
type InstanceStatus struct {
	Instance InstanceID   `json:"instance"`
	Function FunctionName `json:"function"`
	State    State        `json:"state"`
	Level    Level        `json:"level"`
	// A Step or Stage constant, while starting.
	Stage string `json:"stage,omitempty"`
	// Share of the stage; 0: unknown.
	Progress float64 `json:"progress,omitempty"`
	// The highest seen; lower ones are refused.
	Epoch uint64 `json:"epoch"`
	// A lower number of this process is outdated.
	Seq         uint64    `json:"seq"`
	Since       time.Time `json:"since"`
	Endpoint    Endpoint  `json:"endpoint"`
	Running     int       `json:"running"`
	Concurrency int       `json:"concurrency"`
	// Empty if there is only one, or while unknown.
	Node string `json:"node,omitempty"`
	// Reserved by Kubernetes, awake or asleep.
	Requests Requests `json:"requests,omitempty"`
	// Nodes for an instance without one. In-process only.
	Candidates []string `json:"-"`
	// Spare is the part of Requests that the pod could release asleep; Shrunk: it is released. In-process only.
	Spare  Requests `json:"-"`
	Shrunk bool     `json:"-"`
	// Kubernetes deletes the pod: the instance has not failed. In-process only.
	Taken bool `json:"-"`
	// Asleep, only the kept prefix cache; nil: not reported.
	Load *Load `json:"load,omitempty"`
	// Of the last start or wake.
	Steps []Step `json:"steps,omitempty"`
	// The call that caused Steps.
	StepsSpan string `json:"stepsSpan,omitempty"`
	// Measured. A PerDevice of 0 is unknown.
	Memory Memory `json:"memory"`
	// In Memory.Host; other instances of the node may map it too.
	Shared SharedMemory `json:"shared,omitzero"`
	// A report with this state's GPU memory follows.
	Measuring bool `json:"measuring,omitempty"`
	// On the fullest GPU, by all processes, after falling asleep; 0: unknown.
	DeviceUse Bytes `json:"deviceUse,omitempty"`
	// Suspends: it has worked here. NoSuspend is why it can't.
	Suspends  bool   `json:"suspends,omitempty"`
	NoSuspend string `json:"noSuspend,omitempty"`
	// nil: it is to have none
	Snapshot *Snapshot `json:"snapshot,omitempty"`
	// An unhealthy instance found too little GPU memory.
	NoRoom  bool       `json:"noRoom,omitempty"`
	Devices []DeviceID `json:"devices,omitempty"`
	// Of the last start, wake and sleep; 0: unknown.
	LoadTime  time.Duration `json:"loadTime"`
	WakeTime  time.Duration `json:"wakeTime"`
	SleepTime time.Duration `json:"sleepTime"`
	// Of the runtime.
	Restarts int `json:"restarts"`
	// Wakes after which the canary's answer differed: the runtime was restarted.
	CanaryMismatches int `json:"canaryMismatches,omitempty"`
	// It no longer retries.
	GaveUp bool `json:"gaveUp,omitempty"`
	// For people: why it is unhealthy, with the last log lines, or what it lacks.
	Message string `json:"message,omitempty"`
	// As the server describes it.
	Model *ModelFacts `json:"model,omitempty"`
	// Loaded; clients may name them as the model.
	Adapters []ModelName `json:"adapters,omitempty"`
	// Loaded when a request names them.
	Standby []ModelName `json:"standby,omitempty"`
	// In another cluster: network round trip, price per hour, and requests beyond Concurrency that may wait there.
	// In-process only.
	Way   time.Duration `json:"-"`
	Cost  float64       `json:"-"`
	Waits int           `json:"-"`
	// The runtime's process.
	PID int `json:"pid,omitempty"`
}

// Snapshot is an image of a runtime's process, for its next start.
type Snapshot struct {
	// Zero: none.
	Made time.Time `json:"made,omitzero"`
	Size Bytes     `json:"size,omitempty"`
	// The last start from it; 0: none.
	Restore time.Duration `json:"restore,omitempty"`
	// Why there is none.
	Missing string `json:"missing,omitempty"`
}

// Load is a model server's, at the last read of its metrics.
type Load struct {
	// Waiting in the server.
	Running int `json:"running"`
	Waiting int `json:"waiting"`
	// Share of the KV cache; 0: unknown.
	KVUsage float64 `json:"kvUsage,omitempty"`
	// Tokens in the prefix cache and of running requests, or its capacity. Valid if CacheKnown.
	Cached     Tokens `json:"cached,omitempty"`
	CacheKnown bool   `json:"cacheKnown,omitempty"`
	// Of generation and prefill since the previous read; 0: unknown.
	TokensPerSecond       float64 `json:"tokensPerSecond,omitempty"`
	PromptTokensPerSecond float64 `json:"promptTokensPerSecond,omitempty"`
	// Mean since the previous read.
	TTFT time.Duration `json:"ttft,omitempty"`
}

// ModelFacts describe a model; zero: unknown.
type ModelFacts struct {
	// Of its files.
	Size Bytes `json:"size"`
	// Tokens of a request.
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
	// A Stage, or a step of the runtime's wake.
	Name string `json:"name"`
	// From the beginning.
	After time.Duration `json:"after"`
	Took  time.Duration `json:"took"`
}

// Ready reports whether the instance accepts requests.
func (s InstanceStatus) Ready() bool { return s.State == Awake }

// StepsOf returns Steps unless they are an earlier call's.
func (s InstanceStatus) StepsOf(span string) []Step {
	if s.StepsSpan == "" || s.StepsSpan != span {
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

// Usage counts a function's use through one activator: totals, so a lost or repeated event does no harm.
type Usage struct {
	Function  FunctionName `json:"function"`
	Activator string       `json:"activator"`
	Uses      []Use        `json:"uses"`
}

// Use counts requests with one key since Begun.
type Use struct {
	Begun time.Time `json:"begun"`
	// Empty: no key.
	Tenant   string `json:"tenant,omitempty"`
	Key      string `json:"key,omitempty"`
	Requests int64  `json:"requests"`
	Input    Tokens `json:"input"`
	// The part of Input from the cache, if reported.
	Cached Tokens `json:"cached,omitempty"`
	Output Tokens `json:"output"`
	// A share of what instances held.
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

// Requests are amounts by Kubernetes' names, CPU in thousandths and memory in bytes. Methods do not modify it.
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
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}
