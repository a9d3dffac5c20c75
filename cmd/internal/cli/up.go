package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/federation/agent"
	"github.com/rouse-dev/rouse/activator/federation/door"
	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/flight"
	"github.com/rouse-dev/rouse/cmd/internal/catalog"

	"github.com/rouse-dev/rouse/cmd/internal/local"
	"github.com/rouse-dev/rouse/cmd/internal/render"
	"github.com/rouse-dev/rouse/cmd/internal/verb"
	"github.com/rouse-dev/rouse/config"
	"github.com/rouse-dev/rouse/internal/disk"
	"github.com/rouse-dev/rouse/internal/flagset"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/s3"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

type upFlags struct {
	local.Config
	From         sources
	Ollama       string `flag:"ollama" help:"serve the models in Ollama's store in place: the usual one ($OLLAMA_MODELS, ~/.ollama/models), or that in a <folder>"`
	NoConfig     bool   `flag:"no-config" help:"leave out what is kept in $XDG_CONFIG_HOME/rouse"`
	Watch        bool   `flag:"watch" help:"apply what changes in files and folders of functions while the server runs"`
	TokenFile    string `flag:"admin-token-file" help:"<file> with a token that opens the administrative API at the address of --listen too (default: only this user's own socket)"`
	ClustersFile string `flag:"clusters" help:"<file> that makes this server a front door of other clusters, and says which"`
	LogFormat    string `flag:"log-format" help:"text or json; auto: text for people on a terminal, else json"`
	AccessLog    string `flag:"access-log" help:"json: a line for each request to a model, on standard output; off: none"`
	Joins        agent.Flags
	Accept       struct {
		Functions []string `flag:"accept-functions" split:"" help:"functions that the front doors may have created on this machine, as <patterns> such as default/*: a function is code that runs here (default: none)"`
		Models    []string `flag:"accept-models" split:"" help:"<models> and adapters of such functions: references, or beginnings of references that end in a slash, such as https://models.example.com/ or /srv/models/"`
		Max       int      `flag:"accept-max" least:"1" help:"how many such functions there may be at once"`
	}
	LogLevel string `flag:"log-level" help:"debug, info, warn or error"`

	reader *reader
	set    declaredSet
}

func upCommand() *cobra.Command {
	f := upFlags{LogFormat: "auto", AccessLog: "off", LogLevel: "info"}
	f.Accept.Models, f.Accept.Max = config.AcceptedModels, 16
	f.Listen, f.DrainTimeout, f.AcceptKinds = local.DefaultListen, 30*time.Second, []string{api.RuntimeEngine}
	cmd := &cobra.Command{
		SuggestFor: []string{"serve", "start"},
		Use:        "up [-f FILE|FOLDER …] [--model MODEL …] [--command NAME=COMMAND …] [--models-dir FOLDER] [--ollama]",
		Short:      "Serve functions on this machine until Ctrl-C",
		Long: `Serve functions on this machine until Ctrl-C.

A FILE is a plain Knative Service manifest, as kubectl takes it; of a FOLDER all *.yaml, *.yml and *.json are
read. --model serves a GGUF file without one, --command any model server, --models-dir all GGUF files below a folder, and
--ollama those that Ollama has pulled here, in place. What was kept with rouse apply --save, in $XDG_CONFIG_HOME/rouse (~/.config),
is served too, unless --no-config says not. With none of them, the small model that ships with Rouse is served as
pico. Nothing is loaded until the first request asks for it.

With --watch, what changes in these files and folders is applied while the server runs; a function that did not
change is not disturbed, and a file that can't be read changes nothing.

The first Ctrl-C lets requests finish; the second one ends everything at once.`,
		Example: `  rouse up
  rouse up --model ./qwen2.5-0.5b-instruct-q8_0.gguf
  rouse up --model small=./a/model.gguf --model large=./b/model.gguf
  rouse up --command chat='llama-server -m chat.gguf --port $(PORT)'
  rouse up -f functions.yaml --memory 8Gi --listen 127.0.0.1:9000
  rouse up --models-dir ~/models --ollama --watch`,
		Args: flagsOnly,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"keys", "tls-cert", "tls-key", "store", "admin-token-file"} { // of a variable that is not set
				if given := cmd.Flags().Lookup(name); given.Changed && given.Value.String() == "" {
					return fmt.Errorf("--%s is empty: name its file, or leave the flag out", name)
				}
			}
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	s := cmd.Flags()
	flagset.Add(s, &f)
	s.Lookup("ollama").NoOptDefVal = usualStore
	addParsed(s, &f.Memory, "memory", "", "host `memory` that models may use together, such as 2Gi (default: four fifths of the machine's)", amount[api.Bytes])
	addParsed(s, &f.Peers.Proxies, "trusted-proxies", "", "`addresses` of proxies whose X-Forwarded-For says who a client is, such as 10.0.0.0/8,192.0.2.7 (default: none)", peer.ParseList)
	addParsed(s, &f.Peers.Trusted, "trusted-peers", "", "`addresses` of clients whose priority, service_tier and X-Rouse-Tenant count (default: none)", peer.ParseList)
	s.StringVar(&f.Store.At, "store", "", "`folder` of its own in which files, batches, stored responses and answers of Prefer: respond-async are kept, or s3://BUCKET/PREFIX of an S3 service (AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID …), which several servers may share (default: they are not taken)")
	addParsed(s, &f.Store.Limits.MaxBytes, "store-size", "10Gi", "`space` that the files in it may take", amount[int64])
	flagset.DurationVarP(s, &f.Store.Limits.Keep, "store-keep", "", 30*24*time.Hour, "how long they are kept, unless a client says less")
	addParsed(s, &f.RecordBytes, "record-size", "50M", "`space` on the disk that the record of what is decided may take (rouse replay); 0: nothing is recorded", recordBytes)
	return cmd
}

