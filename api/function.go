package api

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Function is one declared model, with defaults filled in. Parts never change one that they were given.
type Function struct {
	Name FunctionName `json:"name"`
	// The Knative Service of a revision; empty on one machine.
	Service FunctionName `json:"service,omitempty"`
	// For clients; default: the service's.
	Model   ModelName   `json:"model"`
	Aliases []ModelName `json:"aliases,omitempty"`
	// FullNameOnly: clients must write the service's namespace too.
	FullNameOnly bool    `json:"fullNameOnly,omitempty"`
	Runtime      Runtime `json:"runtime"`
	// The argv of a program between clients and runtime. It listens on $PORT of 127.0.0.1 and finds the runtime at
	// $ROUSE_RUNTIME_URL.
	Handler []string `json:"handler,omitempty"`
	// Of awake instances.
	MinScale int `json:"minScale"`
	MaxScale int `json:"maxScale"`
	// How many instances come up when none is awake; 0 means 1.
	ActivationScale int `json:"activationScale,omitempty"`
	// Requests that one instance runs at once, at least 1.
	Concurrency int `json:"concurrency"`
	// The setting or default that Concurrency comes from; empty: declared.
	ConcurrencyBy string `json:"concurrencyBy,omitempty"`
	// Of one awake instance. A zero Host is learned.
	Memory Memory `json:"memory"`
	// Idle time; 0 keeps an instance awake.
	SleepAfter time.Duration `json:"sleepAfter"`
	// 1 or 2. Unless FixedLevel, 2 where it was measured to be faster.
	SleepLevel Level `json:"sleepLevel"`
	FixedLevel bool  `json:"fixedLevel,omitempty"`
	// Time asleep; 0 keeps an instance asleep.
	UnloadAfter time.Duration `json:"goneAfter"`
	// NoPrewake: an instance comes up only for a request.
	NoPrewake bool `json:"noPrewake,omitempty"`
	// Rehearse is a Rehearse constant: when an instance sleeps once for a moment; empty: [RehearseMeasured].
	Rehearse string `json:"rehearse,omitempty"`
	// Suspend is a Suspend constant: whether an instance may be [Suspended]; empty: [SuspendAuto].
	Suspend string `json:"suspend,omitempty"`
	Hold    Hold   `json:"hold"`
	// Until the first generated token.
	StartTimeout time.Duration `json:"startTimeout"`
	// Until the first generated token; see [Function.RiseTimeout].
	WakeTimeout time.Duration `json:"wakeTimeout"`
	// From dispatch to the last byte; 0: no bound.
	RequestTimeout time.Duration `json:"requestTimeout"`
	// From dispatch to the first byte; 0: no bound.
	FirstByteTimeout time.Duration `json:"firstByteTimeout,omitempty"`
	// Between two pieces of an answer; 0: no bound.
	IdleTimeout time.Duration `json:"idleTimeout,omitempty"`
	// Of functions that compete for memory the higher wins.
	Priority int    `json:"priority"`
	Target   Target `json:"target,omitzero"`
	// Of one awake instance per hour, in a unit of all variants; 0: 1 for each GPU.
	Cost float64 `json:"cost,omitempty"`
	// The model that this function is one way to run.
	VariantOf ModelName `json:"variantOf,omitempty"`
	// Models, in order, that answer when this one can't in time.
	Fallback []ModelName `json:"fallback,omitempty"`
	// DualPods: in a cluster one pod claims the GPUs, another, which outlives it asleep, runs the model.
	DualPods bool `json:"dualPods,omitempty"`
	// JSON in the shape of a pod: what differs where the model runs.
	ProviderPatch string `json:"providerPatch,omitempty"`
	// Tokens that are compared after each wake with those before the first sleep. 0: the runtime's default; below
	// 0: none.
	CanaryTokens int `json:"canaryTokens,omitempty"`
	// To the model server; see [control.Credential].
	PassCredentials bool `json:"passCredentials,omitempty"`
	// All clients share one prefix cache.
	SharedPrefixes bool `json:"sharedPrefixes,omitempty"`
	// Snapshot lets the runtime start from its process's memory on the node's disk.
	Snapshot bool `json:"snapshot,omitempty"`
	// A Kubernetes label selector: a front door creates the function in such a cluster on demand.
	Clusters string `json:"clusters,omitempty"`
	// How long a function that a front door created is unloaded before it is removed; 0: [DefaultRemoveAfter].
	RemoveAfter time.Duration `json:"removeAfter,omitempty"`
	// Where requests may be sent; nil: anywhere.
	Regions []string `json:"regions,omitempty"`
	// The declaration, if Clusters is set. It may contain secrets: never log it.
	Manifest string `json:"manifest,omitempty"`
	// For people.
	Origin string `json:"origin,omitempty"`
}

