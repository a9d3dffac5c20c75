package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/shim"
	"github.com/rouse-dev/rouse/internal/flagset"
)

func (f *flags) define(cmd *cobra.Command) {
	s := cmd.Flags()
	f.Given, f.Shim, f.LogLevel = fieldsOf(&f.function), true, "info"
	flagset.Add(s, f)
	s.Lookup("runtime").Usage += strings.Join(api.RuntimeKinds, ", ") + " (default: command where one is given after --, else engine)"
	s.StringVar(&f.control, "control", "", "`endpoint` of the cluster's control plane, which says what to run; none: there is none (default, where $K_REVISION is set and no function is given as JSON: "+control.DefaultControlURL+")")
	s.StringVar(&f.Cfg.MetricsListen, "metrics-listen", "", fmt.Sprintf("`address` where everybody may read /metrics and nothing else is, or none (default in a cluster :%d, elsewhere none)", control.FunctionMetricsPort))
}

func (f *flags) build(args, env []string, changed func(string) bool) error {
	declared, err := readFunction(f.Spec, env)
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
	for _, d := range f.Devices {
		f.Cfg.Devices = append(f.Cfg.Devices, api.DeviceID(d))
	}
	if err := f.join(told, args, env, changed); err != nil {
		return err
	}
	switch at := f.Cfg.MetricsListen; {
	case at == "" && f.Cfg.Join != nil:
		f.Cfg.MetricsListen = fmt.Sprintf(":%d", control.FunctionMetricsPort)
	case at == alone:
		f.Cfg.MetricsListen = ""
	case at != "":
		if f.Cfg.MetricsListen, err = api.ListenAddress(at); err != nil {
			return fmt.Errorf("--metrics-listen: %w", err)
		}
	}
	f.identity(env)
	f.Cfg.Function = f.function
	if err := f.limits(); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, which is the engine too: %w; name it with --engine-binary", err)
	}
	if f.Cfg.Engine == "" {
		f.Cfg.Engine = self
	}
	if f.Cfg.Workers != "" || f.Shim && os.Getpid() != 1 {
		f.Cfg.Keep = slices.Concat([]string{self}, f.path, shim.Args())
	}
	f.Cfg.Diagnostics = process.Variable(env, "ENABLE_DIAGNOSTICS") == "true"
	for _, kv := range env {
		if name, _, _ := strings.Cut(kv, "="); name != EnvFunction { // it may hold secrets that the runtime must not see
			f.Cfg.Env = append(f.Cfg.Env, kv)
		}
	}
	f.Cfg.OwnProcess = true
	return nil
}

func (f *flags) limits() (err error) {
	if f.MaxBody != "" {
		if f.Cfg.MaxBody, err = api.ParseBytes(f.MaxBody); err != nil {
			return fmt.Errorf("--max-body: %w", err)
		}
	}
	if f.ModelsLimit != "" {
		if f.Cfg.ModelsLimit, err = api.ParseBytes(f.ModelsLimit); err != nil {
			return fmt.Errorf("--models-limit: %w", err)
		}
	}
	return nil
}

func (f *flags) lists() error {
	for _, pair := range f.Adapters {
		name, path, found := strings.Cut(pair, "=")
		if !found || name == "" || path == "" {
			return fmt.Errorf("--adapters: %q: want name=path", pair)
		}
		f.function.Runtime.Adapters = append(f.function.Runtime.Adapters, api.Adapter{Name: api.ModelName(name), Path: path})
	}
	return nil
}

func overlay(declared, told api.Function, args []string, changed func(string) bool) api.Function {
	from := reflect.ValueOf(fieldsOf(&told))
	for f, to := range reflect.ValueOf(fieldsOf(&declared)).Fields() {
		if changed(f.Tag.Get("flag")) {
			to.Elem().Set(from.FieldByIndex(f.Index).Elem())
		}
	}
	if changed("adapters") {
		declared.Runtime.Adapters = told.Runtime.Adapters
	}
	if changed("concurrency") {
		declared.ConcurrencyBy = ""
	}
	declared.Runtime = declared.Runtime.Behind(args)
	return declared
}

func (f *flags) identity(env []string) {
	if f.function.Name == "" {
		f.function.Name = api.NewFunctionName("", cmp.Or(process.Variable(env, "K_SERVICE"), "function"))
	}
	if f.Cfg.Instance == "" {
		f.Cfg.Instance = api.InstanceID(cmp.Or(f.pod.Name, process.Variable(env, "HOSTNAME"), f.function.Name.Name()+"-"+strconv.Itoa(os.Getpid())))
	}
}

func (f *flags) addresses(env []string) error {
	listen, from := string(f.Cfg.Listen), "--listen"
	if listen == "" {
		listen = "127.0.0.1:8080"
		if port := process.Variable(env, "PORT"); port != "" {
			listen, from = ":"+port, "$PORT"
		}
	}
	var err error
	if f.Cfg.Listen, err = api.ParseListen(listen); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if f.Cfg.Events == "" {
		f.Cfg.Events = api.Endpoint(process.Variable(env, EnvEvents))
	}
	for _, a := range []struct {
		flag string
		e    *api.Endpoint
	}{{"--events or $" + EnvEvents, &f.Cfg.Events}, {"--control", (*api.Endpoint)(&f.control)}, {"--runtime-endpoint", &f.function.Runtime.Endpoint}} {
		if *a.e == "" || *a.e == alone {
			continue
		}
		if *a.e, err = api.ParseEndpoint(string(*a.e)); err != nil {
			return fmt.Errorf("%s: %w", a.flag, err)
		}
	}
	return nil
}

// readFunction returns a zero function if there is no JSON.
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
	if err := api.Decode(in, &fn); err != nil {
		return fn, fmt.Errorf("read the function from %s: %w", source, err)
	}
	return fn, nil
}

type fields struct {
	Name        *api.FunctionName `flag:"function" help:"the function's <name>, NAMESPACE/NAME (default: $K_SERVICE, else default/function)"`
	Kind        *string           `flag:"runtime" help:"runtime <kind>: "`
	Endpoint    *api.Endpoint     `flag:"runtime-endpoint" help:"<endpoint> of a runtime that somebody else starts, such as http://127.0.0.1:8000"`
	Ref         *string           `flag:"model" help:"the model's <reference>: a path, a URL to fetch, or the runtime's own name for it"`
	AdapterRoot *string           `flag:"adapter-root" help:"the only <folder> that LoRA adapters may lie in (default: none can be loaded)"`
	MediaHosts  *[]string         `flag:"media-hosts" split:"" help:"<hosts> from which the runtime may fetch images, sounds and videos that requests name by URL, in lower case, separated by commas (default: none)"`
	Handler     *[]string         `flag:"handler" split:"" help:"a <program> for pre- and post-processing and its arguments, separated by commas"`
	Model       *api.ModelName    `flag:"served-model-name" help:"the <name> that clients use (default: the function's name)"`
	Sleeps      *bool             `flag:"runtime-sleeps" help:"the command has vLLM's /sleep and /wake_up"`
	Concurrency *int              `flag:"concurrency" least:"1" help:"<requests> that the runtime takes at once (default: what its own options say, else by its kind)"`
	Timeout     *time.Duration    `flag:"start-timeout" least:"1ms" help:"bound of a start, to the first token (default 10m)"`
}

func fieldsOf(f *api.Function) fields {
	r := &f.Runtime
	return fields{&f.Name, &r.Kind, &r.Endpoint, &r.Model, &r.AdapterRoot, &r.MediaHosts, &f.Handler, &f.Model, &r.Sleeps, &f.Concurrency, &f.StartTimeout}
}
