package vllmsim

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rouse-dev/rouse/e2e/vllmsim/batch"
	"github.com/rouse-dev/rouse/e2e/vllmsim/device"
)

// Surface is whose HTTP is spoken.
type Surface string

// The surfaces.
const (
	VLLM     Surface = "vllm"
	SGLang   Surface = "sglang"
	LlamaCpp Surface = "llamacpp"
	RayServe Surface = "rayserve"
)

// Asleep is what happens to a request that arrives while the engine sleeps.
type Asleep string

// What becomes of it.
const (
	// AsleepQueue holds it until the engine is awake, as vLLM does since it pauses its scheduler to sleep.
	AsleepQueue Asleep = "queue"
	// AsleepError answers 503.
	AsleepError Asleep = "error"
	// AsleepCrash ends the engine with an illegal memory access, as vLLM before
	// that and SGLang (vllm-project/vllm#15483).
	AsleepCrash Asleep = "crash"
)

// Adapter is a LoRA adapter.
type Adapter struct {
	Name, Path string
	// lost: it was dropped with the weights, and makes garbage until it is loaded again.
	lost bool
	// unapplied: a wake has lost it, and the model itself answers for it until it is loaded again (vllm-project/vllm#53888).
	unapplied bool
}

// Config is a server. The zero value of a field means its default; Model alone must be set.
type Config struct {
	Surface Surface // default VLLM
	Model   string
	// Names are what clients call it. Default: Model.
	Names []string
	// APIKeys are the accepted keys. Empty: no key is needed.
	APIKeys []string
	// Seed changes every text.
	Seed int64

	// MaxModelLen bounds prompt and output together, in tokens. Default 8192.
	MaxModelLen int
	// MaxSeqs run at once. Default 256. MaxBatchedTokens are computed in one step. Default 8192.
	MaxSeqs, MaxBatchedTokens int
	// MaxQueue bounds what waits, for Ray Serve. Default 100; negative: no bound.
	MaxQueue int
	// BlockTokens is the size of a KV block. Default 16. Blocks overrides their number,
	// which else follows from memory.
	BlockTokens, Blocks int
	NoPrefixCache       bool
	// Offload keeps the cache in the host's memory, too.
	Offload Offload

	// Weights is the size of the model in bytes, on all devices together. Default: two
	// bytes for each parameter that the model's name tells ("8B"), else 1 GiB.
	Weights int64
	// KVTokenBytes is what a token takes in the KV cache. Default 128 KiB.
	KVTokenBytes int64
	// Residue stays on each device while asleep: the context and what no pool holds. Default 512 MiB.
	Residue int64
	// Graphs is what CUDA graphs take of each device, which SGLang gives back asleep where GraphsSaved is set.
	Graphs      int64
	GraphsSaved bool
	// Utilization is the share of each device that is taken. Default 0.9.
	Utilization float64
	// TensorParallel is the number of devices. Default 1.
	TensorParallel int
	// Devices says where the devices are. Without Dir, the server has devices of its
	// own, of Devices.Memory bytes (default 80 GiB).
	Devices device.Config

	// DevMode opens the administrative endpoints. Sleep lets memory be released; without it a
	// vLLM that is told to sleep keeps its memory.
	DevMode, Sleep bool
	// WeightsBackup keeps weights in host memory while they are released (SGLang); else they are lost.
	WeightsBackup bool
	// Asleep is what happens to requests while asleep. Default AsleepQueue.
	Asleep Asleep
	// LoRA allows adapters, RuntimeLoRA lets them be loaded over HTTP.
	LoRA, RuntimeLoRA     bool
	MaxLoRAs, MaxLoRARank int // default 1 and 16
	Adapters              []Adapter

	// Metrics opens /metrics on servers that need a flag for it (SGLang, llama-server).
	Metrics bool
	// KVEvents is where events of the prefix cache are published; empty: nowhere.
	KVEvents KVEvents
	// OldMetrics uses the names that vLLM had before version 0.10, and its events without names of fields.
	OldMetrics bool
	// Slots opens /slots of llama-server.
	Slots bool

	// TimeScale multiplies every time. 0: as fast as possible; 1: real time.
	TimeScale float64
	Timing    batch.Timing // default 20 µs a prompt token, 8 ms a step, 50 µs a sequence
	// HostBandwidth and DiskBandwidth are bytes a second: weights to and from host
	// memory (default 25 GB/s), and from disk (default 3 GB/s).
	HostBandwidth, DiskBandwidth float64
	// FirstWake multiplies the time of the first wake. Default 1.
	FirstWake float64
	// FirstSleep multiplies the time of the first sleep at level 1, which pins host memory that later ones find pinned. Default 1.
	FirstSleep float64
	// LoadTime, SleepTime, WakeTime and ReloadTime (of the weights, after level 2) replace
	// what bytes and bandwidth say. Negative: none at all.
	LoadTime, SleepTime, WakeTime, ReloadTime time.Duration

	// Faults are there from the start; see [Faults].
	Faults []string
	// Log receives lines like vLLM's. Nil: none.
	Log io.Writer
	// Exit ends the process, for crashes. Nil: the server only plays dead.
	Exit func(code int)
	// EngineCore starts the process that holds the device's memory; hold, if not nil, is
	// the file that it has to keep open. Nil: this process holds it.
	EngineCore func(hold *os.File) (Child, error)
}

// Child is a process that holds device memory.
type Child struct {
	PID int
	// Ended is closed when it has ended, and the engine with it.
	Ended <-chan struct{}
}

