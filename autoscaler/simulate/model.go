package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Model has the true properties of one function's model, which policies learn only as their counterparts would.
type Model struct {
	Name api.ModelName
	// Load is from the start of a process to awake, Wake from asleep to awake, by level (0 is unused), Sleep from awake
	// to asleep, without draining, Stop from the order to gone.
	Load  time.Duration
	Wake  [3]time.Duration
	Sleep time.Duration
	Stop  time.Duration
	// FirstSleep is Sleep of a process that has not slept; 0: the same.
	FirstSleep time.Duration
	// Fetch is added to Load on a node without the model's files. The initial nodes have all files.
	Fetch time.Duration
	// Declared is nil if nothing is; see [Policy].
	Declared *Declared
	// GPUs is how many an instance needs, Device its memory on each while awake, Host on the host.
	GPUs   int
	Device api.Bytes
	Host   api.Bytes
	// Residue and HostResidue are the memory kept asleep, by level, of each GPU and of the host.
	Residue, HostResidue [3]api.Bytes
	Concurrency          int
	// Prefill is in prompt tokens per second, of all requests together.
	Prefill float64
	// Step is the time of one token of a single request; each further request adds the fraction Slope.
	Step  time.Duration
	Slope float64
}

// Declared has values of [api.Function].
type Declared struct {
	// [Forever]: until others need its memory
	SleepAfter time.Duration
	// 0: until its memory is needed
	UnloadAfter time.Duration
	NoPrewake   bool
	Rehearse    string
}

// Sizes are the weights of generated models, in turn: 8, 8, 14 and 32 billion parameters of two bytes.
var Sizes = []api.Bytes{15 * api.GiB, 15 * api.GiB, 28 * api.GiB, 62 * api.GiB}

// NewModel returns a model on a GPU with capacity bytes. Its numbers follow published ones for vLLM on GPUs of 80 GB:
//
//   - It takes gpu_memory_utilization of a GPU, 0.9, whatever its size. Weights that don't fit are spread over more
//     GPUs.
//   - Load: 30 s, and 1 GiB/s for the weights (llm-d-benchmark: 98 to 130 s for a pod of Qwen3-32B).
//   - Wake from level 1: 0.2 s and 25 GiB/s over PCIe. Level 2: in addition the weights at 3 GiB/s (vLLM's post on
//     sleep mode, 2025-10-26).
//   - Sleep: 0.3 s and 10 GiB/s (production-stack's sleep-wakeup-mode: 5.75 s for 39 GiB, 1.2 GiB stay).
//   - A step reads all weights at 2 TB/s; each further request in the batch adds 2 %.
//   - Prefill: 2 FLOP a weight and token at 300 TFLOP/s, of two bytes each.
func NewModel(name api.ModelName, weights, capacity api.Bytes) Model {
	size := gib(weights)
	gpus := max(1, int(math.Ceil(float64(weights)*1.15/(0.9*float64(capacity)))))
	share := size / float64(gpus)
	m := Model{
		Name: name, Load: seconds(30 + size), Sleep: seconds(0.3 + share/10), Stop: 2 * time.Second,
		GPUs: gpus, Device: api.Bytes(0.9 * float64(capacity)),
		Host:        4*api.GiB + weights,
		Residue:     [3]api.Bytes{0, 1200 * api.MiB, 1200 * api.MiB},
		HostResidue: [3]api.Bytes{0, 4*api.GiB + weights, 4 * api.GiB},
		Concurrency: 32,
		Prefill:     300e12 * float64(gpus) / float64(weights),
		Step:        seconds(float64(weights) / float64(gpus) / 2e12), Slope: 0.02,
	}
	m.Wake[api.Level1] = seconds(0.2 + share/25)
	m.Wake[api.Level2] = m.Wake[api.Level1] + seconds(size/3)
	return m
}

// PinnedSleep returns m with published times of a vLLM that pins host memory for its weights at a process's first
// sleep. They are 6.2 s and then 0.34 s for 8B, 21.9 s and 1.16 s for 30B (vllm-project/vllm#58066).
func (m Model) PinnedSleep() Model {
	share := gib(m.weights()) / float64(m.GPUs)
	m.FirstSleep, m.Sleep = seconds(0.6+0.374*share), seconds(0.05+0.0195*share)
	return m
}

// Shared returns m with the GPU memory that it needs: the weights, a seventh of them, and 3 GiB for the runtime and its
// KV cache. Busy instances on one GPU share its time evenly. A model of more than one GPU is unchanged.
func (m Model) Shared() Model {
	if m.GPUs == 1 {
		m.Device = min(m.Device, m.weights()+m.weights()/7+3*api.GiB)
	}
	return m
}

// SlowSleep returns m with sleeps of 10 s and 0.5 s a GiB: weights are copied to host memory that is not pinned, and
// adapters are unloaded first (vllm-project/vllm#48337).
func (m Model) SlowSleep() Model {
	m.Sleep = seconds(10 + 0.5*gib(m.weights()))
	return m
}

