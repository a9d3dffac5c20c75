package api

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Function is one model as users declare it, with every default filled in.
// It is a value: parts copy it and never change one that they were given.
type Function struct {
	Name FunctionName `json:"name"`
	// Service is the Knative Service that the function is a revision of; empty on one
	// machine, where a function is its own service.
	Service FunctionName `json:"service,omitempty"`
	// Model is the name clients use; it defaults to the service's name.
	Model ModelName `json:"model"`
	// Aliases are further names for the same model.
	Aliases []ModelName `json:"aliases,omitempty"`
	// FullNameOnly says that the service's name without its namespace is none of its names.
	FullNameOnly bool `json:"fullNameOnly,omitempty"`
	// Runtime says what an instance runs.
	Runtime Runtime `json:"runtime"`
	// Handler is argv of a program for pre- and post-processing that clients' requests
	// go through on their way to the runtime; empty: none. It listens on $PORT of
	// 127.0.0.1 and finds the runtime at $ROUSE_RUNTIME_URL.
	Handler []string `json:"handler,omitempty"`
	// MinScale and MaxScale bound the number of awake instances. MinScale 0 allows scale to zero.
	MinScale int `json:"minScale"`
	MaxScale int `json:"maxScale"`
	// ActivationScale is how many instances are woken or started at once where none is awake; 0 is 1.
	ActivationScale int `json:"activationScale,omitempty"`
	// Concurrency is how many requests one instance takes at once, at least 1.
	Concurrency int `json:"concurrency"`
	// ConcurrencyBy names the server's setting, or the default, that Concurrency comes from; empty: it was declared.
	ConcurrencyBy string `json:"concurrencyBy,omitempty"`
	// Memory is what one awake instance needs. A zero Host means: learn it from the instance.
	Memory Memory `json:"memory"`
	// SleepAfter is the idle time after which an awake instance goes to sleep; 0 keeps it awake.
	SleepAfter time.Duration `json:"sleepAfter"`
	// SleepLevel is the level it goes to: 1 or 2. FixedLevel says that it was declared; where it was not, level 2 is chosen
	// when a sleep and the wake after it were measured to take less there than at level 1.
	SleepLevel Level `json:"sleepLevel"`
	FixedLevel bool  `json:"fixedLevel,omitempty"`
	// UnloadAfter is the time asleep after which an instance is stopped; 0 keeps it asleep.
	UnloadAfter time.Duration `json:"goneAfter"`
	// NoPrewake keeps an instance from being woken or started before a request comes.
	NoPrewake bool `json:"noPrewake,omitempty"`
	// Rehearse says whether an instance is put to sleep once for a moment while nobody waits for it: one of the Rehearse constants;
	// empty is [RehearseMeasured].
	Rehearse string `json:"rehearse,omitempty"`
	// Hold bounds the holding room.
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
	// Priority decides between functions that want the same memory; higher wins. Default 0.
	Priority int `json:"priority"`
	// Target is what the function should hold to by having more instances awake.
	Target Target `json:"target,omitzero"`
	// Cost is the price of one awake instance for an hour, in any unit that is the same for all
	// variants of a model; 0 is 1 for each GPU.
	Cost float64 `json:"cost,omitempty"`
	// VariantOf is the model that this function is one of several ways to run: requests for
	// that name go to whichever variant the autoscaler has awake. Empty: none.
	VariantOf ModelName `json:"variantOf,omitempty"`
	// DualPods says that, in a cluster, a pod of the function only claims its GPUs, and
	// another pod, which outlives it asleep, runs the model.
	DualPods bool `json:"dualPods,omitempty"`
	// ProviderPatch is JSON in the shape of a pod: what differs in the pod that runs the model
	// from the one that claims the GPUs; empty: none is needed.
	ProviderPatch string `json:"providerPatch,omitempty"`
	// CanaryTokens is how many tokens of a fixed prompt are compared after each wake with those
	// before the first sleep. 0 takes what suits the runtime, below 0 compares none.
	CanaryTokens int `json:"canaryTokens,omitempty"`
	// PassCredentials hands a client's credentials to the model server; see control.Credential.
	PassCredentials bool `json:"passCredentials,omitempty"`
	// SharedPrefixes lets all clients share the computed beginnings of prompts.
	SharedPrefixes bool `json:"sharedPrefixes,omitempty"`
	// Clusters selects clusters by their labels, in Kubernetes' syntax: a front door has the function created in one of
	// them when it is wanted. Empty: it runs where it is declared.
	Clusters string `json:"clusters,omitempty"`
	// RemoveAfter is how long it is unloaded in a cluster where a front door had it created before it is removed there;
	// 0 is [DefaultRemoveAfter].
	RemoveAfter time.Duration `json:"removeAfter,omitempty"`
	// Regions are those that its requests may be sent to; none: any.
	Regions []string `json:"regions,omitempty"`
	// Manifest is the document that declares it, where Clusters is given. It may have secrets: never log it.
	Manifest string `json:"manifest,omitempty"`
	// Origin says where the function was declared (a file, "built in", a URL), for people.
	Origin string `json:"origin,omitempty"`
}