// Values of [Function.Suspend].
const (
	SuspendAuto = "auto" // where it works, if memory is needed
	SuspendOn   = "on"   // also at each sleep
	SuspendOff  = "off"
)

// Values of [Function.Rehearse].
const (
	RehearseMeasured = "measured" // if a process's first sleep was measured to be slow
	RehearseAlways   = "always"   // also if not measured
	RehearseNever    = "never"
)

// Runtime kinds.
const (
	RuntimeEngine   = "engine"  // Rouse's own engine on a GGUF file
	RuntimeCommand  = "command" // any OpenAI-compatible server
	RuntimeHTTP     = "http"    // any server; no model
	RuntimeVLLM     = "vllm"
	RuntimeSGLang   = "sglang"
	RuntimeOllama   = "ollama"
	RuntimeLlamaCpp = "llamacpp" // llama-server
	RuntimeRayServe = "ray-serve"
)

// RuntimeKinds are in the order of the documentation.
var RuntimeKinds = []string{RuntimeEngine, RuntimeVLLM, RuntimeSGLang, RuntimeOllama, RuntimeLlamaCpp, RuntimeRayServe, RuntimeCommand, RuntimeHTTP}

// Runtime says which model server an instance runs and how.
type Runtime struct {
	Kind string `json:"kind"`
	// "pico", a path, a URL that is fetched (file, https, hf, oci, s3, ollama), or the runtime's own name.
	Model string `json:"model,omitempty"`
	// The argv of [RuntimeCommand] and [RuntimeHTTP], with "$(PORT)" of 127.0.0.1. For other kinds it replaces the
	// program and what is before the options.
	Command []string `json:"command,omitempty"`
	// Of a runtime that something else starts, such as a sidecar.
	Endpoint Endpoint `json:"endpoint,omitempty"`
	// Appended to argv.
	Args []string `json:"args,omitempty"`
	// "KEY=VALUE" pairs. Values may be secrets: never log them.
	Env []string `json:"env,omitempty"`
	// Loaded at the start.
	Adapters []Adapter `json:"adapters,omitempty"`
	// The only folder of adapters.
	AdapterRoot string `json:"adapterRoot,omitempty"`
	// In lower case: from where media in requests may be fetched.
	MediaHosts []string `json:"mediaHosts,omitempty"`
	// Sleeps: a [RuntimeCommand] has vLLM's /sleep and /wake_up; otherwise its process is stopped.
	Sleeps bool `json:"sleeps,omitempty"`
	// nil: if the server is known or shown to support it
	ReuseConnections *bool `json:"reuseConnections,omitempty"`
}

// Behind parses the words after "--" on a function's command line. For [RuntimeCommand] and [RuntimeHTTP], and
// without a kind if a program comes first, all are the command. Otherwise words before the first option replace the
// server's program, except for the engine.
func (rt Runtime) Behind(words []string) Runtime {
	if len(words) == 0 {
		return rt
	}
	n := 0
	for rt.Kind != RuntimeEngine && n < len(words) && !strings.HasPrefix(words[n], "-") {
		n++
	}
	switch {
	case rt.Kind == RuntimeCommand, rt.Kind == RuntimeHTTP:
		rt.Command, rt.Args = words, nil
	case rt.Kind == "" && n > 0:
		rt.Kind, rt.Command, rt.Args = RuntimeCommand, words, nil
	case n > 0:
		rt.Command, rt.Args = words[:n], words[n:]
	default:
		rt.Args = words
	}
	return rt
}

// Adapts reports whether rt differs from to in its adapters at most: instances stay.
func (rt Runtime) Adapts(to Runtime) bool {
	rt.Adapters, to.Adapters = nil, nil
	return reflect.DeepEqual(rt, to)
}

// CheckAdapters refuses adapters that the kind does not support.
func (rt Runtime) CheckAdapters() error {
	switch {
	case len(rt.Adapters) == 0:
	case rt.Kind == RuntimeOllama:
		return errors.New("ollama has no adapters at run time: set the path of a Modelfile with an ADAPTER line as the model")
	case rt.Kind == RuntimeRayServe, rt.Kind == RuntimeCommand, rt.Kind == RuntimeHTTP:
		return fmt.Errorf("the runtime %s takes no adapters from Rouse: leave them out", rt.Kind)
	}
	return nil
}

// Adapter is a LoRA adapter; clients name it as the model.
type Adapter struct {
	Name ModelName `json:"name"`
	// As the runtime sees it, or a reference that is fetched.
	Path string `json:"path"`
}

