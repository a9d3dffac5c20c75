package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/shim"
)

func (f *flags) define(cmd *cobra.Command) {
	s := cmd.Flags()
	s.StringVar(&f.spec, "spec", "", "`file` with the function as JSON; - is the standard input (default: $"+EnvFunction+")")
	s.StringVar((*string)(&f.function.Name), "function", "", "the function's `name`, NAMESPACE/NAME (default: $K_SERVICE, else default/function)")
	s.StringVar((*string)(&f.cfg.Instance), "instance", "", "the instance's `id` (default: $HOSTNAME)")
	s.StringVar((*string)(&f.cfg.Listen), "listen", "", "`address` to listen on: host:port, http://host:port or unix:/path; port 0 picks one (default: all addresses on $PORT where that is set, else 127.0.0.1:8080)")
	s.StringVar(&f.cfg.TokenFile, "token-file", "", "`file` with the control plane's bearer token; without one its paths are closed, unless --listen is a Unix socket")
	s.StringVar((*string)(&f.cfg.Events), "events", "", "`endpoint` that state changes are posted to (default: $"+EnvEvents+")")
	s.StringVar(&f.control, "control", "", "`endpoint` of the cluster's control plane, which says what to run; none: there is none (default, where $K_REVISION is set and no function is given as JSON: "+control.DefaultControlURL+")")
	s.StringVar(&f.namespace, "namespace", "", "the Kubernetes `namespace` of this pod (default: $POD_NAMESPACE, else what the pod knows)")
	s.StringVar(&f.cfg.Dir, "dir", "", "`folder` of its own for the engine's socket (default: a temporary one)")
	s.StringVar(&f.function.Runtime.Kind, "runtime", "", "runtime `kind`: "+strings.Join(api.RuntimeKinds, ", ")+" (default: command where one is given after --, else engine)")
	s.StringVar((*string)(&f.function.Runtime.Endpoint), "runtime-endpoint", "", "`endpoint` of a runtime that somebody else starts, such as http://127.0.0.1:8000")
	s.IntVar(&f.cfg.RuntimePort, "runtime-port", 0, "`port` on which a command listens whatever it is told (default: one that is free, which it is told as $PORT and $(PORT))")
	s.StringArrayVar(&f.cfg.ProbeCommand, "runtime-probe-command", nil, "`word` of a command that ends with success when a runtime of the kind http is ready; once for each word")
	s.StringVar(&f.cfg.ProbePath, "runtime-probe", "", "`path` that a runtime of the kind http answers with success when it is ready (default: that it takes connections is enough)")
	s.StringVar(&f.function.Runtime.Model, "model", "", "the model's `reference`: a path, a URL to fetch, or the runtime's own name for it")
	s.StringVar(&f.cfg.Models, "models", "", "`folder` that models are fetched into (default: $ROUSE_CACHE, else rouse/models in the user's cache)")
	s.StringVar(&f.modelsLimit, "models-limit", "", "what fetched models may take together, such as 200Gi (default: no bound)")
	s.StringVar(&f.cfg.Share.SecretFile, "share-secret-file", "", "`file` with a secret of 16 bytes at least; instances that have it fetch models' files from one another (default: $ROUSE_SHARE_SECRET_FILE, else nobody)")
	s.StringSliceVar(&f.cfg.Share.Peers, "share-peers", nil, "where the others are, as `host:port` separated by commas; a name stands for all its addresses (default: $ROUSE_SHARE_PEERS)")
	s.StringVar(&f.cfg.Share.Listen, "share-listen", "", "`address` where the others are answered (default: $ROUSE_SHARE_LISTEN, else 127.0.0.1:8013)")
	s.StringVar(&f.cfg.HubTokenFile, "hub-token-file", "", "`file` with the token for hf:// references")
	s.StringSliceVar(&f.adapters, "adapters", nil, "LoRA adapters to load at the start, as `name=path` separated by commas; a relative path counts from --adapter-root")
	s.StringVar(&f.function.Runtime.AdapterRoot, "adapter-root", "", "the only `folder` that LoRA adapters may lie in (default: none can be loaded)")
	s.StringSliceVar(&f.function.Runtime.MediaHosts, "media-hosts", nil, "`hosts` from which the runtime may fetch images, sounds and videos that requests name by URL, in lower case, separated by commas (default: none)")
	s.StringSliceVar(&f.handler, "handler", nil, "a `program` for pre- and post-processing and its arguments, separated by commas")
	s.StringVar((*string)(&f.function.Model), "served-model-name", "", "the `name` that clients use (default: the function's name)")
	s.BoolVar(&f.function.Runtime.Sleeps, "runtime-sleeps", false, "the command has vLLM's /sleep and /wake_up")
	s.StringVar(&f.cfg.Engine, "engine-binary", "", "`program` that has the subcommand \"engine serve\" (default: this one)")
	s.IntVar(&f.function.Concurrency, "concurrency", 0, "`requests` that the runtime takes at once (default: what its own options say, else by its kind)")
	s.StringSliceVar(&f.devices, "devices", nil, "`ids` of the devices it was given, separated by commas (default in a cluster: $NVIDIA_VISIBLE_DEVICES)")
	s.DurationVar(&f.function.StartTimeout, "start-timeout", 0, "bound of a start, to the first token (default 10m)")
	s.DurationVar(&f.cfg.Drain, "drain", 0, "how long requests may go on after SIGTERM (default 30s, in a cluster 4m)")
	s.DurationVar(&f.cfg.StopGrace, "stop-grace", 0, "time between SIGTERM and SIGKILL for the runtime (default 5s)")
	s.DurationVar(&f.cfg.ProbeInterval, "probe-interval", 0, "time between health probes of an idle runtime; negative: none (default 30s)")
	s.DurationVar(&f.cfg.ProbeTimeout, "probe-timeout", 0, "how long a health probe may take before the runtime counts as hung (default 30s)")
	s.BoolVar(&f.cfg.OpenMetrics, "open-metrics", false, "let everybody read /metrics, not only the control plane")
	s.StringVar(&f.cfg.MetricsListen, "metrics-listen", "", fmt.Sprintf("`address` where everybody may read /metrics and nothing else is, or none (default in a cluster :%d, elsewhere none)", control.FunctionMetricsPort))
	s.StringVar(&f.cfg.Workers, "workers", "", "`folder` that several functions of one host share to run one runtime between them")
	s.BoolVar(&f.shim, "shim", true, "let a process of its own be the runtime's parent, so that nothing is left if this one is killed (Linux; not as PID 1)")
	s.StringVar(&f.maxBody, "max-body", "", "largest body of a request, such as 64Mi (default 64Mi)")
	s.StringVar(&f.stopSignal, "stop-signal", "", "a further `signal` that ends it as SIGTERM does, such as SIGQUIT: the one that its image says it is stopped by")
	s.BoolVar(&f.quiet, "quiet", false, "don't copy the runtime's output to the error output")
	s.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
}

