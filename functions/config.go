package functions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/fetch"
)

// Config configures an instance. Nil functions are not called.
type Config struct {
	// Function has the defaults of [api.Function.WithDefaults].
	Function api.Function
	// Instance is unique in the cluster.
	Instance api.InstanceID `flag:"instance" help:"the instance's <id> (default: the pod's name, else $HOSTNAME)"`
	// Listen is "unix:/path", or "http://host:port" with port 0 for any. Empty, only with [Start]: reachable only in this process.
	Listen api.Endpoint `flag:"listen" help:"<address> to listen on: host:port, http://host:port or unix:/path; port 0 picks one (default: all addresses on $PORT where that is set, else 127.0.0.1:8080)"`
	// TokenFile is read at each use. Empty: the control paths are closed, unless Listen is a Unix socket.
	TokenFile string `flag:"token-file" help:"<file> with the control plane's bearer token; without one its paths are closed, unless --listen is a Unix socket"`
	// Token is a second accepted token. Empty: with Join, a random one.
	Token        string
	Dir          string   `flag:"dir" help:"<folder> of its own for the engine's socket (default: a temporary one)"`
	Engine       string   `flag:"engine-binary" help:"<program> that has the subcommand \"engine serve\" (default: this one)"`
	Env          []string // the runtime inherits it
	RuntimePort  int      `flag:"runtime-port" help:"<port> on which a command listens whatever it is told (default: one that is free, which it is told as $PORT and $(PORT))"`
	ProbePath    string   `flag:"runtime-probe" help:"<path> that a runtime of the kind http answers with success when it is ready (default: that it takes connections is enough)"`
	ProbeCommand []string `flag:"runtime-probe-command" help:"<word> of a command that ends with success when a runtime of the kind http is ready; once for each word"`
	// Events receives state changes at control.PathEvents; empty: they are not posted.
	Events api.Endpoint `flag:"events" help:"<endpoint> that state changes are posted to (default: $ROUSE_EVENTS)"`
	// Emit receives the events in order, in place of Events. It must not block.
	Emit func(api.Event)
	// Join says how to find a control plane, which says what to run. Function is the fallback if none answers. Nil: this Config is all.
	Join *Join
	// Endpoint is where others reach the instance; empty: Listen.
	Endpoint api.Endpoint
	Devices  []api.DeviceID
	// Trace belongs to the wake that starts the instance.
	Trace api.Trace
	// Epoch is the epoch of its grant; calls with a lower one are refused.
	Epoch uint64
	// Seq is the number of the last report of this instance's previous process.
	Seq uint64
	// Asleep delays the runtime's start until the first wake.
	Asleep bool
	// Drain bounds how long requests may finish when Run's context ends; 0: 30 s, with Join 4 min.
	Drain         time.Duration `flag:"drain" least:"1ms" help:"how long requests may go on after SIGTERM (default 30s, in a cluster 4m)"`
	StopGrace     time.Duration `flag:"stop-grace" least:"1ms" help:"time between SIGTERM and SIGKILL for the runtime (default 5s)"`
	ProbeInterval time.Duration `flag:"probe-interval" help:"time between health probes of an idle runtime; negative: none (default 30s)" negative:""`
	ProbeTimeout  time.Duration `flag:"probe-timeout" least:"1ms" help:"how long a health probe may take before the runtime counts as hung (default 30s)"`
	// MaxBody bounds a request's body; 0: 64 MiB.
	MaxBody api.Bytes
	// Wrap adds pre- and post-processing around the client paths. A wrapper that changes a stream's events, or asks something else on a
	// repeated request, must remove the header control.HeaderState from requests.
	Wrap func(http.Handler) http.Handler
	// Models is, if empty, $ROUSE_CACHE, else the first writable of rouse/models in the user's cache, the temporary folder, and memory.
	Models string `flag:"models" help:"<folder> that models are fetched into (default: $ROUSE_CACHE, else rouse/models in the user's cache)"`
	// ModelsLimit bounds the total size of fetched models; 0: no bound.
	ModelsLimit api.Bytes
	// Share configures fetching models together with other nodes. Empty fields come from the environment (ROUSE_SHARE_*).
	Share fetch.Share
	// HubTokenFile is read at each use; empty: HF_TOKEN or HF_TOKEN_PATH.
	HubTokenFile string `flag:"hub-token-file" help:"<file> with the token for hf:// references"`
	// Fetching receives a fetch's progress, at most ten times a second.
	Fetching func(fetch.Progress)
	// Diagnostics lets COMPUTE_DIAGNOSTICS be answered at /invocations.
	Diagnostics bool
	OpenMetrics bool `flag:"open-metrics" help:"let everybody read /metrics, not only the control plane"`
	// MetricsListen is a second address, "host:port", that serves only /metrics, without a token. If it can't be opened the instance runs
	// without.
	MetricsListen string
	Version       string
	// Workers: one function leads, the others pass requests to it. Empty: the runtime is not shared.
	Workers string `flag:"workers" help:"<folder> that several functions of one host share to run one runtime between them"`
	// Keep is the command line of a shim, which ends the runtime however this process dies. Workers need one.
	Keep []string
	// OwnProcess says that this process does nothing else, see [process.Adopt].
	OwnProcess bool
	// Kill, when closed, ends the runtime at once, without a drain.
	Kill   <-chan struct{}
	Output io.Writer // receives the runtime's lines
	// Listening is called with the endpoint once requests are accepted.
	Listening func(api.Endpoint)
	Logger    *slog.Logger
}