// Memory is memory of the host and of devices.
type Memory struct {
	Host Bytes `json:"host"`
	// GPUs.
	Devices int `json:"devices,omitempty"`
	// On each of them.
	PerDevice Bytes `json:"perDevice,omitempty"`
	// The part of each device; PerDevice is then a lower bound. Both 0: unknown.
	Share float64 `json:"share,omitempty"`
	// PerDevice was not measured. In-process only.
	Assumed bool `json:"-"`
}

// SharedMemory is a file in memory that several processes of a node map.
type SharedMemory struct {
	// On its node only.
	File  string `json:"file"`
	Bytes Bytes  `json:"bytes"`
}

// Target is a service level for which instances are added.
type Target struct {
	// Time to first token; 0: none.
	TTFT time.Duration `json:"ttft,omitempty"`
}

// Hold bounds a function's queue of held requests.
type Hold struct {
	Capacity int `json:"capacity"`
	// MaxBytes bounds the sum of all bodies.
	MaxBytes Bytes         `json:"maxBytes"`
	Timeout  time.Duration `json:"timeout"`
	// Requests of a priority below 0 end if others find no free slot.
	EvictSheddable bool `json:"evictSheddable,omitempty"`
}

// WithDefaults fills in defaults. Zero has a meaning in SleepAfter, UnloadAfter and RequestTimeout.
func (f Function) WithDefaults() Function {
	or(&f.Model, ModelName(f.ServiceName().Name()))
	or(&f.Runtime.Kind, RuntimeEngine)
	or(&f.MaxScale, max(1, f.MinScale, f.ActivationScale))
	if f.Concurrency == 0 {
		f.Concurrency, f.ConcurrencyBy = f.Runtime.Concurrency()
	}
	or(&f.Hold.Capacity, 1000)
	or(&f.Hold.Timeout, 5*time.Minute)
	or(&f.Hold.MaxBytes, 256*MiB)
	or(&f.StartTimeout, 10*time.Minute)
	or(&f.WakeTimeout, time.Minute)
	or(&f.SleepLevel, Level1)
	if m := &f.Memory; m.Devices > 0 && m.PerDevice == 0 && m.Share == 0 {
		m.Share = f.Runtime.deviceShare()
	}
	return f
}

func or[T comparable](p *T, v T) { *p = cmp.Or(*p, v) }

// DefaultRemoveAfter is the default of [Function.RemoveAfter].
const DefaultRemoveAfter = 10 * time.Minute

// WithoutSecrets returns f without environment and manifest, which has that too.
func (f Function) WithoutSecrets() Function {
	f.Runtime.Env, f.Manifest = nil, ""
	return f
}

// ServiceName returns Service, or Name if Service is empty.
func (f Function) ServiceName() FunctionName { return cmp.Or(f.Service, f.Name) }

// Unloaded reports whether a sleeping instance must load the model when woken. A sidecar's process keeps running.
func (f Function) Unloaded(s InstanceStatus) bool {
	return s.State == Asleep && s.PID == 0 && f.Runtime.Endpoint == ""
}

// RiseTimeout returns the limit of a wake: StartTimeout if unloaded.
func (f Function) RiseTimeout(unloaded bool) time.Duration {
	if unloaded {
		return f.StartTimeout
	}
	return f.WakeTimeout
}

// Price is Cost, else 1 for each GPU, else 1.
func (f Function) Price() float64 {
	if f.Cost > 0 {
		return f.Cost
	}
	return float64(max(1, f.Memory.Devices))
}

// Names returns the model and its aliases.
func (f Function) Names() []ModelName { return append([]ModelName{f.Model}, f.Aliases...) }

// ExitModel is the exit status of a server that can never use its model: EX_DATAERR of sysexits.h.
const ExitModel = 65

// Resumes reports whether a stream of f may continue at another instance. Instances of an unknown runtime are
// asked.
func (f Function) Resumes() bool {
	return f.TellsState() && len(f.Handler) == 0
}

// TellsState reports whether the runtime can expose the state of its streams.
func (f Function) TellsState() bool {
	return f.Runtime.Kind == RuntimeEngine || f.Runtime.Kind == "" || f.Runtime.Kind == RuntimeVLLM
}

// Moves reports whether a draining instance may end its requests, which continue elsewhere.
func (f Function) Moves() bool {
	return (f.Runtime.Kind == RuntimeEngine || f.Runtime.Kind == "") && len(f.Handler) == 0
}

