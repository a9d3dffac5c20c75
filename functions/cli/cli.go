// Package cli is the command line of one instance: flags and environment make a
// [functions.Config], signals end it. cmd/function and "rouse function" are both
// this command.
//
// What is to run is given in one of two ways: whole, as the JSON of an
// [api.Function] in a file (--spec) or in the environment variable
// ROUSE_FUNCTION, which keeps secrets out of the argument list; or by flags,
// which also win over the JSON, with the runtime's command after "--".
//
// Signals: the first SIGTERM or SIGINT drains and ends the runtime, a second one
// ends it at once. With --exit-with-parent, a SIGTERM after the parent has died
// ends it at once too.
//
// With --standby the process starts ahead of its instance: it waits for an
// [Order] on its standard input and goes on as if it had been started with that.
package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions"
	"github.com/rouse-dev/rouse/functions/process"
)

// Environment variables.
const (
	EnvFunction = "ROUSE_FUNCTION" // the JSON of an api.Function
	EnvEvents   = "ROUSE_EVENTS"   // the endpoint that state changes are posted to
)

// flags are the command line.
type flags struct {
	cfg            functions.Config
	spec, logLevel string
	function       api.Function
	maxBody        string
	devices        []string
	exitWithParent bool
	quiet          bool
	standby        bool
}

// Command makes the command. It writes "listening on ENDPOINT" to its output
// once it takes requests, and everything else to its error output.
func Command() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "function --function NAMESPACE/NAME --instance ID --listen ENDPOINT [flags] [-- COMMAND ARGS…]",
		Short: "Run one instance of a function: a model server as a child process, and the one door to it",
		Long: `Run one instance of a function: start its model server as a child process, serve
clients' requests and the control plane's calls, and report each change of state.

The server is Rouse's own engine (--runtime engine --model FILE) or any command that
serves the OpenAI API on 127.0.0.1 (--runtime command -- COMMAND ARGS…); $(PORT) in the
command becomes the port. With --runtime engine, what stands after -- goes to the engine.`,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.standby {
				return standby(cmd)
			}
			if err := f.build(args, os.Environ(), cmd.Flags().Changed); err != nil {
				return err
			}
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.define(cmd)
	return cmd
}

func (f *flags) define(cmd *cobra.Command) {
	s := cmd.Flags()
	s.StringVar(&f.spec, "spec", "", "`file` with the function as JSON; - is the standard input (default: $"+EnvFunction+")")
	s.StringVar((*string)(&f.function.Name), "function", "", "the function's `name`, NAMESPACE/NAME")
	s.StringVar((*string)(&f.cfg.Instance), "instance", "", "the instance's `id`")
	s.StringVar((*string)(&f.cfg.Listen), "listen", "", "`endpoint` to listen on: unix:/path or http://host:port")
	s.StringVar(&f.cfg.TokenFile, "token-file", "", "`file` with the control plane's bearer token; needed unless --listen is a Unix socket")
	s.StringVar((*string)(&f.cfg.Events), "events", "", "`endpoint` that state changes are posted to (default: $"+EnvEvents+")")
	s.StringVar(&f.cfg.Dir, "dir", "", "`folder` of its own for the engine's socket (default: a temporary one)")
	s.StringVar(&f.function.Runtime.Kind, "runtime", "", "runtime `kind`: engine or command (default: command where one is given after --, else engine)")
	s.StringVar(&f.function.Runtime.Model, "model", "", "the model's `reference`: pico or the path of a GGUF file; for a command, its own name for the model")
	s.StringVar((*string)(&f.function.Model), "served-model-name", "", "the `name` that clients use (default: the function's name)")
	s.BoolVar(&f.function.Runtime.Sleeps, "runtime-sleeps", false, "the command has vLLM's /sleep and /wake_up")
	s.StringVar(&f.cfg.Engine, "engine-binary", "", "`program` that has the subcommand \"engine serve\" (default: this one)")
	s.IntVar(&f.function.Concurrency, "concurrency", 0, "`requests` that the runtime takes at once (default 8)")
	s.StringSliceVar(&f.devices, "devices", nil, "`ids` of the devices it was given, separated by commas")
	s.Uint64Var(&f.cfg.Epoch, "epoch", 0, "`epoch` of the grant it was started under")
	s.DurationVar(&f.function.StartTimeout, "start-timeout", 0, "bound of a start, to the first token (default 10m)")
	s.DurationVar(&f.function.WakeTimeout, "wake-timeout", 0, "bound of a wake, to the first token (default 1m)")
	s.DurationVar(&f.function.RequestTimeout, "request-timeout", 0, "bound of a request (default: none)")
	s.DurationVar(&f.cfg.Drain, "drain", 0, "how long requests may go on after SIGTERM (default 30s)")
	s.DurationVar(&f.cfg.StopGrace, "stop-grace", 0, "time between SIGTERM and SIGKILL for the runtime (default 5s)")
	s.DurationVar(&f.cfg.ProbeInterval, "probe-interval", 0, "time between health probes of an idle runtime; negative: none (default 30s)")
	s.DurationVar(&f.cfg.ProbeTimeout, "probe-timeout", 0, "how long a health probe may take before the runtime counts as hung (default 30s)")
	s.StringVar(&f.maxBody, "max-body", "", "largest body of a request, such as 64Mi (default 64Mi)")
	s.BoolVar(&f.exitWithParent, "exit-with-parent", false, "end, with the runtime, as soon as the parent process dies (Linux)")
	s.BoolVar(&f.standby, "standby", false, "wait for the rest of the command line and the environment on the standard input, as JSON")
	s.BoolVar(&f.quiet, "quiet", false, "don't copy the runtime's output to the error output")
	s.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
}

