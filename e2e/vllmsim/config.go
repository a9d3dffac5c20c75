package vllmsim

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rouse-dev/rouse/e2e/vllmsim/device"
)

// Surface is the server whose HTTP is spoken.
type Surface string

// The surfaces.
const (
	VLLM     Surface = "vllm"
	SGLang   Surface = "sglang"
	LlamaCpp Surface = "llamacpp"
	RayServe Surface = "rayserve"
)

// Adapter is a LoRA adapter.
type Adapter struct {
	Name, Path string
	// dropped with the weights; makes garbage until loaded again
	lost bool
	// lost by a wake: the model itself answers until it is loaded again (vllm-project/vllm#53888)
	unapplied bool
}

// Config is a server. The zero value of a field means its default; Model alone must be set.
type Config struct {
	Surface Surface // default VLLM
	Model   string
	// Names are for clients. Default: Model.
	Names []string
	// Empty: no key is needed.
	APIKeys []string

	// MaxModelLen bounds prompt and output together, in tokens. Default 8192.
	MaxModelLen int
	// Default 256.
	MaxSeqs int

	// Weights is in bytes. Default: two for each parameter in the model's name ("8B"), else 1 GiB.
	Weights int64
	// Residue stays on the device while asleep, in bytes. Default 512 MiB.
	Residue int64
	// Default 0.9.
	Utilization float64
	// Without Device.Dir, the server has a device of its own, of Device.Memory bytes (default 80 GiB).
	Device device.Config

	// DevMode opens the administrative endpoints. Without Sleep, memory is not released.
	DevMode, Sleep bool
	// SGLang: without it, weights are lost while they are released.
	WeightsBackup bool
	// RuntimeLoRA lets adapters be loaded over HTTP.
	LoRA, RuntimeLoRA bool
	MaxLoRAs          int // default 1
	Adapters          []Adapter

	// Metrics opens /metrics in SGLang and llama-server.
	Metrics  bool
	KVEvents KVEvents
	// the names before vLLM 0.10, and no ids of tokens
	OldMetrics bool

	// TimeScale multiplies every time. 0: as fast as possible.
	TimeScale float64
	Timing    Timing // default 20 µs a prompt token, 8 ms a step, 50 µs a sequence
	// FirstSleep multiplies the first sleep at level 1, which pins host memory. Default 1.
	FirstSleep float64
	// These replace times computed from bandwidths (ReloadTime: after level 2). Negative: none at all.
	LoadTime, SleepTime, WakeTime, ReloadTime time.Duration

	Faults []string
	// Log receives lines like vLLM's. Nil: none.
	Log io.Writer
	// Pause names a file with a number: while it exists, streams wait behind that many tokens.
	Pause string
	// Kill ends the process. Nil: the server only plays dead.
	Kill func()
}

const (
	blockTokens   = 16
	kvTokenBytes  = 128 << 10
	hostBandwidth = 25e9 // bytes a second, of weights to and from host memory
	diskBandwidth = 3e9  // of weights from disk
)

var parameters = regexp.MustCompile(`(?i)(?:^|[-_/ ])(\d+(?:\.\d+)?)b(?:$|[-_./ ])`)

func (c Config) withDefaults() Config {
	c.Surface = cmp.Or(c.Surface, VLLM)
	if len(c.Names) == 0 {
		c.Names = []string{c.Model}
	}
	c.MaxModelLen = cmp.Or(c.MaxModelLen, 8192)
	c.MaxSeqs = cmp.Or(c.MaxSeqs, 256)
	c.Residue = cmp.Or(c.Residue, 512<<20)
	c.Utilization = cmp.Or(c.Utilization, 0.9)
	c.MaxLoRAs = cmp.Or(c.MaxLoRAs, 1)
	c.FirstSleep = cmp.Or(c.FirstSleep, 1)
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
	c.Device.Name = cmp.Or(c.Device.Name, "VLLM::EngineCore")
	return c
}

func (c Config) validate() error {
	if _, known := servers[c.Surface]; !known {
		return fmt.Errorf("--surface %q: want one of vllm, sglang, llamacpp, rayserve", c.Surface)
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
	for flag, n := range map[string]int{"--max-model-len": c.MaxModelLen, "--max-num-seqs": c.MaxSeqs, "--max-loras": c.MaxLoRAs} {
		if n < 1 || n > 1<<22 {
			return fmt.Errorf("%s: want a number above 0 and at most %d (have %d)", flag, 1<<22, n)
		}
	}
	if !(c.Utilization > 0 && c.Utilization <= 1) {
		return fmt.Errorf("--gpu-memory-utilization: want above 0 and at most 1 (have %g)", c.Utilization)
	}
	if c.Weights < 1 || c.Residue < 0 || !(c.TimeScale >= 0 && c.TimeScale < 1e9) || !(c.FirstSleep > 0) || min(c.Timing.Prefill, c.Timing.Step, c.Timing.Sequence) < 0 {
		return fmt.Errorf("weights, residue, time scale and times of tokens can't be negative")
	}
	if len(c.Adapters) > 0 && !c.LoRA {
		return fmt.Errorf("--lora-modules: adapters need --enable-lora")
	}
	return nil
}
