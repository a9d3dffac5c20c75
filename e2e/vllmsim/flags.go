package vllmsim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
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

// flag is one that is known: how many values it takes (-1: all up to the next
// flag) and what it does with each.
type flagOf struct {
	values int
	set    func(string) error
}

// flags read a command line. They allow _ for -, and = before a value, as vLLM's do.
type flags struct {
	known map[string]flagOf
	// bare takes what is no flag: the model.
	bare func(string)
}

// Parse reads a command line whose first word is the program's name, and the
// environment. What the program is called tells whom it stands for, unless --surface
// does: vllm, sglang, llama-server, serve, or python -m MODULE. Flags of the simulator
// alone may stand in VLLMSIM_FLAGS too, for a command line that somebody else makes. A
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
	cmd := Command{Config: Config{Surface: surface, TimeScale: 1, DevMode: truth(getenv("VLLM_SERVER_DEV_MODE")), RuntimeLoRA: truth(getenv("VLLM_ALLOW_RUNTIME_LORA_UPDATING"))},
		Port: 8000, Patience: 5 * time.Second}
	c := &cmd.Config
	c.Devices.Dir = getenv("VLLMSIM_DEVICES")
	if visible := cmp.Or(getenv("CUDA_VISIBLE_DEVICES"), getenv("NVIDIA_VISIBLE_DEVICES")); visible != "" && visible != "all" {
		c.Devices.Visible = &visible // the second is what a container is given by its runtime
	}
	if key := getenv("VLLM_API_KEY"); key != "" {
		c.APIKeys = []string{key}
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
		cmd.sglangFlags(f)
	case LlamaCpp:
		cmd.Host, cmd.Port = "127.0.0.1", 8080
		c.MaxSeqs, c.DevMode, c.Slots = 4, true, true
		cmd.llamaFlags(f)
	case RayServe:
		cmd.Host = cmp.Or(getenv("RAY_SERVE_DEFAULT_HTTP_HOST"), "127.0.0.1")
		if port, err := strconv.Atoi(getenv("RAY_SERVE_DEFAULT_HTTP_PORT")); err == nil {
			cmd.Port = port
		}
		c.DevMode = true
		cmd.vllmFlags(f)
	case VLLM:
		cmd.vllmFlags(f)
	}
	if err := f.read(all, warnings); err != nil {
		return cmd, err
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

// read sets every flag of args.
func (f flags) read(args []string, warnings io.Writer) error {
	for len(args) > 0 {
		name, value, equals := strings.Cut(args[0], "=")
		args = args[1:]
		if !strings.HasPrefix(name, "-") {
			f.bare(name + strings.Repeat("=", min(1, len(value))) + value)
			continue
		}
		name = strings.ReplaceAll(name, "_", "-")
		known, found := f.known[name]
		if yes, is := f.known["--"+strings.TrimPrefix(name, "--no-")]; !found && is && yes.values == 0 {
			if err := yes.set("false"); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			continue
		}
		if !found {
			if !equals && takesValue(name) && len(args) > 0 && !strings.HasPrefix(args[0], "-") {
				value, args = args[0], args[1:]
			}
			fmt.Fprintf(warnings, "vllmsim: %s %s is not simulated and passed over\n", name, value)
			continue
		}
		values := []string{value}
		if !equals {
			n := known.values
			if n < 0 {
				n = slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "-") })
				if n < 0 {
					n = len(args)
				}
			}
			if n > len(args) || n == 0 && known.values < 0 || n == 1 && strings.HasPrefix(args[0], "--") {
				return fmt.Errorf("%s: expected a value", name)
			}
			values, args = args[:n], args[n:]
			if known.values == 0 {
				values = []string{"true"}
			}
		}
		for _, v := range values {
			if err := known.set(v); err != nil {
				return fmt.Errorf("%s %s: %w", name, v, err)
			}
		}
	}
	return nil
}

// takesValue guesses whether a flag that is not known is followed by a value.
func takesValue(name string) bool {
	for _, p := range []string{"--enable-", "--disable-", "--no-", "--trust-", "--enforce-", "--skip-", "--use-", "--allow-", "--async-"} {
		if strings.HasPrefix(name, p) {
			return false
		}
	}
	return true
}

func (f flags) text(into *string, names ...string) {
	f.add(1, func(s string) error { *into = s; return nil }, names...)
}

func (f flags) yes(into *bool, names ...string) {
	f.add(0, func(s string) (err error) { *into, err = strconv.ParseBool(s); return err }, names...)
}

func (f flags) number(into *int, names ...string) {
	f.add(1, func(s string) (err error) { *into, err = strconv.Atoi(s); return err }, names...)
}

func (f flags) float(into *float64, names ...string) {
	f.add(1, func(s string) (err error) { *into, err = strconv.ParseFloat(s, 64); return err }, names...)
}

func (f flags) bytes(into *int64, names ...string) {
	f.add(1, func(s string) (err error) { *into, err = Bytes(s); return err }, names...)
}