// parameters finds "8B" or "0.5b" in a model's name.
var parameters = regexp.MustCompile(`(?i)(?:^|[-_/ ])(\d+(?:\.\d+)?)b(?:$|[-_./ ])`)

// withDefaults fills in what is not set.
func (c Config) withDefaults() Config {
	c.Surface = cmp.Or(c.Surface, VLLM)
	if len(c.Names) == 0 {
		c.Names = []string{c.Model}
	}
	c.MaxModelLen = cmp.Or(c.MaxModelLen, 8192)
	c.MaxSeqs = cmp.Or(c.MaxSeqs, 256)
	c.MaxBatchedTokens = cmp.Or(c.MaxBatchedTokens, 8192)
	c.MaxQueue = cmp.Or(c.MaxQueue, 100)
	c.BlockTokens = cmp.Or(c.BlockTokens, 16)
	c.KVTokenBytes = cmp.Or(c.KVTokenBytes, 128<<10)
	c.Residue = cmp.Or(c.Residue, 512<<20)
	c.Utilization = cmp.Or(c.Utilization, 0.9)
	c.TensorParallel = cmp.Or(c.TensorParallel, 1)
	c.Asleep = cmp.Or(c.Asleep, AsleepQueue)
	c.MaxLoRAs = cmp.Or(c.MaxLoRAs, 1)
	c.MaxLoRARank = cmp.Or(c.MaxLoRARank, 16)
	c.FirstWake, c.FirstSleep = cmp.Or(c.FirstWake, 1), cmp.Or(c.FirstSleep, 1)
	c.HostBandwidth = cmp.Or(c.HostBandwidth, 25e9)
	c.DiskBandwidth = cmp.Or(c.DiskBandwidth, 3e9)
	c.Timing.Prefill = cmp.Or(c.Timing.Prefill, 20*time.Microsecond)
	c.Timing.Step = cmp.Or(c.Timing.Step, 8*time.Millisecond)
	c.Timing.Sequence = cmp.Or(c.Timing.Sequence, 50*time.Microsecond)
	if c.Weights == 0 {
		c.Weights = 1 << 30
		if m := parameters.FindStringSubmatch(c.Model); m != nil {
			if billions, err := strconv.ParseFloat(m[1], 64); err == nil && billions > 0 && billions < 1e5 {
				c.Weights = int64(2e9 * billions)
			}
		}
	}
	if c.Log == nil {
		c.Log = io.Discard
	}
	c.Devices.Count = c.TensorParallel
	c.Devices.Name = cmp.Or(c.Devices.Name, "VLLM::EngineCore")
	return c
}

// validate checks what withDefaults has filled in.
func (c Config) validate() error {
	switch c.Surface {
	case VLLM, SGLang, LlamaCpp, RayServe:
	default:
		return fmt.Errorf("--surface %q: want one of vllm, sglang, llamacpp, rayserve", c.Surface)
	}
	switch c.Asleep {
	case AsleepQueue, AsleepError, AsleepCrash:
	default:
		return fmt.Errorf("--asleep %q: want one of queue, error, crash", c.Asleep)
	}
	if strings.TrimSpace(c.Model) == "" {
		return fmt.Errorf("no model: name one, as in `vllmsim serve sim/tiny-1b`")
	}
	names := append([]string{c.Model}, c.Names...)
	for _, a := range c.Adapters {
		names = append(names, a.Name)
	}
	for _, name := range names {
		if name == "" || !utf8.ValidString(name) {
			return fmt.Errorf("model %q: want a name in valid UTF-8", name)
		}
	}
	for _, n := range []struct {
		flag  string
		value float64
	}{
		{"--max-model-len", float64(c.MaxModelLen)}, {"--max-num-seqs", float64(c.MaxSeqs)},
		{"--max-num-batched-tokens", float64(c.MaxBatchedTokens)}, {"--block-size", float64(c.BlockTokens)},
		{"--weights", float64(c.Weights)}, {"--kv-bytes-per-token", float64(c.KVTokenBytes)},
		{"--tensor-parallel-size", float64(c.TensorParallel)}, {"--max-loras", float64(c.MaxLoRAs)},
		{"--max-lora-rank", float64(c.MaxLoRARank)}, {"--first-wake", c.FirstWake}, {"--first-sleep", c.FirstSleep},
		{"--host-bandwidth", c.HostBandwidth}, {"--disk-bandwidth", c.DiskBandwidth},
	} {
		if !(n.value > 0 && n.value < 1e18) {
			return fmt.Errorf("%s: want a number above 0 (have %g)", n.flag, n.value)
		}
	}
	if c.MaxModelLen > 1<<22 || c.MaxBatchedTokens > 1<<22 || c.Blocks > 1<<24 || c.TensorParallel > 1024 {
		return fmt.Errorf("--max-model-len %d, --max-num-batched-tokens %d, --num-gpu-blocks-override %d, --tensor-parallel-size %d: one of them is absurd",
			c.MaxModelLen, c.MaxBatchedTokens, c.Blocks, c.TensorParallel)
	}
	if !(c.Utilization > 0 && c.Utilization <= 1) {
		return fmt.Errorf("--gpu-memory-utilization: want above 0 and at most 1 (have %g)", c.Utilization)
	}
	if c.Blocks < 0 || c.Residue < 0 || !(c.TimeScale >= 0 && c.TimeScale < 1e9) || c.Timing.Prefill < 0 || c.Timing.Step < 0 || c.Timing.Sequence < 0 {
		return fmt.Errorf("blocks, residue, time scale and token times can't be negative")
	}
	if len(c.Adapters) > 0 && !c.LoRA {
		return fmt.Errorf("--lora-modules: adapters need --enable-lora")
	}
	return nil
}
