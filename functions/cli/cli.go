// Package cli is the command line of one instance: flags and environment variables give a [functions.Config], and signals end the
// instance.
//
// The function is given by the JSON of an [api.Function], in a file (--spec) or in ROUSE_FUNCTION, or by flags, which also override the
// JSON, with the runtime's command and options after "--". Each flag has a variable too, ROUSE_MODEL for --model, which the flag
// overrides. In a Knative Service the name, the instance and the port come from K_SERVICE, the pod or HOSTNAME, and PORT.
//
// In the pod of a Knative revision (K_REVISION) the instance asks the cluster's control plane (--control) for its function instead. Flags
// override the answer, and so do variables, except ROUSE_RUNTIME and ROUSE_MODEL, which annotations override.
package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions"
)

const (
	EnvFunction = "ROUSE_FUNCTION"
	EnvEvents   = "ROUSE_EVENTS"
)

// Version is the answer of /version; the linker sets it.
var Version = "dev"

type flags struct {
	Cfg         functions.Config
	Given       fields
	Spec        string   `flag:"spec" help:"<file> with the function as JSON; - is the standard input (default: $ROUSE_FUNCTION)"`
	LogLevel    string   `flag:"log-level" help:"debug, info, warn or error"`
	MaxBody     string   `flag:"max-body" help:"largest body of a request, such as 64Mi (default 64Mi)"`
	ModelsLimit string   `flag:"models-limit" help:"what fetched models may take together, such as 200Gi (default: no bound)"`
	Devices     []string `flag:"devices" split:"" help:"<ids> of the devices it was given, separated by commas (default in a cluster: $NVIDIA_VISIBLE_DEVICES)"`
	Adapters    []string `flag:"adapters" split:"" help:"LoRA adapters to load at the start, as <name=path> separated by commas; a relative path counts from --adapter-root"`
	Shim        bool     `flag:"shim" help:"let a process of its own be the runtime's parent, so that nothing is left if this one is killed (Linux; not as PID 1)"`
	Quiet       bool     `flag:"quiet" help:"don't copy the runtime's output to the error output"`
	StopSignal  string   `flag:"stop-signal" help:"a further <signal> that ends it as SIGTERM does, such as SIGQUIT: the one that its image says it is stopped by"`
	Namespace   string   `flag:"namespace" help:"the Kubernetes <namespace> of this pod (default: what the pod knows, else $POD_NAMESPACE)"`

	function api.Function
	pod      functions.Pod
	path     []string // of this command in its program
	control  string
	fromEnv  map[string]bool // flags that a variable has set
}

// Command returns the command. It writes "listening on ENDPOINT" to its output once it accepts requests.
func Command() *cobra.Command { return command(nil) }

// Main is a whole program: it runs the command with the process's arguments, and exits after an error. wrap adds pre- and post-processing
// around the handler of the clients' requests (docs/functions-inside.md); nil: none.
func Main(wrap func(next http.Handler) http.Handler) {
	cmd := command(wrap)
	if err := cmd.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "function:", err)
		os.Exit(1)
	}
}

func command(wrap func(http.Handler) http.Handler) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "function [flags] [-- [COMMAND] [OPTIONS…]]",
		Short: "Run one instance of a function: a model server, and the one door to it",
		Long: `Run one instance of a function: start its model server as a child process, serve
clients' requests and the control plane's calls, and report each change of state.

The model server is one of these (--runtime):

  engine      Rouse's own engine, on a GGUF file
  vllm        vllm serve
  sglang      python3 -m sglang.launch_server
  ollama      ollama serve
  llamacpp    llama-server of llama.cpp
  ray-serve   an application of Ray Serve
  command     any command that serves the OpenAI API on the Unix socket $(SOCKET), or on port $(PORT) of 127.0.0.1
  http        any command that serves HTTP on port $(PORT); it need not know of models

What stands after -- are its own options; words before the first option replace the
program that is started. --runtime-endpoint attaches to a server that somebody else
starts: a sidecar container, or one that runs already.

The model (--model) is a path, a URL that is fetched before the start (https, hf, oci,
s3, ollama), or the server's own name for a model.`,
		Example: `  rouse function --runtime vllm --model Qwen/Qwen3-0.6B -- --max-model-len 8192
  rouse function --runtime ollama --model qwen2.5:0.5b --listen http://127.0.0.1:8080
  rouse function --runtime llamacpp --model hf://Qwen/Qwen2.5-0.5B-Instruct-GGUF/qwen2.5-0.5b-instruct-q8_0.gguf
  rouse function --runtime command -- python3 server.py --port '$(PORT)'`,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.fromEnvironment(cmd.Flags(), os.Environ()); err != nil {
				return err
			}
			f.pod, f.path = functions.ThisPod(), strings.Fields(cmd.CommandPath())[1:]
			if err := f.build(args, os.Environ(), cmd.Flags().Changed); err != nil {
				return err
			}
			f.Cfg.Wrap, f.Cfg.Version = wrap, Version
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.define(cmd)
	cmd.Args = cobra.ArbitraryArgs // else words behind -- are looked up as subcommands
	cmd.AddCommand(keepCommand(), installCommand(), probeCommand())
	cmd.CompletionOptions.DisableDefaultCmd = true
	return cmd
}

// gcPercent lets the heap of a few MiB grow to five times its live size: that saves a fifth of a request's processor time. $GOGC wins.
const gcPercent = 400

func (f *flags) run(ctx context.Context, stdout, stderr io.Writer) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.LogLevel)); err != nil {
		return fmt.Errorf("--log-level: %w: want debug, info, warn or error", err)
	}
	f.Cfg.Logger = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level})).With("instance", f.Cfg.Instance)
	if !f.Quiet {
		f.Cfg.Output, f.Cfg.Fetching = stderr, fetching(stderr)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	f.Cfg.Listening = func(e api.Endpoint) { fmt.Fprintln(stdout, "listening on", e) }

	signals := make(chan os.Signal, 2) // room for two, so that the second signal is not lost
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	if f.StopSignal != "" {
		further, err := stopSignal(f.StopSignal)
		if err != nil {
			return err
		}
		signal.Notify(signals, further)
	}
	defer signal.Stop(signals)
	// The reader of our output may die first, and SIGPIPE must not end us before the runtime has ended. The runtime would inherit
	// signal.Ignore.
	broken := make(chan os.Signal, 1) // nobody receives
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	ctx, cancel := context.WithCancel(ctx)
	kill := make(chan struct{})
	f.Cfg.Kill = kill
	ended := make(chan struct{})
	listened := make(chan struct{})
	go func() {
		defer close(listened)
		if heed(signals, ended, cancel) {
			close(kill)
		}
	}()
	f.Cfg.Trace, _ = api.ParseTrace(os.Getenv("TRACEPARENT"))
	err := functions.Run(ctx, f.Cfg)
	close(ended)
	<-listened
	cancel()
	return err
}

// heed reports whether the runtime must be killed.
func heed(signals <-chan os.Signal, ended <-chan struct{}, drain func()) bool {
	select {
	case <-signals:
		drain()
	case <-ended:
		return false
	}
	select {
	case <-signals:
		return true
	case <-ended:
		return false
	}
}