func flagsOnly(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	flag := "--model"
	if isManifest(filepath.Base(args[0])) {
		flag = "-f"
	}
	return fmt.Errorf("%q is no flag: did you mean %s %s %s?", args[0], cmd.CommandPath(), flag, args[0])
}

// gcPercent saves a fifth of a request's processor time, for a heap of a few MiB. $GOGC takes precedence.
const gcPercent = 400

// usualMemory bounds this process's memory besides requests' bodies: beyond it the heap is collected more often.
const usualMemory = 256 << 20

func (f *upFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	cfg, err := f.config()
	if err != nil {
		return err
	}
	console, err := f.console(stdout, stderr)
	if err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if cfg.MemoryLimit = api.Bytes(inbound.LimitMemory()); cfg.MemoryLimit == 0 {
		debug.SetMemoryLimit(inbound.Within(0).Memory + usualMemory) // else bodies leave four times as much garbage
	}
	cfg.Logger = console.log
	if cfg.Access, err = activator.AccessLog(f.AccessLog, stdout); err != nil {
		return fmt.Errorf("--access-log: %w", err)
	}
	if cfg.Traces, err = waketrace.FromEnvironment(os.Getenv, verb.Version(), console.log); err != nil {
		console.log.Warn("no traces are exported", "error", err)
	}
	cfg.Ready = func(info local.Info) { console.ready(info, cfg.Functions, f.set) }
	if f.Watch {
		cfg.Follow = func(ctx context.Context, s local.Declarations) error {
			return f.reader.Watch(ctx, f.set, s, console.notices())
		}
	}
	cfg.Observe, cfg.Tell = console.observe, console.tell
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer console.close()
	signals := make(chan os.Signal, 2) // the second signal must not be lost
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	go func() { // ends with the process
		<-signals
		console.stopping(f.DrainTimeout)
		stop()
		again(signals)
		// Children die with this process: see package functions/process.
		os.Exit(130)
	}()
	return local.Run(ctx, cfg)
}

// echo is how long after the first signal another one counts as the same: wrappers such as timeout(1) forward one that the group gets too.
const echo = 50 * time.Millisecond

// again returns at a second signal that is no echo.
func again(signals <-chan os.Signal) {
	first := time.Now()
	for range signals {
		if time.Since(first) > echo {
			return
		}
	}
}