// rate is bytes a second: "25GB", with or without "/s".
func (f flags) rate(into *float64, names ...string) {
	f.add(1, func(s string) error {
		n, err := Bytes(strings.TrimSuffix(s, "/s"))
		*into = float64(n)
		return err
	}, names...)
}

// duration takes 0 for none at all, since 0 in a [Config] means the default.
func (f flags) duration(into *time.Duration, names ...string) {
	f.add(1, func(s string) error {
		d, err := time.ParseDuration(s)
		if d == 0 {
			d = -1
		}
		*into = d
		return err
	}, names...)
}

func (f flags) texts(into *[]string, names ...string) {
	fresh := true // what the environment says is replaced
	f.add(-1, func(s string) error {
		if fresh {
			*into, fresh = nil, false
		}
		*into = append(*into, s)
		return nil
	}, names...)
}

func (f flags) add(values int, set func(string) error, names ...string) {
	for _, n := range names {
		f.known[n] = flagOf{values, set}
	}
}

// Bytes reads a size such as 16GiB, 16g, 500MB or 1024.
func Bytes(s string) (int64, error) {
	text := strings.ToLower(strings.TrimSpace(s))
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyz ")
	unit := strings.TrimSpace(text[len(digits):])
	scale, found := map[string]float64{"": 1, "b": 1, "k": 1 << 10, "kib": 1 << 10, "kb": 1e3, "m": 1 << 20, "mib": 1 << 20, "mb": 1e6,
		"g": 1 << 30, "gib": 1 << 30, "gb": 1e9, "t": 1 << 40, "tib": 1 << 40, "tb": 1e12}[unit]
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || !found || !(n >= 0) || n*scale > math.MaxInt64/4 {
		return 0, fmt.Errorf("%q is no size: want bytes such as 16GiB or 500MB", s)
	}
	return int64(n * scale), nil
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
	f.rate(&c.HostBandwidth, "--host-bandwidth")
	f.rate(&c.DiskBandwidth, "--disk-bandwidth")
	f.float(&c.FirstWake, "--first-wake")
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
	f.text(&cmd.EngineCore, "--engine-core")
	f.duration(&cmd.Patience, "--shutdown-timeout")
	f.yes(&c.DevMode, "--dev-mode")
	f.number(&c.MaxQueue, "--max-queued-requests")
	f.text(&cmd.Host, "--host")
	f.number(&cmd.Port, "--port")
	f.text(&cmd.Socket, "--uds")
	f.texts(&c.APIKeys, "--api-key")
	f.add(1, func(s string) (err error) { c.Seed, err = strconv.ParseInt(s, 10, 64); return err }, "--seed", "-s", "--random-seed")
}

func (cmd *Command) vllmFlags(f flags) {
	c := &cmd.Config
	f.text(&c.Model, "--model")
	f.texts(&c.Names, "--served-model-name")
	f.yes(&c.Sleep, "--enable-sleep-mode")
	f.yes(&c.LoRA, "--enable-lora")
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
	f.yes(&cmd.Quiet, "--disable-uvicorn-access-log")
	ignored := false
	f.yes(&ignored, "--disable-log-requests", "--disable-log-stats", "--enable-prefix-caching", "--trust-remote-code", "--enforce-eager", "--enable-server-load-tracking", "--headless")
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

func (cmd *Command) sglangFlags(f flags) {
	c := &cmd.Config
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
	f.number(&c.MaxLoRAs, "--max-loras-per-batch")
	f.number(&c.MaxLoRARank, "--max-lora-rank")
	f.number(&c.MaxModelLen, "--context-length")
	f.number(&c.MaxSeqs, "--max-running-requests")
	f.number(&c.MaxBatchedTokens, "--chunked-prefill-size")
	f.number(&c.BlockTokens, "--page-size")
	f.float(&c.Utilization, "--mem-fraction-static")
	f.number(&c.TensorParallel, "--tp-size", "--tp", "--tensor-parallel-size")
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
	f.text(&c.Model, "-m", "--model", "-hf", "--hf-repo")
	f.add(1, func(s string) error { c.Names = strings.Split(s, ","); return nil }, "-a", "--alias")
	f.yes(&c.Metrics, "--metrics")
	f.yes(&c.Slots, "--slots")
	f.add(0, func(string) error { c.Slots = false; return nil }, "--no-slots")
	f.number(&c.MaxModelLen, "-c", "--ctx-size")
	f.number(&c.MaxSeqs, "-np", "--parallel")
	f.number(&c.MaxBatchedTokens, "-b", "--batch-size")
	f.yes(&c.LoRAIdle, "--lora-init-without-apply")
	f.add(1, func(s string) error {
		c.LoRA = true
		c.Adapters = append(c.Adapters, Adapter{Name: filepath.Base(s), Path: s})
		return nil
	}, "--lora")
	ignored := false
	f.yes(&ignored, "--embedding", "--embeddings", "--reranking", "--jinja", "--mlock", "--no-mmap", "-fa", "--cont-batching", "-cb", "--offline", "--log-disable", "--no-webui")
}