// build fills the configuration; changed says which flags were given.
func (f *flags) build(args, env []string, changed func(string) bool) error {
	declared, err := readFunction(f.spec, env)
	if err != nil {
		return err
	}
	f.function = merge(declared, f.function, changed)
	switch {
	case len(args) > 0 && changed("runtime") && f.function.Runtime.Kind == api.RuntimeEngine:
		f.function.Runtime.Args = args
	case len(args) > 0:
		f.function.Runtime.Command, f.function.Runtime.Args = args, nil
		if !changed("runtime") {
			f.function.Runtime.Kind = api.RuntimeCommand
		}
	}
	f.cfg.Function = f.function
	for _, d := range f.devices {
		f.cfg.Devices = append(f.cfg.Devices, api.DeviceID(d))
	}
	if f.maxBody != "" {
		if f.cfg.MaxBody, err = api.ParseBytes(f.maxBody); err != nil {
			return fmt.Errorf("--max-body: %w", err)
		}
	}
	if f.cfg.Engine == "" {
		if f.cfg.Engine, err = os.Executable(); err != nil {
			return fmt.Errorf("find this program, which is the engine too: %w; name it with --engine-binary", err)
		}
	}
	if f.cfg.Events == "" {
		f.cfg.Events = api.Endpoint(lookUp(env, EnvEvents))
	}
	for _, kv := range env {
		if name, _, _ := strings.Cut(kv, "="); name != EnvFunction { // it may hold secrets that are not the runtime's
			f.cfg.Env = append(f.cfg.Env, kv)
		}
	}
	f.cfg.OwnProcess = true
	return nil
}

func lookUp(env []string, name string) string {
	value := ""
	for _, kv := range env {
		if v, found := strings.CutPrefix(kv, name+"="); found {
			value = v
		}
	}
	return value
}

// readFunction reads the JSON, from a file or the environment; neither is a zero function.
func readFunction(file string, env []string) (api.Function, error) {
	var fn api.Function
	source, in := "$"+EnvFunction, io.Reader(strings.NewReader(lookUp(env, EnvFunction)))
	switch file {
	case "":
		if lookUp(env, EnvFunction) == "" {
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
	return fn, nil
}

// merge puts the flags that were given over what was declared.
func merge(declared, given api.Function, changed func(string) bool) api.Function {
	for name, set := range map[string]func(){
		"function":          func() { declared.Name = given.Name },
		"runtime":           func() { declared.Runtime.Kind = given.Runtime.Kind },
		"model":             func() { declared.Runtime.Model = given.Runtime.Model },
		"served-model-name": func() { declared.Model = given.Model },
		"runtime-sleeps":    func() { declared.Runtime.Sleeps = given.Runtime.Sleeps },
		"concurrency":       func() { declared.Concurrency = given.Concurrency },
		"start-timeout":     func() { declared.StartTimeout = given.StartTimeout },
		"wake-timeout":      func() { declared.WakeTimeout = given.WakeTimeout },
		"request-timeout":   func() { declared.RequestTimeout = given.RequestTimeout },
	} {
		if changed(name) {
			set()
		}
	}
	return declared
}

// gcPercent lets the heap, which is a few MiB, grow to five times what is in use
// before it is collected: that costs some MiB and saves a fifth of a request's
// processor time. $GOGC wins.
const gcPercent = 400

// run runs the instance until it has ended.
func (f *flags) run(ctx context.Context, stdout, stderr io.Writer) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return fmt.Errorf("--log-level: %w: want debug, info, warn or error", err)
	}
	f.cfg.Logger = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level})).With("instance", f.cfg.Instance)
	if !f.quiet {
		f.cfg.Output = stderr
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	f.cfg.Listening = func(e api.Endpoint) { fmt.Fprintln(stdout, "listening on", e) }

	parent := os.Getppid()
	signals := make(chan os.Signal, 2) // from the runtime; two places: the second signal must not be lost
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	if f.exitWithParent {
		alive, err := process.DieWithParent(syscall.SIGTERM)
		if err != nil {
			return fmt.Errorf("--exit-with-parent: %w", err)
		}
		if !alive {
			return fmt.Errorf("--exit-with-parent: the parent process %d has died already", parent)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	kill := make(chan struct{})
	f.cfg.Kill = kill
	ended := make(chan struct{})
	listened := make(chan struct{})
	go func() {
		defer close(listened)
		orphaned := func() bool { return f.exitWithParent && os.Getppid() != parent }
		if heed(signals, ended, cancel, orphaned) {
			close(kill)
		}
	}()
	err := functions.Run(ctx, f.cfg)
	close(ended)
	<-listened
	cancel()
	return err
}

// heed waits for signals; true: the runtime is to be killed.
func heed(signals <-chan os.Signal, ended <-chan struct{}, drain func(), orphaned func() bool) bool {
	for first := true; ; first = false {
		select {
		case <-signals:
			if !first || orphaned() {
				return true
			}
			drain()
		case <-ended:
			return false
		}
	}
}