// build fills the configuration; changed reports whether a flag was given.
func (f *flags) build(args, env []string, changed func(string) bool) error {
	declared, err := readFunction(f.spec, env)
	if err != nil {
		return err
	}
	if err := f.lists(); err != nil {
		return err
	}
	if err := f.addresses(env); err != nil {
		return err
	}
	told := f.function
	f.function = overlay(declared, told, args, changed)
	for _, d := range f.devices {
		f.cfg.Devices = append(f.cfg.Devices, api.DeviceID(d))
	}
	if err := f.join(told, args, env, changed); err != nil {
		return err
	}
	switch at := f.cfg.MetricsListen; {
	case at == "" && f.cfg.Join != nil:
		f.cfg.MetricsListen = fmt.Sprintf(":%d", control.FunctionMetricsPort)
	case at == alone:
		f.cfg.MetricsListen = ""
	case at != "":
		if f.cfg.MetricsListen, err = api.ListenAddress(at); err != nil {
			return fmt.Errorf("--metrics-listen: %w", err)
		}
	}
	f.identity(env)
	f.cfg.Function = f.function
	if err := f.limits(); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, which is the engine too: %w; name it with --engine-binary", err)
	}
	if f.cfg.Engine == "" {
		f.cfg.Engine = self
	}
	if f.cfg.Workers != "" || f.shim && os.Getpid() != 1 {
		f.cfg.Keep = slices.Concat([]string{self}, f.path, shim.Args())
	}
	f.cfg.Diagnostics = process.Variable(env, "ENABLE_DIAGNOSTICS") == "true"
	for _, kv := range env {
		if name, _, _ := strings.Cut(kv, "="); name != EnvFunction { // it may hold secrets that the runtime must not see
			f.cfg.Env = append(f.cfg.Env, kv)
		}
	}
	f.cfg.OwnProcess = true
	return nil
}

// limits reads the flags that are sizes.
func (f *flags) limits() (err error) {
	if f.maxBody != "" {
		if f.cfg.MaxBody, err = api.ParseBytes(f.maxBody); err != nil {
			return fmt.Errorf("--max-body: %w", err)
		}
	}
	if f.modelsLimit != "" {
		if f.cfg.ModelsLimit, err = api.ParseBytes(f.modelsLimit); err != nil {
			return fmt.Errorf("--models-limit: %w", err)
		}
	}
	return nil
}

