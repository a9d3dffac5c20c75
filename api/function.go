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

// Function is one model as declared by a user, with every default filled in. It is a value: parts copy it and never
// change one that they were given.
type Function struct {
	Name FunctionName `json:"name"`
	// Service is the Knative Service that the function is a revision of; empty on one machine, where a function is
	// its own service.
	Service FunctionName `json:"service,omitempty"`
	// Model is the name used by clients; default: the service's name.
	Model ModelName `json:"model"`
	// Aliases are further names for the same model.
	Aliases []ModelName `json:"aliases,omitempty"`
	// FullNameOnly means that clients must write the service's name with its namespace.
	FullNameOnly bool    `json:"fullNameOnly,omitempty"`
	Runtime      Runtime `json:"runtime"`
	// Handler is the argv of a program for pre- and post-processing that requests pass on their way to the runtime;
	// empty: none. It listens on $PORT of 127.0.0.1 and finds the runtime at $ROUSE_RUNTIME_URL.
	Handler []string `json:"handler,omitempty"`
	// MinScale and MaxScale bound the number of awake instances. MinScale 0 allows scale to zero.
	MinScale int `json:"minScale"`
	MaxScale int `json:"maxScale"`
	// ActivationScale is how many instances are woken or started at once when none is awake; 0 means 1.
	ActivationScale int `json:"activationScale,omitempty"`
	// Concurrency is how many requests one instance runs at once, at least 1.
	Concurrency int `json:"concurrency"`
	// ConcurrencyBy names the server setting or default that Concurrency comes from; empty: it was declared.
	ConcurrencyBy string `json:"concurrencyBy,omitempty"`
	// Memory is the need of one awake instance. A zero Host is learned from the instance.
	Memory Memory `json:"memory"`
	// SleepAfter is the idle time after which an awake instance goes to sleep; 0 keeps it awake.
	SleepAfter time.Duration `json:"sleepAfter"`
	// SleepLevel is the level of a sleep: 1 or 2. FixedLevel means that it was declared. Otherwise level 2 is chosen
	// if a sleep and the wake after it were measured to be faster there than at level 1.
	SleepLevel Level `json:"sleepLevel"`
	FixedLevel bool  `json:"fixedLevel,omitempty"`
	// UnloadAfter is the time asleep after which an instance is stopped; 0 keeps it asleep.
	UnloadAfter time.Duration `json:"goneAfter"`
	// NoPrewake disables waking or starting an instance before a request comes.
	NoPrewake bool `json:"noPrewake,omitempty"`
	// Rehearse says when an instance is put to sleep once for a moment while nobody waits for it: one of the Rehearse
	// constants; empty: [RehearseMeasured].
	Rehearse string `json:"rehearse,omitempty"`
	// Suspend says whether an instance may be [Suspended]: one of the Suspend constants; empty: [SuspendAuto].
	Suspend string `json:"suspend,omitempty"`
	// Hold bounds the queue of held requests.
	Hold Hold `json:"hold"`
	// StartTimeout bounds a start, from the process to the first generated token.
	StartTimeout time.Duration `json:"startTimeout"`
	// WakeTimeout bounds a wake, from the call to the first generated token; see [Function.RiseTimeout].
	WakeTimeout time.Duration `json:"wakeTimeout"`
	// RequestTimeout bounds a request from dispatch to its last byte; 0 means no bound.
	RequestTimeout time.Duration `json:"requestTimeout"`
	// FirstByteTimeout bounds the time from dispatch to the answer's first byte; 0 means no bound.
	FirstByteTimeout time.Duration `json:"firstByteTimeout,omitempty"`
	// IdleTimeout bounds the time between two pieces of an answer; 0 means no bound.
	IdleTimeout time.Duration `json:"idleTimeout,omitempty"`
	// Priority decides between functions that compete for the same memory; higher wins. Default 0.
	Priority int `json:"priority"`
	// Target is the service level that the function keeps by having more instances awake.
	Target Target `json:"target,omitzero"`
	// Cost is the price of one awake instance per hour, in any unit common to all variants of a model; 0: 1 for each
	// GPU.
	Cost float64 `json:"cost,omitempty"`
	// VariantOf is a model that several functions run in different ways. Requests for that name go to any variant
	// that the autoscaler has awake. Empty: none.
	VariantOf ModelName `json:"variantOf,omitempty"`
	// Fallback are the models, in order, that answer requests for which this function has no instance in time.
	Fallback []ModelName `json:"fallback,omitempty"`
	// DualPods means that in a cluster a pod of the function only claims its GPUs. Another pod, which outlives it
	// asleep, runs the model.
	DualPods bool `json:"dualPods,omitempty"`
	// ProviderPatch is JSON in the shape of a pod: how the pod that runs the model differs from the pod that claims
	// the GPUs. Empty: it does not.
	ProviderPatch string `json:"providerPatch,omitempty"`
	// CanaryTokens is how many tokens of a fixed prompt are compared after each wake with the tokens before the first
	// sleep. 0: the runtime's default; below 0: none.
	CanaryTokens int `json:"canaryTokens,omitempty"`
	// PassCredentials forwards a client's credentials to the model server; see control.Credential.
	PassCredentials bool `json:"passCredentials,omitempty"`
	// SharedPrefixes lets all clients share one prefix cache.
	SharedPrefixes bool `json:"sharedPrefixes,omitempty"`
	// Snapshot lets the runtime start from a snapshot of its process on the node's disk. A snapshot holds the process's memory.
	Snapshot bool `json:"snapshot,omitempty"`
	// Clusters is a Kubernetes label selector of clusters. A front door creates the function in one of them on
	// demand. Empty: the function runs where it is declared.
	Clusters string `json:"clusters,omitempty"`
	// RemoveAfter is how long the function is unloaded in a cluster where a front door created it, before it is
	// removed there; 0: [DefaultRemoveAfter].
	RemoveAfter time.Duration `json:"removeAfter,omitempty"`
	// Regions are the regions that requests may be sent to; nil: any.
	Regions []string `json:"regions,omitempty"`
	// Manifest is the document that declares the function, if Clusters is set. It may contain secrets: never log it.
	Manifest string `json:"manifest,omitempty"`
	// Origin is where the function was declared (a file, "built in", a URL), for people.
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

// Runtime says which model server an instance runs and with which options.
type Runtime struct {
	Kind string `json:"kind"`
	// Model is the model's reference: "pico", a path, a URL that is fetched before the start (file, https, hf, oci,
	// s3, ollama), or the runtime's own model name.
	Model string `json:"model,omitempty"`
	// Command is the argv of [RuntimeCommand] and [RuntimeHTTP]. "$(PORT)" in it is replaced by the port that the
	// server must listen on at 127.0.0.1. For other kinds it replaces the program and everything before the options;
	// empty: the kind's program in PATH.
	Command []string `json:"command,omitempty"`
	// Endpoint is the address of a runtime that something else starts and stops, such as a sidecar container. Empty:
	// the instance starts its runtime itself.
	Endpoint Endpoint `json:"endpoint,omitempty"`
	// Args are appended to argv for every kind.
	Args []string `json:"args,omitempty"`
	// Env holds further "KEY=VALUE" pairs. Values may be secrets: never log them.
	Env []string `json:"env,omitempty"`
	// Adapters are the LoRA adapters loaded at the start.
	Adapters []Adapter `json:"adapters,omitempty"`
	// AdapterRoot is the only folder from which adapters may be loaded; empty: no adapters.
	AdapterRoot string `json:"adapterRoot,omitempty"`
	// MediaHosts are the hosts, in lower case, from which images, audio and videos named in requests may be fetched;
	// nil: nothing is fetched.
	MediaHosts []string `json:"mediaHosts,omitempty"`
	// Sleeps means that a [RuntimeCommand] has vLLM's /sleep and /wake_up; otherwise the process is stopped instead.
	Sleeps bool `json:"sleeps,omitempty"`
	// ReuseConnections says whether connections to the server are reused; nil: only if the server is known to support
	// it, or has shown so.
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

// Adapter is a LoRA adapter; clients select it in the field "model".
type Adapter struct {
	Name ModelName `json:"name"`
	// Path is a folder or file as the runtime sees it, or a reference that is fetched.
	Path string `json:"path"`
}

// Memory is an amount of memory on the host and on devices.
type Memory struct {
	Host Bytes `json:"host"`
	// Devices is the number of GPUs, 0 for a CPU runtime.
	Devices int `json:"devices,omitempty"`
	// PerDevice is the memory on each of them.
	PerDevice Bytes `json:"perDevice,omitempty"`
	// Share is the part of each device that the instance takes; PerDevice is then a lower bound. If both are 0, the
	// need is unknown.
	Share float64 `json:"share,omitempty"`
	// Assumed means that PerDevice was not measured. In-process only.
	Assumed bool `json:"-"`
}

// SharedMemory is a file in memory that several processes of a node map.
type SharedMemory struct {
	// File identifies it on its node; it means nothing on other nodes.
	File  string `json:"file"`
	Bytes Bytes  `json:"bytes"`
}

// Target says when to add an instance to those that are awake.
type Target struct {
	// TTFT is the target time to first token; 0: none.
	TTFT time.Duration `json:"ttft,omitempty"`
}

// Hold bounds a function's queue of held requests.
type Hold struct {
	// Capacity is the number of requests that may wait.
	Capacity int `json:"capacity"`
	// MaxBytes bounds the total size of the bodies of waiting requests.
	MaxBytes Bytes `json:"maxBytes"`
	// Timeout is how long a request may wait.
	Timeout time.Duration `json:"timeout"`
	// EvictSheddable ends running requests of a priority below 0 if requests of priority 0 or more find no free slot.
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

// Price is one awake instance's per hour: Cost, else 1 for each GPU, else 1.
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
	for k, a := range rt.Adapters {
		rt.Adapters[k].Path = hide(a.Path)[0]
	}
	return f
}
