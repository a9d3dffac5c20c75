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
	// a Socket, if set, alone counts
	Host   string
	Port   int
	Socket string
}

// Parse reads a command line and the environment. The program's name chooses the surface, unless --surface does:
// vllm, sglang, llama-server, ray, or python -m MODULE. VLLMSIM_FLAGS has more flags. An unknown flag is passed over
// with a warning.
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
	server := servers[surface] // unknown: the zero value
	cmd := Command{Config: Config{Surface: surface, TimeScale: 1, DevMode: true, RuntimeLoRA: true}, Host: server.host, Port: server.port}
	c := &cmd.Config
	c.Device.Dir = getenv("VLLMSIM_DEVICES")
	if visible := cmp.Or(getenv("CUDA_VISIBLE_DEVICES"), getenv("NVIDIA_VISIBLE_DEVICES")); visible != "" && visible != "all" {
		c.Device.Visible = &visible // a container gets the second one from its runtime
	}
	c.Pause = getenv("VLLMSIM_PAUSE")
	if faults := getenv("VLLMSIM_FAULTS"); faults != "" {
		c.Faults = []string{faults}
	}
	if surface == VLLM {
		c.DevMode, c.RuntimeLoRA = truth(getenv("VLLM_SERVER_DEV_MODE")), truth(getenv("VLLM_ALLOW_RUNTIME_LORA_UPDATING"))
		if key := getenv("VLLM_API_KEY"); key != "" {
			c.APIKeys = []string{key}
		}
	}
	known := ownFlags(c)
	if server.flags != nil {
		server.flags(&cmd, known)
	}
	if err := known.read(all, func(s string) { c.Model = s }, warnings); err != nil {
		return cmd, err
	}
	if cmd.Port < 0 || cmd.Port > 65535 {
		return cmd, fmt.Errorf("--port %d: want 0 to 65535", cmd.Port)
	}
	return cmd, nil
}

// called returns the surface by the name of the program, and the flags and model.
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
	case name == "ray":
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

// flags maps each flag to its setter. A pointer to a string, int, float64 or bool takes one value (a bool none); a
// *[]string all up to the next flag; a func(string) error one; nil one that is ignored. A bool has a --no- form.
type flags map[string]any

func size(into *int64) func(string) error {
	return func(s string) (err error) { *into, err = Bytes(s); return err }
}

// duration makes 0 negative: 0 in a [Config] means the default.
func duration(into *time.Duration) func(string) error {
	return func(s string) (err error) {
		if *into, err = time.ParseDuration(s); *into == 0 {
			*into = -1
		}
		return err
	}
}

func ownFlags(c *Config) flags {
	return flags{
		"--surface": nil, "--device-memory": size(&c.Device.Memory), "--weights": size(&c.Weights), "--residue": size(&c.Residue),
		"--first-sleep": &c.FirstSleep, "--time-scale": &c.TimeScale, "--old-metrics": &c.OldMetrics,
		"--load-time": duration(&c.LoadTime), "--sleep-time": duration(&c.SleepTime), "--wake-time": duration(&c.WakeTime), "--reload-time": duration(&c.ReloadTime),
		"--prefill-time": duration(&c.Timing.Prefill), "--step-time": duration(&c.Timing.Step),
		"--fault": func(s string) error { c.Faults = append(c.Faults, s); return nil },
	}
}

func vllmFlags(cmd *Command, f flags) {
	c := &cmd.Config
	f["--host"], f["--port"], f["--uds"], f["--api-key"] = &cmd.Host, &cmd.Port, &cmd.Socket, &c.APIKeys
	f["--model"], f["--served-model-name"] = &c.Model, &c.Names
	f["--enable-sleep-mode"], f["--enable-lora"], f["--max-loras"], f["--lora-modules"] = &c.Sleep, &c.LoRA, &c.MaxLoRAs, &loraModules{c}
	f["--max-model-len"], f["--max-num-seqs"], f["--gpu-memory-utilization"] = &c.MaxModelLen, &c.MaxSeqs, &c.Utilization
	f["--kv-events-config"] = func(s string) error { return json.Unmarshal([]byte(s), &c.KVEvents) }
	f["--disable-log-stats"], f["--enable-prefix-caching"] = new(bool), new(bool)
	f["--allowed-media-domains"] = new([]string)
}

func sglangFlags(cmd *Command, f flags) {
	c := &cmd.Config
	f["--host"], f["--port"], f["--api-key"] = &cmd.Host, &cmd.Port, &c.APIKeys
	f["--model-path"], f["--model"], f["--served-model-name"] = &c.Model, &c.Model, &c.Names
	f["--enable-memory-saver"], f["--enable-weights-cpu-backup"], f["--enable-metrics"] = &c.Sleep, &c.WeightsBackup, &c.Metrics
	f["--enable-lora"], f["--max-loras-per-batch"], f["--lora-paths"] = &c.LoRA, &c.MaxLoRAs, &loraModules{c}
	f["--context-length"], f["--max-running-requests"], f["--mem-fraction-static"] = &c.MaxModelLen, &c.MaxSeqs, &c.Utilization
	f["--config"] = func(s string) error {
		raw, err := os.ReadFile(s)
		if key, found := strings.CutPrefix(string(raw), "api-key:"); found {
			c.APIKeys = []string{strings.TrimSpace(key)}
		}
		return err
	}
}