// Join says how an instance finds its control plane.
type Join struct {
	Control api.Endpoint
	// Namespace and Revision are the instance's. An empty Namespace is the pod's own.
	Namespace, Revision string
	Role                control.Role // empty: the control plane says
	// Merge applies the command line's settings over the control plane's function, which may be zero.
	Merge func(api.Function) api.Function
	// Patience is how long to wait for the control plane if the command line names a model; 0: 3 s.
	Patience time.Duration
}

const (
	defaultDrain = 30 * time.Second
	clusterDrain = 4 * time.Minute // with the queue-proxy's 30 s, less than the five minutes that Knative gives a pod
)

// Validate fills in defaults and reports the first invalid field.
func (c *Config) Validate() error {
	if c.Function.Name == "" || c.Instance == "" {
		return errors.New("function: name the function and the instance")
	}
	names := []string{c.Function.Name.Name()}
	if c.Join == nil { // a namespace of Kubernetes may begin with a digit
		names = append(names, c.Function.Name.Namespace())
	}
	for _, name := range names {
		if err := api.CheckName(name); err != nil {
			return fmt.Errorf("function %s: %w", c.Function.Name, err)
		}
	}
	if err := api.CheckEndpoint(cmp.Or(c.Listen, c.Endpoint)); err != nil {
		return fmt.Errorf("function %s: listen: %w", c.Function.Name, err)
	}
	if c.Events != "" {
		if err := api.CheckEndpoint(c.Events); err != nil {
			return fmt.Errorf("function %s: events: %w", c.Function.Name, err)
		}
	}
	c.Function = c.Function.WithDefaults()
	for name, d := range map[string]time.Duration{
		"drain": c.Drain, "stop grace": c.StopGrace, "probe timeout": c.ProbeTimeout,
		"start timeout": c.Function.StartTimeout, "wake timeout": c.Function.WakeTimeout, "request timeout": c.Function.RequestTimeout,
	} {
		if d < 0 {
			return fmt.Errorf("function %s: %s is %v: want no negative time", c.Function.Name, name, d)
		}
	}
	if c.RuntimePort < 0 || c.RuntimePort > 65535 {
		return fmt.Errorf("function %s: the runtime's port is %d: want 1 to 65535, or 0 for one that is free", c.Function.Name, c.RuntimePort)
	}
	if c.ProbePath != "" && !strings.HasPrefix(c.ProbePath, "/") {
		return fmt.Errorf("function %s: the path of the runtime's probe is %q: want one that begins with /", c.Function.Name, c.ProbePath)
	}
	if c.Function.Concurrency < 1 || c.MaxBody < 0 {
		return fmt.Errorf("function %s: concurrency is %d and the body's limit %d: want at least 1 and 0", c.Function.Name, c.Function.Concurrency, c.MaxBody)
	}
	if c.Workers != "" && len(c.Keep) == 0 {
		return fmt.Errorf("function %s: workers share their runtime by a shim: name its command line", c.Function.Name)
	}
	if c.Join != nil && (c.Workers != "" || c.Events != "") {
		return fmt.Errorf("function %s: an instance that joins a control plane can't use --events and --workers: leave them out, or join no control plane (ROUSE_CONTROL=none)", c.Function.Name)
	}
	if c.Drain == 0 {
		c.Drain = defaultDrain
		if c.Join != nil {
			c.Drain = clusterDrain
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

func (m *models) share(ctx context.Context, log *slog.Logger) {
	if !m.fetches() {
		return
	}
	cache, err := m.open()
	if err != nil {
		return
	}
	if handler, at := cache.Peers(); handler != nil {
		aside(ctx, log, "models for other caches (--share-listen)", at, handler.ServeHTTP)
	}
}