// Concurrency returns how many requests the runtime runs at once, and where the number comes from: an option or
// variable, the kind, or 8. vLLM's own default is 128 to 1024 and SGLang's up to 4096. Rouse uses 64: more requests
// start another instance instead of queueing in the server.
func (rt Runtime) Concurrency() (n int, by string) {
	settings := []string{"--max-num-seqs", "--max-seqs", "--max-running-requests", "OLLAMA_NUM_PARALLEL"}
	if rt.Kind == RuntimeLlamaCpp { // elsewhere they mean other things
		settings = []string{"--parallel", "-np", "LLAMA_ARG_N_PARALLEL"}
	}
	for _, name := range settings {
		if n := rt.number(name); n > 0 {
			if rt.Kind == RuntimeVLLM { // per data-parallel rank
				n *= max(1, rt.number("--data-parallel-size"), rt.number("-dp"))
			}
			return n, name
		}
	}
	switch rt.Kind {
	case RuntimeEngine:
		return 32, "default for engine"
	case RuntimeVLLM, RuntimeSGLang:
		return 64, "default for " + rt.Kind
	}
	return 8, "default"
}

// 0 if unset or no number
func (rt Runtime) number(name string) int {
	text, _ := rt.option(name)
	n, _ := strconv.Atoi(text)
	return n
}

// DefaultShare is vLLM's default share of each device's memory.
const DefaultShare = 0.9

// 0: unknown
func (rt Runtime) deviceShare() float64 {
	if rt.Endpoint != "" { // unknown options
		return 0
	}
	switch rt.Kind {
	case RuntimeVLLM:
		if _, set := rt.option("--kv-cache-memory-bytes"); set {
			return 0
		}
		if text, set := rt.option("--gpu-memory-utilization"); set {
			return share(text)
		}
		return DefaultShare
	case RuntimeSGLang:
		text, _ := rt.option("--mem-fraction-static")
		return share(text)
	}
	return 0
}

// 0: not a fraction
func share(text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v > 0 && v <= 1) {
		return 0
	}
	return v
}

// The last value counts; options may have underscores.
func (rt Runtime) option(name string) (value string, set bool) {
	words := slices.Concat(rt.Env, rt.Command, rt.Args)
	for k, word := range slices.Backward(words) {
		key, value, given := strings.Cut(word, "=")
		if strings.HasPrefix(key, "--") {
			key = strings.ReplaceAll(key, "_", "-")
		}
		if key != name {
			continue
		}
		if !given && k+1 < len(words) {
			value = words[k+1]
		}
		return value, true
	}
	return "", false
}

// Hidden stands for a secret.
const Hidden = "…"

// Such as HF_TOKEN, --api-key and X-Amz-Signature.
const secretName = `(?i:(?:[\w.-]*[_.-])?(?:api|access|auth|secret)?(?:key|token|secret|password|passwd|pass|pwd|bearer|credentials?|signature|sig|authorization))`

// The first group of each place stays.
var secrets = sync.OnceValue(func() (list []*regexp.Regexp) {
	for _, place := range []string{
		`(://)[^/?#\s@]+(@)`,
		`((?:^|[^\w.-])` + secretName + `(?:["']?=|:\s|["']:\s*))(?:Bearer\s+)?(?:"[^"]*"|'[^']*'|[^\s&"',;}]+)`,
		`((?:^|[\s"'])-` + secretName + `\s+)(?:"[^"]*"|'[^']*'|[^\s"'-][^\s"']*)`,
		`(\b(?:sk-|hf_))[\w-]{16,}`, `(\brouse-)[a-z2-7]{40}\b`, // whatever their names
	} {
		list = append(list, regexp.MustCompile(place))
	}
	return list
})

func hide(words ...string) []string {
	words = slices.Clone(words)
	for i, w := range words {
		for _, place := range secrets() {
			w = place.ReplaceAllString(w, "${1}"+Hidden+"${2}")
		}
		if i > 0 && !strings.HasPrefix(w, "-") && strings.HasPrefix(words[i-1], "-") && secrets()[2].MatchString(words[i-1]+" x") {
			w = Hidden
		}
		words[i] = w
	}
	return words
}

// Redacted is [Function.WithoutSecrets], with what may be a secret in commands, options and URLs hidden.
func (f Function) Redacted() Function {
	f = f.WithoutSecrets()
	rt := &f.Runtime
	rt.Command, rt.Args, f.Handler = hide(rt.Command...), hide(rt.Args...), hide(f.Handler...)
	rt.Model, rt.Endpoint = hide(rt.Model)[0], Endpoint(hide(string(rt.Endpoint))[0])
	rt.Adapters = slices.Clone(rt.Adapters)
	for k := range rt.Adapters {
		rt.Adapters[k].Path = hide(rt.Adapters[k].Path)[0]
	}
	return f
}
