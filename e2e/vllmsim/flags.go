package vllmsim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Command is a command line, read.
type Command struct {
	Config Config
	// Host, Port and Socket say where to listen; a Socket, if set, alone counts.
	Host   string
	Port   int
	Socket string
	// EngineCore is whether a child process holds the device's memory, as vLLM's
	// engine does: "", "child" (ends with its parent) or "orphan" (does not).
	EngineCore string
	// Patience is how long a SIGTERM waits for what runs.
	Patience time.Duration
	// Quiet writes no line for each request.
	Quiet bool
}

// Parse reads a command line whose first word is the program's name, and the
// environment. The program's name chooses the surface, unless --surface
// does: vllm, sglang, llama-server, serve, or python -m MODULE. Flags of the simulator
// alone may stand in VLLMSIM_FLAGS too, for a command line that another program makes. A
// flag that is not known is passed over with a warning.
func Parse(args []string, getenv func(string) string, warnings io.Writer) (Command, error) {
	surface, rest := called(args)
	all := append(strings.Fields(getenv("VLLMSIM_FLAGS")), rest...)
	for i, arg := range all {
		if name, value, found := strings.Cut(arg, "="); name == "--surface" && found {
			surface = Surface(value)
		} else if arg == "--surface" && i+1 < len(all) {
			surface = Surface(all[i+1])
		}
	}
	cmd := Command{Config: Config{Surface: surface, TimeScale: 1}, Port: 8000, Patience: 5 * time.Second}
	c := &cmd.Config
	c.Devices.Dir = getenv("VLLMSIM_DEVICES")
	if visible := cmp.Or(getenv("CUDA_VISIBLE_DEVICES"), getenv("NVIDIA_VISIBLE_DEVICES")); visible != "" && visible != "all" {
		c.Devices.Visible = &visible // the second is what a container is given by its runtime
	}
	if faults := getenv("VLLMSIM_FAULTS"); faults != "" {
		c.Faults = []string{faults}
	}
	f := flags{known: map[string]flagOf{}, bare: func(s string) { c.Model = s }}
	cmd.ours(f)
	switch surface {
	case SGLang:
		cmd.Host, cmd.Port = "127.0.0.1", 30000
		c.DevMode, c.RuntimeLoRA, c.Asleep = true, true, AsleepCrash
		c.GraphsSaved = truth(getenv("SGLANG_MEMORY_SAVER_CUDA_GRAPH"))
		cmd.sglangFlags(f)
	case LlamaCpp:
		cmd.Host, cmd.Port = "127.0.0.1", 8080
		c.MaxSeqs, c.DevMode, c.Slots = 4, true, true
		cmd.llamaFlags(f)
	case RayServe:
		cmd.Host = "127.0.0.1"
		c.DevMode = true
		cmd.rayFlags(f)
	case VLLM:
		c.DevMode, c.RuntimeLoRA = truth(getenv("VLLM_SERVER_DEV_MODE")), truth(getenv("VLLM_ALLOW_RUNTIME_LORA_UPDATING"))
		if key := getenv("VLLM_API_KEY"); key != "" {
			c.APIKeys = []string{key}
		}
		cmd.vllmFlags(f)
	}
	if err := f.read(all, warnings); err != nil {
		return cmd, err
	}
	if surface == RayServe {
		if err := cmd.application(); err != nil {
			return cmd, err
		}
	}
	if cmd.Port < 0 || cmd.Port > 65535 {
		return cmd, fmt.Errorf("--port %d: want 0 to 65535", cmd.Port)
	}
	switch cmd.EngineCore {
	case "", "child", "orphan":
	default:
		return cmd, fmt.Errorf("--engine-core %q: want child or orphan", cmd.EngineCore)
	}
	return cmd, nil
}

// called tells the surface by the name of the program, and takes the words away
// that only choose a program: serve, run, -m MODULE, and the name.
func called(args []string) (Surface, []string) {
	surface := VLLM
	if len(args) == 0 {
		return surface, nil
	}
	name, rest := filepath.Base(args[0]), args[1:]
	switch {
	case name == "llama-server":
		surface = LlamaCpp
	case name == "sglang":
		surface = SGLang
	case name == "serve" || name == "ray":
		surface = RayServe
	case strings.HasPrefix(name, "python") && len(rest) > 1 && rest[0] == "-m":
		if strings.HasPrefix(rest[1], "sglang") {
			surface = SGLang
		}
		rest = rest[2:]
	}
	for len(rest) > 0 && (rest[0] == "serve" || rest[0] == "run") {
		rest = rest[1:]
	}
	return surface, rest
}