// lists reads the flags that are lists.
func (f *flags) lists() error {
	for _, pair := range f.adapters {
		name, path, found := strings.Cut(pair, "=")
		if !found || name == "" || path == "" {
			return fmt.Errorf("--adapters: %q: want name=path", pair)
		}
		f.function.Runtime.Adapters = append(f.function.Runtime.Adapters, api.Adapter{Name: api.ModelName(name), Path: path})
	}
	f.function.Handler = f.handler
	return nil
}

// overlay applies the command line to the declared function.
func overlay(declared, told api.Function, args []string, changed func(string) bool) api.Function {
	for name, set := range setters(&declared, &told) {
		if changed(name) {
			set()
		}
	}
	declared.Runtime = declared.Runtime.Behind(args)
	return declared
}

// identity fills in the function and instance from a Knative Service's environment.
func (f *flags) identity(env []string) {
	if f.function.Name == "" {
		f.function.Name = api.NewFunctionName("", cmp.Or(process.Variable(env, "K_SERVICE"), "function"))
	}
	if f.cfg.Instance == "" {
		f.cfg.Instance = api.InstanceID(cmp.Or(process.Variable(env, "HOSTNAME"), f.function.Name.Name()+"-"+strconv.Itoa(os.Getpid())))
	}
}

func (f *flags) addresses(env []string) error {
	listen, from := string(f.cfg.Listen), "--listen"
	if listen == "" {
		listen = "127.0.0.1:8080"
		if port := process.Variable(env, "PORT"); port != "" {
			listen, from = ":"+port, "$PORT"
		}
	}
	var err error
	if f.cfg.Listen, err = api.ParseListen(listen); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if f.cfg.Events == "" {
		f.cfg.Events = api.Endpoint(process.Variable(env, EnvEvents))
	}
	for _, a := range []struct {
		flag string
		e    *api.Endpoint
	}{{"--events or $" + EnvEvents, &f.cfg.Events}, {"--control", (*api.Endpoint)(&f.control)}, {"--runtime-endpoint", &f.function.Runtime.Endpoint}} {
		if *a.e == "" || *a.e == alone {
			continue
		}
		if *a.e, err = api.ParseEndpoint(string(*a.e)); err != nil {
			return fmt.Errorf("%s: %w", a.flag, err)
		}
	}
	return nil
}

// readFunction reads the JSON from a file or the environment, or returns a zero function.
func readFunction(file string, env []string) (api.Function, error) {
	var fn api.Function
	source, in := "$"+EnvFunction, io.Reader(strings.NewReader(process.Variable(env, EnvFunction)))
	switch file {
	case "":
		if process.Variable(env, EnvFunction) == "" {
			return fn, nil
		}
	case "-":
		source, in = "the standard input", os.Stdin
	default:
		opened, err := os.Open(file)
		if err != nil {
			return fn, fmt.Errorf("--spec: %w", err)
		}
		defer opened.Close()
		source, in = file, opened
	}
	decoder := json.NewDecoder(in)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&fn); err != nil {
		return fn, fmt.Errorf("read the function from %s: %w", source, err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return fn, fmt.Errorf("read the function from %s: something follows the JSON of the function: remove it", source)
	}
	return fn, nil
}

// setters returns functions that copy each flag's field from given to declared.
func setters(declared, given *api.Function) map[string]func() {
	return map[string]func(){
		"function":          func() { declared.Name = given.Name },
		"runtime":           func() { declared.Runtime.Kind = given.Runtime.Kind },
		"model":             func() { declared.Runtime.Model = given.Runtime.Model },
		"runtime-endpoint":  func() { declared.Runtime.Endpoint = given.Runtime.Endpoint },
		"adapters":          func() { declared.Runtime.Adapters = given.Runtime.Adapters },
		"adapter-root":      func() { declared.Runtime.AdapterRoot = given.Runtime.AdapterRoot },
		"media-hosts":       func() { declared.Runtime.MediaHosts = given.Runtime.MediaHosts },
		"handler":           func() { declared.Handler = given.Handler },
		"served-model-name": func() { declared.Model = given.Model },
		"runtime-sleeps":    func() { declared.Runtime.Sleeps = given.Runtime.Sleeps },
		"concurrency":       func() { declared.Concurrency, declared.ConcurrencyBy = given.Concurrency, "" },
		"start-timeout":     func() { declared.StartTimeout = given.StartTimeout },
	}
}