// Values of [Function.Rehearse].
const (
	RehearseMeasured = "measured" // where the first sleep of a process was measured to take much longer than others
	RehearseAlways   = "always"   // and where that is not known
	RehearseNever    = "never"
)

// Runtime kinds.
const (
	RuntimeEngine   = "engine"    // Rouse's own engine on a GGUF file
	RuntimeCommand  = "command"   // any OpenAI-compatible server started by a command line
	RuntimeHTTP     = "http"      // any HTTP server started by a command line; it is no model server
	RuntimeVLLM     = "vllm"      // vllm serve
	RuntimeSGLang   = "sglang"    // python -m sglang.launch_server
	RuntimeOllama   = "ollama"    // ollama serve
	RuntimeLlamaCpp = "llamacpp"  // llama-server of llama.cpp
	RuntimeRayServe = "ray-serve" // serve run of Ray Serve
)

// RuntimeKinds are all of them, in the order of the documentation.
var RuntimeKinds = []string{RuntimeEngine, RuntimeVLLM, RuntimeSGLang, RuntimeOllama, RuntimeLlamaCpp, RuntimeRayServe, RuntimeCommand, RuntimeHTTP}

// Runtime says which model server an instance runs, and how.
type Runtime struct {
	// Kind is one of the Runtime constants.
	Kind string `json:"kind"`
	// Model is the reference of the model: "pico", a path, a URL that is fetched before the
	// start (file, https, hf, oci, s3, ollama), or the runtime's own name for a model.
	Model string `json:"model,omitempty"`
	// Command is argv for [RuntimeCommand] and [RuntimeHTTP]. "$(PORT)" in it is replaced by the port the server must listen on at 127.0.0.1.
	// For other kinds it replaces the program and what stands before the options; empty: the kind's own, found in PATH.
	Command []string `json:"command,omitempty"`
	// Endpoint is where a runtime listens that somebody else starts and stops: a sidecar
	// container of the same pod. Empty: the instance starts its runtime itself.
	Endpoint Endpoint `json:"endpoint,omitempty"`
	// Args are appended to argv, whatever the kind.
	Args []string `json:"args,omitempty"`
	// Env are further "KEY=VALUE" pairs. Values may be secrets: never log them.
	Env []string `json:"env,omitempty"`
	// Adapters are LoRA adapters that are loaded at the start.
	Adapters []Adapter `json:"adapters,omitempty"`
	// AdapterRoot is the only folder that adapters may lie in; empty: none can be loaded.
	AdapterRoot string `json:"adapterRoot,omitempty"`
	// MediaHosts are the hosts that images, sounds and videos which requests name are fetched from, in lower case; none: nothing is fetched.
	MediaHosts []string `json:"mediaHosts,omitempty"`
	// Sleeps says whether a [RuntimeCommand] has vLLM's /sleep and /wake_up; else its sleep is a stop of the process.
	Sleeps bool `json:"sleeps,omitempty"`
	// ReuseConnections says whether a connection to the server carries further requests; nil: where the server is known to allow it, or has shown it.
	ReuseConnections *bool `json:"reuseConnections,omitempty"`
	// Conversations says what a [RuntimeEngine] keeps of them while it does not run.
	Conversations Conversations `json:"conversations,omitzero"`
}

// Conversations says what an instance keeps of what it has computed of conversations. In each number 0 is the
// engine's default, and below 0 stands for 0.
type Conversations struct {
	// Memory is what a sleep of level 1 keeps in memory.
	Memory Bytes `json:"memory,omitempty"`
	// Folder is where files are; empty: there are none.
	Folder string `json:"folder,omitempty"`
	// Limit is the size of all files together, and Age how long one lives that is not used; 0 of it is for ever.
	Limit Bytes         `json:"limit,omitempty"`
	Age   time.Duration `json:"age,omitempty"`
}

// Behind reads the words that stand behind "--" on a function's command line, or in the args of its container. For
// [RuntimeCommand] and [RuntimeHTTP], and where no kind is named and they begin with a program, all of them are the command. For the other
// kinds they are the server's options; words before the first option replace its program, but for the engine's.
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

// Adapts says whether what rt runs becomes what to declares by a change of adapters alone. Otherwise its instances
// end, and new ones take their place.
func (rt Runtime) Adapts(to Runtime) bool {
	rt.Adapters, to.Adapters = nil, nil
	return reflect.DeepEqual(rt, to)
}