func truth(s string) bool {
	yes, err := strconv.ParseBool(strings.TrimSpace(s))
	return err == nil && yes
}

// ours are the simulator's own flags.
func (cmd *Command) ours(f flags) {
	c := &cmd.Config
	f.add(1, func(string) error { return nil }, "--surface") // read before
	f.text(&c.Devices.Dir, "--device-dir")
	f.bytes(&c.Devices.Memory, "--device-memory")
	f.bytes(&c.Weights, "--weights")
	f.bytes(&c.KVTokenBytes, "--kv-bytes-per-token")
	f.bytes(&c.Residue, "--residue")
	f.bytes(&c.Graphs, "--graphs")
	f.rate(&c.HostBandwidth, "--host-bandwidth")
	f.rate(&c.DiskBandwidth, "--disk-bandwidth")
	f.float(&c.FirstWake, "--first-wake")
	f.float(&c.FirstSleep, "--first-sleep")
	f.float(&c.TimeScale, "--time-scale")
	f.duration(&c.LoadTime, "--load-time")
	f.duration(&c.SleepTime, "--sleep-time")
	f.duration(&c.WakeTime, "--wake-time")
	f.duration(&c.ReloadTime, "--reload-time")
	f.duration(&c.Timing.Prefill, "--prefill-time")
	f.duration(&c.Timing.Step, "--step-time")
	f.duration(&c.Timing.Sequence, "--sequence-time")
	f.add(1, func(s string) error { c.Asleep = Asleep(s); return nil }, "--asleep")
	f.add(1, func(s string) error { c.Faults = append(c.Faults, s); return nil }, "--fault")
	f.yes(&c.OldMetrics, "--old-metrics")
	f.yes(&c.Offload.Outlives, "--offload-outlives-sleep")
	f.text(&cmd.EngineCore, "--engine-core")
	f.yes(&c.DevMode, "--dev-mode")
	f.number(&c.MaxQueue, "--max-queued-requests")
}

// seed is the flag with that name of a server's own.
func (cmd *Command) seed(f flags, names ...string) {
	f.add(1, func(s string) (err error) { cmd.Config.Seed, err = strconv.ParseInt(s, 10, 64); return err }, names...)
}

func (cmd *Command) vllmFlags(f flags) {
	c := &cmd.Config
	f.text(&cmd.Host, "--host")
	f.number(&cmd.Port, "--port")
	f.text(&cmd.Socket, "--uds")
	f.add(-1, func(string) error { return nil }, "--allowed-media-domains") // it fetches nothing
	f.texts(&c.APIKeys, "--api-key")
	cmd.seed(f, "--seed")
	f.text(&c.Model, "--model")
	f.texts(&c.Names, "--served-model-name")
	f.yesOrNo(&c.Sleep, "--enable-sleep-mode")
	f.yesOrNo(&c.LoRA, "--enable-lora")
	f.number(&c.MaxLoRAs, "--max-loras")
	f.number(&c.MaxLoRARank, "--max-lora-rank")
	f.number(&c.MaxModelLen, "--max-model-len")
	f.number(&c.MaxSeqs, "--max-num-seqs")
	f.number(&c.MaxBatchedTokens, "--max-num-batched-tokens")
	f.number(&c.BlockTokens, "--block-size")
	f.number(&c.Blocks, "--num-gpu-blocks-override")
	f.float(&c.Utilization, "--gpu-memory-utilization")
	f.number(&c.TensorParallel, "--tensor-parallel-size", "-tp")
	f.yes(&c.NoPrefixCache, "--no-enable-prefix-caching")
	cmd.offloadFlags(f)
	f.add(1, func(s string) error { return json.Unmarshal([]byte(s), &c.KVEvents) }, "--kv-events-config")
	f.yesOrNo(&cmd.Quiet, "--disable-uvicorn-access-log")
	ignored := false
	f.yesOrNo(&ignored, "--enable-log-requests", "--trust-remote-code", "--enforce-eager", "--enable-server-load-tracking")
	f.yes(&ignored, "--disable-log-stats", "--enable-prefix-caching", "--headless")
	f.add(-1, func(s string) error {
		a, err := loraModule(s)
		c.Adapters = append(c.Adapters, a)
		return err
	}, "--lora-modules")
}

// loraModule reads name=path or {"name":…,"path":…}.
func loraModule(s string) (Adapter, error) {
	if strings.HasPrefix(s, "{") {
		var a Adapter
		if err := json.Unmarshal([]byte(s), &a); err != nil || a.Name == "" || a.Path == "" {
			return Adapter{}, fmt.Errorf(`want {"name":…,"path":…}`)
		}
		return a, nil
	}
	name, path, found := strings.Cut(s, "=")
	if !found || name == "" || path == "" {
		return Adapter{}, fmt.Errorf("want name=path")
	}
	return Adapter{Name: name, Path: path}, nil
}