func llamaFlags(cmd *Command, f flags) {
	c := &cmd.Config
	c.MaxSeqs = 4
	f["--host"], f["--port"], f["--api-key"] = &cmd.Host, &cmd.Port, &c.APIKeys
	f["-m"], f["--model"], f["-hf"], f["-c"], f["--ctx-size"] = &c.Model, &c.Model, &c.Model, &c.MaxModelLen, &c.MaxModelLen
	f["-a"] = func(s string) error { c.Names = strings.Split(s, ","); return nil }
	f["--alias"] = f["-a"]
	f["--metrics"], f["-np"], f["--parallel"] = &c.Metrics, &c.MaxSeqs, &c.MaxSeqs
	f["--lora"] = func(s string) error {
		c.LoRA, c.Adapters = true, append(c.Adapters, Adapter{Name: filepath.Base(s), Path: s})
		return nil
	}
	for _, ignored := range []string{"--embedding", "--embeddings", "--reranking", "--jinja", "-cb", "--offline", "--slots", "--no-webui"} {
		f[ignored] = new(bool)
	}
}

func rayFlags(cmd *Command, f flags) { f["--dashboard-port"] = &cmd.Port }

// loraModules are adapters: name=path, {"name":…,"path":…}, or for SGLang a path alone.
type loraModules struct{ c *Config }

func (m *loraModules) add(s string) error {
	a := Adapter{}
	if strings.HasPrefix(s, "{") {
		if err := json.Unmarshal([]byte(s), &a); err != nil {
			return err
		}
	} else {
		a.Name, a.Path, _ = strings.Cut(s, "=")
	}
	if a.Path == "" && m.c.Surface == SGLang {
		a = Adapter{Name: filepath.Base(s), Path: s}
	}
	if a.Name == "" || a.Path == "" {
		return fmt.Errorf(`want name=path or {"name":…,"path":…}`)
	}
	m.c.LoRA = m.c.LoRA || m.c.Surface == SGLang
	m.c.Adapters = append(m.c.Adapters, a)
	return nil
}

// read allows _ for -, and = before a value, as vLLM does. bare takes arguments that are no flags.
func (f flags) read(args []string, bare func(string), warnings io.Writer) error {
	given := map[string]bool{}
	for len(args) > 0 {
		name, value, equals := strings.Cut(args[0], "=")
		if !strings.HasPrefix(name, "-") {
			bare(args[0])
			args = args[1:]
			continue
		}
		args, name = args[1:], strings.ReplaceAll(name, "_", "-")
		into, found := f[name]
		if yes, negated := f["--"+strings.TrimPrefix(name, "--no-")].(*bool); !found && negated {
			*yes = false
			continue
		}
		values := []string{value}
		if !equals {
			if values = f.valuesOf(name, args); values == nil {
				return fmt.Errorf("%s: expected a value", name)
			}
			args = args[len(values):]
			if len(values) == 0 {
				values = []string{"true"}
			}
		}
		if !found {
			fmt.Fprintf(warnings, "vllmsim: %s %s is not simulated and passed over\n", name, strings.Join(values, " "))
			continue
		}
		if list, is := into.(*[]string); is && !given[name] { // it replaces what the environment said
			*list, given[name] = nil, true
		}
		for _, v := range values {
			if err := set(into, v); err != nil {
				return fmt.Errorf("%s %s: %w", name, v, err)
			}
		}
	}
	return nil
}

// valuesOf returns the values that args begin with; nil if one is missing.
func (f flags) valuesOf(name string, args []string) []string {
	follow := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "-") })
	if follow < 0 {
		follow = len(args)
	}
	into, found := f[name]
	switch into.(type) {
	case *bool:
		return []string{}
	case *[]string, *loraModules:
		if follow == 0 {
			return nil
		}
		return args[:follow]
	}
	switch {
	case !found && takesNoValue(name):
		return []string{}
	case !found:
		return args[:min(follow, 1)]
	case len(args) == 0 || strings.HasPrefix(args[0], "--"):
		return nil
	}
	return args[:1] // which may begin with a dash
}

func set(into any, s string) (err error) {
	switch into := into.(type) {
	case *string:
		*into = s
	case *bool:
		*into, err = strconv.ParseBool(s)
	case *int:
		*into, err = strconv.Atoi(s)
	case *float64:
		*into, err = strconv.ParseFloat(s, 64)
	case *[]string:
		*into = append(*into, s)
	case *loraModules:
		err = into.add(s)
	case func(string) error:
		err = into(s)
	}
	return err
}

// takesNoValue guesses for an unknown flag.
func takesNoValue(name string) bool {
	return slices.ContainsFunc([]string{"--enable-", "--disable-", "--no-", "--trust-", "--enforce-", "--skip-", "--use-", "--allow-", "--async-"},
		func(p string) bool { return strings.HasPrefix(name, p) })
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
