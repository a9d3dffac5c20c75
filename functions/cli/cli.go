// Package cli is the command line of one instance: flags and environment make a
// [functions.Config], signals end it. cmd/rouse-function and "rouse function" are both
// this command.
//
// What is to run is given in one of two ways: whole, as the JSON of an
// [api.Function] in a file (--spec) or in the environment variable
// ROUSE_FUNCTION, which keeps secrets out of the argument list; or by flags,
// which also win over the JSON, with the runtime's command and options after "--".
// Each flag has a variable too, ROUSE_ and its name in capitals (ROUSE_MODEL for
// --model), which the flag overrules. In a Knative Service the name, the instance
// and the port come from K_SERVICE, HOSTNAME and PORT.
//
// In the pod of a Knative revision (K_REVISION) the function is neither: the
// instance asks the cluster's control plane (--control) what it is. Flags win over
// its answer, and so do variables, but for ROUSE_RUNTIME and ROUSE_MODEL, over
// which annotations win. "none" joins nobody.
//
// A program of one's own with pre- and post-processing in Go is [Main] with a
// function that wraps the handler; docs/functions.md shows one.
//
// Signals: the first SIGTERM or SIGINT drains and ends the runtime, a second one
// ends it at once.
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

// Environment variables.
const (
	EnvFunction = "ROUSE_FUNCTION" // the JSON of an api.Function
	EnvEvents   = "ROUSE_EVENTS"   // the endpoint that state changes are posted to
)

// Version is what /version says; the linker sets it.
var Version = "dev"

// flags are the command line.
type flags struct {
	cfg            functions.Config
	spec, logLevel string
	function       api.Function
	maxBody        string
	modelsLimit    string
	devices        []string
	adapters       []string
	handler        []string
	shim           bool
	path           []string // of this command in its program
	quiet          bool
	stopSignal     string
	control        string
	namespace      string
	fromEnv        map[string]bool // flags that a variable has set
}

// Command makes the command. It writes "listening on ENDPOINT" to its output
// once it takes requests, and everything else to its error output.
func Command() *cobra.Command { return command(nil) }

// Main is the whole program: it runs the command with the process's arguments and
// ends the process. wrap puts pre- and post-processing around the handler of the
// clients' requests; nil: none. It returns only where nothing went wrong.
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
  ray-serve   serve run of Ray Serve
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
			f.path = strings.Fields(cmd.CommandPath())[1:]
			if err := f.build(args, os.Environ(), cmd.Flags().Changed); err != nil {
				return err
			}
			f.cfg.Wrap, f.cfg.Version = wrap, Version
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.define(cmd)
	cmd.Args = cobra.ArbitraryArgs // without it words behind -- are looked for among the subcommands
	cmd.AddCommand(keepCommand(), installCommand(), probeCommand())
	cmd.CompletionOptions.DisableDefaultCmd = true
	return cmd
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
		f.cfg.Output, f.cfg.Fetching = stderr, fetching(stderr)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	f.cfg.Listening = func(e api.Endpoint) { fmt.Fprintln(stdout, "listening on", e) }

	signals := make(chan os.Signal, 2) // from the runtime; two places: the second signal must not be lost
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	if f.stopSignal != "" {
		further, err := stopSignal(f.stopSignal)
		if err != nil {
			return err
		}
		signal.Notify(signals, further)
	}
	defer signal.Stop(signals)
	// Who reads our output may die before us: a write fails then, and must not end us before the runtime has
	// ended. Not signal.Ignore, which the runtime would inherit.
	broken := make(chan os.Signal, 1) // from the runtime; nobody receives
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	ctx, cancel := context.WithCancel(ctx)
	kill := make(chan struct{})
	f.cfg.Kill = kill
	ended := make(chan struct{})
	listened := make(chan struct{})
	go func() {
		defer close(listened)
		if heed(signals, ended, cancel) {
			close(kill)
		}
	}()
	f.cfg.Trace, _ = api.ParseTrace(os.Getenv(api.EnvTrace))
	err := functions.Run(ctx, f.cfg)
	close(ended)
	<-listened
	cancel()
	return err
}

// heed waits for signals; true: the runtime is to be killed.
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
