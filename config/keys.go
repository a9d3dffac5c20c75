package config

import (
	"math"
	"strconv"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Key is an annotation of the revision template, with its documentation.
type Key struct {
	Name, Default, Doc string

	field
}

// text returns the value that sets the field again.
type field struct {
	read func(value string) error
	text func() string
}

const (
	annotationAliases         = "rouse.dev/aliases"
	annotationAdapterRoot     = "rouse.dev/adapter-root"
	annotationVariantOf       = "rouse.dev/variant-of"
	annotationCredentials     = "rouse.dev/client-credentials"
	annotationActivationScale = "autoscaling.knative.dev/activation-scale"
)

// Bounds of [api.Function.RemoveAfter].
const (
	leastRemoveAfter = time.Second
	mostRemoveAfter  = 720 * time.Hour
)

type target api.Function

// Keys lists all keys in the order of docs/keys.md, which is generated from it.
func Keys(function *api.Function) []Key {
	f := (*target)(function)
	return []Key{
		{AnnotationRuntime, api.RuntimeEngine + ", or " + api.RuntimeCommand + " where the container has a command", "what an instance runs: `engine` (Rouse's own, on a GGUF file), `vllm`, `sglang`, `ollama`, `llamacpp` (llama-server), `ray-serve`, or `command` (any OpenAI-compatible server, started by the container's command and args; `$(SOCKET)` in them is the Unix socket that it must listen on, or `$(PORT)` the port), or `http` (any HTTP server, started as a command is; it is no model server, and all of its paths are its clients')", text(&f.Runtime.Kind)},
		{AnnotationModel, "the environment variable " + EnvModel, "the model's reference: `pico` (ships with Rouse), a path (a relative one counts from the manifest's folder), a URL that is fetched before the start (`https://`, `hf://org/name`, `oci://`, `s3://`, `ollama://name:tag`), or the runtime's own name for a model", text(&f.Runtime.Model)},
		{AnnotationEndpoint, "none: the instance starts its runtime", "where a runtime listens that somebody else starts: a sidecar container of the pod, or a server that runs already, such as `http://127.0.0.1:11434`", parsed(&f.Runtime.Endpoint, api.ParseEndpoint)},
		{AnnotationAdapters, "none", "LoRA adapters to load at the start, as `name=path` separated by commas; a relative path counts from rouse.dev/adapter-root. A change of it restarts no instance if the runtime takes adapters while it runs. In a cluster write it among the annotations of the Service itself (not of its template): it then overrides the annotation of its revisions, and a change makes no new revision", field{f.setAdapters, func() string { return AdapterList(f.Runtime.Adapters) }}},
		{annotationAdapterRoot, "none: adapters can't be loaded", "the only folder that LoRA adapters may lie in", text(&f.Runtime.AdapterRoot)},
		{"rouse.dev/handler", "none", "a program for pre- and post-processing, as words or as a JSON list: requests go through it; it listens on `$PORT` and finds the runtime at `$ROUSE_RUNTIME_URL` (docs/functions-inside.md)", field{f.setHandler, f.handler}},
		{AnnotationServedName, "the Service's name", "the name that clients write in the field `model`; of services that want one name the oldest has it, and `NAMESPACE/NAME` always means the Service itself", parsed(&f.Model, oneName)},
		{annotationAliases, "none", "further names for the same model, separated by commas; one with the prefix of another namespace is refused", parsedList(&f.Aliases, alias)},
		{AnnotationMemory, "the container's memory request, else learned from the instance", "host memory that one awake instance needs, such as `512Mi`", size(&f.Memory.Host)},
		{AnnotationDeviceMemory, "what the runtime's options say (vLLM: 0.9 of it), else what was measured, at first the whole device", "memory that one awake instance needs on each GPU (their number is the container's limit `nvidia.com/gpu`, `amd.com/gpu`, `gpu.intel.com/i915` or `gpu.intel.com/xe`)", size(&f.Memory.PerDevice)},
		{AnnotationSleepAfter, DefaultSleepAfter.String(), "idle time after which an awake instance goes to sleep, or earlier where its requests say that the next one will hardly come before that; `0` keeps it awake", duration(&f.SleepAfter)},
		{"rouse.dev/sleep-level", "1, or 2 where a sleep and the wake after it were measured to take a fifth less there", "how deep: `1` keeps the weights in host memory, `2` drops them", field{f.setSleepLevel, f.sleepLevel}},
		{"rouse.dev/suspend", api.SuspendAuto, "whether the driver takes the whole process off its GPU, so that a sleeper keeps nothing there: `auto` where a first try has shown that it works and others need the memory, `on` at each sleep, `off`", choice(&f.Suspend, api.SuspendAuto, api.SuspendOn, api.SuspendOff)},
		{AnnotationUnloadAfter, DefaultUnloadAfter.String(), "time asleep after which the instance is stopped, or later where it is usually wanted at that hour; `0` keeps it asleep", duration(&f.UnloadAfter)},
		{"rouse.dev/prewake", "true", "whether it is woken or started before a request comes, where the times of its requests say when the next one will; `false`: only for requests that are there", oneOf(&f.NoPrewake, "true", "false")},
		{"rouse.dev/rehearse", api.RehearseMeasured, "whether an instance is put to sleep for a moment, and woken, while nobody waits for it, so that its first sleep, which is slow for some model servers, falls on nobody: `measured` where it was measured to be slow, `always` where that is not known, too, `never`", choice(&f.Rehearse, api.RehearseMeasured, api.RehearseAlways, api.RehearseNever)},
		{"rouse.dev/runtime-sleeps", "false", "`true` where a command has vLLM's `/sleep` and `/wake_up`; otherwise its sleep is a stop of the process", parsed(&f.Runtime.Sleeps, truth)},
		{"rouse.dev/reuse-connections", "true; a command's start finds out", "`true` lets a connection to the model server carry further requests, `false` gives each request its own. Without it a command reuses them once it has answered on a second connection while a first, used one was idle; every other runtime does", field{f.setReuse, f.reuse}},
		{"rouse.dev/hold-capacity", "1000", "requests that may wait for the function", count(1, &f.Hold.Capacity)},
		{"rouse.dev/hold-memory", "256Mi", "memory that the bodies of waiting requests may take", size(&f.Hold.MaxBytes)},
		{AnnotationHoldTimeout, "5m", "how long a request may wait", positive(&f.Hold.Timeout)},
		{"rouse.dev/snapshot", "off", "`auto`: where CRIU 4 or newer is installed and permitted, and the function has no GPU, its process is kept on the node's disk, and starts that are faster from there begin with it. The files hold the process's memory (docs/security.md)", oneOf(&f.Snapshot, "off", "auto")},
		{"rouse.dev/evict-sheddable", "false", "`true` ends a request with a priority below 0 that runs where one of 0 or more finds no free slot: it gets 429 `evicted`, and a stream an error event", oneOf(&f.Hold.EvictSheddable, "false", "true")},
		{AnnotationStartTimeout, "10m", "how long a start may take, until the first generated token", positive(&f.StartTimeout)},
		{"rouse.dev/wake-timeout", "1m", "how long a wake may take, until the first generated token", positive(&f.WakeTimeout)},
		{AnnotationRequestTimeout, "the revision's timeoutSeconds; in a cluster 300 counts as not set, because Knative writes that where there is none", "how long a request may take from its dispatch to the last byte; `0` is no bound", duration(&f.RequestTimeout)},
		{AnnotationFirstByteTimeout, "the revision's responseStartTimeoutSeconds (300 as above), or idleTimeoutSeconds where that is less", "how long a request may take from its dispatch to the first byte of the answer", duration(&f.FirstByteTimeout)},
		{AnnotationIdleTimeout, "the revision's idleTimeoutSeconds", "how long an answer may pause between two pieces", duration(&f.IdleTimeout)},
		{AnnotationPriority, "0", "decides between functions that want the same memory; higher wins. In a cluster at most what the namespace's annotation `rouse.dev/max-priority` says (0)", parsed(&f.Priority, number)},
		{"rouse.dev/target-ttft", "none", "time to first token to hold to: another instance comes to help before it is passed", duration(&f.Target.TTFT)},
		{"rouse.dev/cost", "1 for each GPU", "price of one awake instance for an hour, in any unit; among variants of a model the cheapest that holds to the target is used", parsed(&f.Cost, price)},
		{annotationVariantOf, "none", "the model that this function is one of several ways to run: requests for that name go to any of its variants", parsed(&f.VariantOf, oneName)},
		{"rouse.dev/fallback", "none", "models, separated by commas, that answer in its place, the first that can: where the request finds no capacity in time, no place to wait, or a start that failed, before the first byte of an answer. The key of the request must allow them; the header `Rouse-Fallback` of the answer says which it was, and why", parsedList(&f.Fallback, fallback)},
		{AnnotationDualPods, "false", "`true` where GPUs are claimed by one pod and used by another that outlives it asleep (docs/functions-cluster.md); clusters only", parsed(&f.DualPods, truth)},
		{AnnotationProviderPatch, "none", "JSON in the shape of a pod: labels, and by container args, env and resources, of the pod that runs the model where it differs from the one that claims the GPUs", parsed(&f.ProviderPatch, providerPatch)},
		{"rouse.dev/canary-tokens", "4 for vllm and sglang, else 1", "tokens of a fixed prompt that are compared after each wake with those before the first sleep; on a difference the weights are loaded again; `0` compares none", field{f.setCanaryTokens, f.canaryTokens}},
		{annotationCredentials, "drop, or pass for the runtime http", "`pass` hands a client's `Authorization`, `Cookie` and API keys to the model server, which sees who its clients are and can act as them; `drop` keeps them from it", oneOf(&f.PassCredentials, "drop", "pass")},
		{AnnotationMediaHosts, "none: nothing is fetched", "the hosts, separated by commas, from which the model server may fetch images, sounds and videos that requests name by URL, such as `images.example.com`; with `:port` where that is not the scheme's own. Without it clients send them as `data:` URLs (docs/security.md)", parsedList(&f.Runtime.MediaHosts, mediaHost)},
		{"rouse.dev/prefix-cache", "client", "who shares the computed beginnings of prompts: `client`, each with itself only, so that nobody learns from times or counts of cached tokens what others ask; `shared`, all clients of the function", oneOf(&f.SharedPrefixes, "client", "shared")},
		{AnnotationClusters, "none: it runs where it is declared", "at a front door of clusters: a selector of their labels, such as `gpu in (h100, h200), tier != spare` (`rouse.dev/cluster` is a cluster's name). The function is created in one of them that fits while its request waits (docs/clusters.md)", text(&f.Clusters)},
		{AnnotationRemoveAfter, api.DefaultRemoveAfter.String(), "how long a function that a front door had created in a cluster is unloaded there before it is removed; `" + leastRemoveAfter.String() + "` to `" + mostRemoveAfter.String() + "`", lasting(leastRemoveAfter, mostRemoveAfter, "a duration from "+leastRemoveAfter.String()+" to "+mostRemoveAfter.String(), &f.RemoveAfter)},
		{AnnotationRegions, "any", "at a front door of clusters: the regions, separated by commas, that the function's requests may be sent to (docs/clusters.md)", field{f.setRegions, joined(&f.Regions)}},
		{AnnotationInject, "as the image says", "whether the function is brought into the container's image, where a cluster has the component any-image: `true` says that the image has none, `false` that it has (docs/functions-cluster.md)", oneOf(new(bool), "true", "false")},
		{AnnotationMinScale, "0", "instances that stay awake. In a cluster at most what the namespace's annotation `rouse.dev/max-min-scale` says (10)", count(0, &f.MinScale)},
		{AnnotationMaxScale, "1, or in a cluster what config-autoscaler says", "instances that may be awake; `0` is no bound", field{f.setMaxScale, func() string { return strconv.Itoa(f.MaxScale % math.MaxInt32) }}},
		{annotationActivationScale, "1", "instances that the first request after none was awake brings up", count(1, &f.ActivationScale)},
	}
}