// CheckAdapters reports why an instance can't have the adapters that are declared: its kind takes none.
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

// Adapter is a LoRA adapter, which clients name in the field "model".
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
	// Share is the part of each of them, of which PerDevice says the least; where both are 0, nobody knows how much it is.
	Share float64 `json:"share,omitempty"`
	// Assumed says that nobody has measured PerDevice. Between parts of one process only.
	Assumed bool `json:"-"`
}

// SharedMemory is a file in memory, which all processes of a node that map it have in common.
type SharedMemory struct {
	// File names it on its node; nowhere else does it mean anything.
	File  string `json:"file"`
	Bytes Bytes  `json:"bytes"`
}

// Target says when one more instance is wanted beside those that are awake. Zero fields
// take the default.
type Target struct {
	// TTFT is the time to first token to hold to; 0: none.
	TTFT time.Duration `json:"ttft,omitempty"`
	// KVUsage is the share of the KV cache in use, over all awake instances, above which one more is wanted. Default 0.8.
	KVUsage float64 `json:"kvUsage,omitempty"`
	// Queue is how many requests may wait inside an awake instance's runtime. Default 5.
	Queue int `json:"queue,omitempty"`
}

// Hold bounds a function's holding room.
type Hold struct {
	// Capacity is the number of requests that may wait.
	Capacity int `json:"capacity"`
	// MaxBytes bounds the bodies of waiting requests, all together.
	MaxBytes Bytes `json:"maxBytes"`
	// Timeout is how long a request may wait.
	Timeout time.Duration `json:"timeout"`
	// EvictSheddable ends requests that run with a priority below 0 for those of 0 or more that find no free slot.
	EvictSheddable bool `json:"evictSheddable,omitempty"`
}

// WithDefaults fills every zero field that has a default and returns the result.
// Fields in which zero has a meaning of its own (SleepAfter, UnloadAfter, RequestTimeout) are left alone.
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

// or sets *p where it is zero.
func or[T comparable](p *T, v T) { *p = cmp.Or(*p, v) }

// Default idle times, used where a manifest says nothing.
const (
	DefaultSleepAfter  = time.Minute
	DefaultUnloadAfter = 15 * time.Minute
)

// How long a function is unloaded in a cluster before a front door that had it created there has it removed.
const (
	DefaultRemoveAfter = 10 * time.Minute
	LeastRemoveAfter   = time.Second
	MostRemoveAfter    = 720 * time.Hour
)

// WithoutSecrets is f without the values of its environment, and without its manifest, which has them too.
func (f Function) WithoutSecrets() Function {
	f.Runtime.Env, f.Manifest = nil, ""
	return f
}

// ServiceName is the service that the function belongs to: Service, else the function itself.
func (f Function) ServiceName() FunctionName {
	if f.Service != "" {
		return f.Service
	}
	return f.Name
}

// Unloaded says whether s is of a sleeper of f that kept no process: it has to load when it is
// woken. The process of a sidecar is not f's, and is there.
func (f Function) Unloaded(s InstanceStatus) bool {
	return s.State == Asleep && s.PID == 0 && f.Runtime.Endpoint == ""
}

// RiseTimeout bounds the wake of a sleeper of f: where it has to load, that is a start.
func (f Function) RiseTimeout(unloaded bool) time.Duration {
	if unloaded {
		return f.StartTimeout
	}
	return f.WakeTimeout
}

// Price is the cost of one awake instance for an hour: Cost, else 1 for each GPU, else 1.
func (f Function) Price() float64 {
	if f.Cost > 0 {
		return f.Cost
	}
	return float64(max(1, f.Memory.Devices))
}

// Names returns the model's name and its aliases.
func (f Function) Names() []ModelName { return append([]ModelName{f.Model}, f.Aliases...) }

// ExitModel is the status that a model server ends with which can't use its model, now or in another
// try: EX_DATAERR of sysexits.h.
const ExitModel = 65

// Resumes says whether a stream of an instance of f may go on at another one: its runtime's state can be told, and nobody is between it and the
// activator. Of a revision that names no runtime its image knows which it is: its instances are asked for the state, and do not tell it where they can't.
func (f Function) Resumes() bool {
	return f.TellsState() && len(f.Handler) == 0
}

// TellsState says whether f's runtime can tell the state of its streams, whoever is before it.
func (f Function) TellsState() bool {
	return f.Runtime.Kind == RuntimeEngine || f.Runtime.Kind == "" || f.Runtime.Kind == RuntimeVLLM
}

// Moves says whether an instance of f that gives way may end its requests so that they go on at another one.
func (f Function) Moves() bool {
	return (f.Runtime.Kind == RuntimeEngine || f.Runtime.Kind == "") && len(f.Handler) == 0
}