// Config describes the world. Zero fields take the default.
type Config struct {
	// Models of the trace that are missing are made by [NewModel].
	Models []Model
	// Default 4 and 1.
	Devices int `flag:"devices" least:"1" help:"number of GPUs"`
	Nodes   int `flag:"nodes" least:"1" help:"number of machines that they are in"`
	// of each GPU; default 80 GiB
	DeviceMemory api.Bytes
	// HostMemory is each node's memory for models. Default 1 TiB.
	HostMemory api.Bytes
	// for every policy; default 4
	MaxScale int `flag:"max-scale" least:"1" help:"most instances of a model"`
	// Default 5 min.
	Hold time.Duration `flag:"hold" help:"how long a request may wait before it is refused"`
	// Pod is the time from the decision to the process of a new pod. Default 950 ms, from docs/bench/cluster.json.
	Pod time.Duration
	// Hop is the delay of a message between two parts of Rouse. Default 2 ms.
	Hop  time.Duration
	Seed uint64
	// See [Model.PinnedSleep], [Model.SlowSleep] and [Model.Shared].
	Pinned    bool `flag:"pinned-sleep" help:"the first sleep of a process is slow and others are quick, as published for vLLM with pinned host memory"`
	SlowSleep bool `flag:"slow-sleep" help:"every second model takes 10 s and 0.5 s a GiB for each sleep"`
	Shared    bool `flag:"share-gpus" help:"models take what they need of a GPU, so that several are awake on one (default: nine tenths of it)"`
	// Changes are in the order of their times; see [Churn].
	Changes []Change
	// Record keeps what [SVG] draws.
	Record bool
}

// WithDefaults sets every zero field and adds the models of trace.
func (c Config) WithDefaults(trace Trace) Config {
	c.Devices, c.Nodes, c.MaxScale = cmp.Or(c.Devices, 4), cmp.Or(c.Nodes, 1), cmp.Or(c.MaxScale, 4)
	c.DeviceMemory, c.HostMemory = cmp.Or(c.DeviceMemory, 80*api.GiB), cmp.Or(c.HostMemory, api.TiB)
	c.Hold, c.Pod, c.Hop = cmp.Or(c.Hold, 5*time.Minute), cmp.Or(c.Pod, 950*time.Millisecond), cmp.Or(c.Hop, 2*time.Millisecond)
	known := make(map[api.ModelName]bool)
	models := append([]Model(nil), c.Models...)
	for _, m := range models {
		known[m.Name] = true
	}
	for _, name := range trace.Models() {
		if !known[name] {
			models = append(models, c.NewModel(len(models), name, Sizes[len(models)%len(Sizes)]))
		}
	}
	c.Models = models
	return c
}

// NewModel returns the kth model of the world.
func (c Config) NewModel(k int, name api.ModelName, weights api.Bytes) Model {
	m := NewModel(name, weights, c.DeviceMemory)
	if c.Pinned {
		m = m.PinnedSleep()
	}
	if c.SlowSleep && k%2 == 0 {
		m = m.SlowSleep()
	}
	if c.Shared {
		m = m.Shared()
	}
	if len(c.Changes) > 0 {
		m.Fetch = seconds(gib(weights) / fetchRate)
	}
	return m
}

// Validate reports what is wrong with a configuration whose defaults are set.
func (c Config) Validate() error {
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	wrong(c.Devices < 1 || c.Devices > 10000, "devices: want 1 to 10000 (have %d)", c.Devices)
	wrong(c.Nodes < 1 || c.Nodes > c.Devices, "nodes: want 1 to the number of devices, %d (have %d)", c.Devices, c.Nodes)
	wrong(c.DeviceMemory < 0 || c.HostMemory < 0, "memory: want at least 0 (have %s of each device, %s of each host)", c.DeviceMemory, c.HostMemory)
	wrong(c.MaxScale < 1, "scale: want at least 1 (have %d)", c.MaxScale)
	wrong(c.Hold < 0 || c.Pod < 0 || c.Hop < 0, "times: want at least 0 (have hold %s, pod %s, hop %s)", c.Hold, c.Pod, c.Hop)
	wrong(len(errs) == 0 && !possible(c.Changes, c.Nodes), "changes: want times in order, nodes that are there to leave, and others to come, and one always there")
	for _, m := range c.Models {
		if len(errs) > 0 {
			break
		}
		if perNode := c.Devices / c.Nodes; m.GPUs < 1 || m.GPUs > perNode {
			wrong(true, "model %s needs %d GPUs of one node, and a node has %d: more devices, fewer nodes, or more memory of each device", m.Name, m.GPUs, perNode)
			break
		}
		wrong(m.Concurrency < 1 || m.Prefill <= 0 || m.Step <= 0 || m.Slope < 0 || m.Load < 0, "model %s: want concurrency, prefill and step above 0, slope and load of at least 0", m.Name)
		wrong(m.Device > c.DeviceMemory, "model %s needs %s of each GPU, and a GPU has %s", m.Name, m.Device, c.DeviceMemory)
		wrong(m.Host > c.HostMemory, "model %s needs %s of host memory, and a node has %s", m.Name, m.Host, c.HostMemory)
	}
	return errors.Join(errs...)
}