func (f *upFlags) config() (cfg local.Config, err error) {
	cfg = f.Config
	cfg.StateDir, cfg.Version = stateFolder(), verb.Version()
	cfg.Sink, cfg.SinkOverrides = os.Getenv("K_SINK"), os.Getenv("K_CE_OVERRIDES")
	cfg.DrainTimeout = max(cfg.DrainTimeout, time.Nanosecond)
	if cfg.Listen, err = api.ListenAddress(f.Listen); err != nil {
		return cfg, fmt.Errorf("--listen: %w", err)
	}
	if cfg.Store.At != "" {
		cfg.Store.Limits.Shared, cfg.Store.S3 = activator.Anonymous, s3.Environment(os.Getenv)
		if err := cfg.Store.Validate(); err != nil {
			return cfg, fmt.Errorf("--store %w", err)
		}
	}
	if l := cfg.Store.Limits; cfg.Store.At != "" && (l.Keep < time.Minute || l.MaxBytes < 1<<20) {
		return cfg, fmt.Errorf("--store-keep %s, --store-size %s: want a minute, and 1Mi, or more", l.Keep, api.Bytes(l.MaxBytes))
	}
	if f.ClustersFile != "" {
		if cfg.Clusters, err = door.Read(f.ClustersFile, cfg.Version); err != nil {
			return cfg, err
		}
	}
	if cfg.Join, err = f.Joins.Config(cfg.Version); err != nil {
		return cfg, err
	}
	accepts := len(f.Accept.Functions) > 0
	if cfg.Join != nil {
		cfg.Join.Accept = agent.Accept{Functions: f.Accept.Functions, Models: f.Accept.Models, Max: f.Accept.Max}
		if err := cfg.Join.Validate(); err != nil {
			return cfg, err
		}
	} else if accepts || f.Joins.TokenFile+f.Joins.Certificate+f.Joins.Authority != "" {
		return cfg, errors.New("--accept-functions, --cluster-token-file, --cluster-cert and --front-ca are for a front door: say which (--join HOST:PORT)")
	}
	if cfg.Functions, err = f.functions(f.Watch || cfg.Clusters != nil || accepts); err != nil {
		return cfg, err
	}
	if f.TokenFile != "" {
		cfg.AdminToken = func() (string, error) { return readToken(f.TokenFile) }
		_, err = cfg.AdminToken()
	}
	return cfg, err
}

const usualStore = "auto"

func (f *upFlags) functions(none bool) ([]api.Function, error) {
	from := f.From
	from.MayBeNone = none
	if !f.NoGPU {
		from.GPU = catalog.FindGPU
	}
	if !f.NoConfig {
		from.Kept = configFolder()
	}
	switch f.Ollama {
	case "":
	case usualStore:
		if from.Ollama = catalog.StoreOf(os.Getenv); from.Ollama == nil {
			return nil, errors.New("--ollama: there is no store in $OLLAMA_MODELS, ~/.ollama/models or /usr/share/ollama/.ollama/models: name it with --ollama=FOLDER")
		}
	default:
		from.Ollama = catalog.StoreOf(func(name string) string { return map[string]string{"OLLAMA_MODELS": f.Ollama}[name] })
		if from.Ollama == nil {
			return nil, fmt.Errorf("--ollama: %s is no store of Ollama's: it has no folder manifests", f.Ollama)
		}
	}
	f.reader = newReader(from)
	var err error
	if f.set, err = f.reader.Read(); err != nil {
		return nil, err
	}
	if store := catalog.StoreOf(os.Getenv); f.Ollama == "" && store != nil && len(from.Functions) == 0 {
		f.set.Hints = append(f.set.Hints, "Ollama has models here, in "+shortPath(store.Dir)+": --ollama serves them in place")
	}
	if len(f.set.Bad) > 0 && !f.Watch { // a watching server reports it, and serves the rest
		return nil, f.set.Bad[0].Why
	}
	return f.set.Functions, nil
}

func readToken(path string) (string, error) {
	token, err := disk.ReadToken(path)
	if err != nil {
		return "", fmt.Errorf("read the administrative token: %w", err)
	}
	if len(token) < 16 {
		return "", fmt.Errorf("the administrative token in %s has %d characters: use 16 or more", path, len(token))
	}
	return token, nil
}

func (f *upFlags) console(stdout, stderr io.Writer) (*console, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.LogLevel)); err != nil {
		return nil, fmt.Errorf("--log-level %q: want debug, info, warn or error", f.LogLevel)
	}
	terminal := render.IsTerminal(stdout)
	switch f.LogFormat {
	case "auto":
		return newConsole(stdout, stderr, terminal, terminal, level), nil
	case "text":
		return newConsole(stdout, stderr, true, terminal, level), nil
	case "json":
		return newConsole(stdout, stderr, false, false, level), nil
	}
	return nil, errors.New("--log-format: want auto, text or json")
}

func recordBytes(text string) (int64, error) {
	size, err := api.ParseBytes(text)
	if err != nil || size > 0 && size < flight.LeastBytes {
		return 0, fmt.Errorf("want an amount such as 50M, at least %s, or 0", api.Bytes(flight.LeastBytes))
	}
	return int64(size), nil
}