// rayFlags are those of "serve run", which say nothing of where it listens.
func (cmd *Command) rayFlags(f flags) {
	ignored := ""
	f.text(&ignored, "--app-dir", "-d", "--address", "-a", "--working-dir", "--runtime-env", "--runtime-env-json")
}

// application reads the configuration file of an application, if that is what it was given.
func (cmd *Command) application() error {
	raw, err := os.ReadFile(cmd.Config.Model)
	if err != nil {
		return nil //nolint:nilerr // as Serve: what is no file is an import path
	}
	var file struct {
		HTTPOptions struct {
			Host string `yaml:"host"`
			Port int    `yaml:"port"`
		} `yaml:"http_options"`
		Applications []struct {
			ImportPath string `yaml:"import_path"`
		} `yaml:"applications"`
	}
	if err := yaml.Unmarshal(raw, &file); err != nil {
		return fmt.Errorf("%s: %w", cmd.Config.Model, err)
	}
	cmd.Host, cmd.Port = cmp.Or(file.HTTPOptions.Host, cmd.Host), cmp.Or(file.HTTPOptions.Port, cmd.Port)
	if len(file.Applications) > 0 {
		cmd.Config.Model = file.Applications[0].ImportPath
	}
	return nil
}

func (cmd *Command) sglangFlags(f flags) {
	c := &cmd.Config
	f.text(&cmd.Host, "--host")
	f.number(&cmd.Port, "--port")
	f.texts(&c.APIKeys, "--api-key")
	cmd.seed(f, "--random-seed")
	f.text(&c.Model, "--model-path", "--model")
	f.add(1, func(s string) error {
		raw, err := os.ReadFile(s)
		if key, found := strings.CutPrefix(string(raw), "api-key:"); found {
			c.APIKeys = []string{strings.TrimSpace(key)}
		}
		return err
	}, "--config")
	f.texts(&c.Names, "--served-model-name")
	f.yes(&c.Sleep, "--enable-memory-saver")
	f.yes(&c.WeightsBackup, "--enable-weights-cpu-backup")
	f.yes(&c.Metrics, "--enable-metrics")
	f.yes(&c.LoRA, "--enable-lora")
	f.yes(&c.NoPrefixCache, "--disable-radix-cache")
	f.add(1, func(s string) error { return json.Unmarshal([]byte(s), &c.KVEvents) }, "--kv-events-config")
	f.number(&c.MaxLoRAs, "--max-loras-per-batch")
	f.number(&c.MaxLoRARank, "--max-lora-rank")
	f.number(&c.MaxModelLen, "--context-length")
	f.number(&c.MaxSeqs, "--max-running-requests")
	f.number(&c.MaxBatchedTokens, "--chunked-prefill-size")
	f.number(&c.BlockTokens, "--page-size")
	f.float(&c.Utilization, "--mem-fraction-static")
	f.number(&c.TensorParallel, "--tp-size", "--tensor-parallel-size")
	f.add(-1, func(s string) error {
		a, err := loraModule(s)
		if err != nil {
			a, err = Adapter{Name: filepath.Base(s), Path: s}, nil
		}
		c.LoRA = true
		c.Adapters = append(c.Adapters, a)
		return err
	}, "--lora-paths")
}

func (cmd *Command) llamaFlags(f flags) {
	c := &cmd.Config
	f.text(&cmd.Host, "--host")
	f.number(&cmd.Port, "--port")
	f.texts(&c.APIKeys, "--api-key")
	cmd.seed(f, "-s", "--seed")
	f.text(&c.Model, "-m", "--model", "-hf", "--hf-repo")
	f.add(1, func(s string) error { c.Names = strings.Split(s, ","); return nil }, "-a", "--alias")
	f.yes(&c.Metrics, "--metrics")
	f.yes(&c.Slots, "--slots")
	f.add(0, func(string) error { c.Slots = false; return nil }, "--no-slots")
	f.number(&c.MaxModelLen, "-c", "--ctx-size")
	f.number(&c.MaxSeqs, "-np", "--parallel")
	f.number(&c.MaxBatchedTokens, "-b", "--batch-size")
	f.add(1, func(s string) error {
		c.LoRA = true
		c.Adapters = append(c.Adapters, Adapter{Name: filepath.Base(s), Path: s})
		return nil
	}, "--lora")
	ignored := false
	f.yes(&ignored, "--embedding", "--embeddings", "--reranking", "--jinja", "-fa", "--cont-batching", "-cb", "--offline", "--log-disable", "--no-webui")
}
