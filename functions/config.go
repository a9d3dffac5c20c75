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

// Config is the configuration of an instance.
type Config struct {
	// Function is the function that it runs, with the defaults of [api.Function.WithDefaults].
	Function api.Function
	// Instance is its name, unique in the cluster.
	Instance api.InstanceID `flag:"instance" help:"the instance's <id> (default: the pod's name, else $HOSTNAME)"`
	// Listen is the address for requests: "unix:/path", or "http://host:port" with port 0 for any. Empty, only with [Start]: the
	// instance is reachable only in this process.
	Listen api.Endpoint `flag:"listen" help:"<address> to listen on: host:port, http://host:port or unix:/path; port 0 picks one (default: all addresses on $PORT where that is set, else 127.0.0.1:8080)"`
	// TokenFile holds the bearer token of the control plane. It is read at each use, so that it can be renewed. Empty: the control paths
	// are closed, unless Listen is a Unix socket; then access to the socket is enough.
	TokenFile string `flag:"token-file" help:"<file> with the control plane's bearer token; without one its paths are closed, unless --listen is a Unix socket"`
	// Token is a second accepted token. Empty: with Join, a random one.
	Token string
	// Dir is a folder used by nothing else, for the engine's socket; empty: a temporary one.
	Dir string `flag:"dir" help:"<folder> of its own for the engine's socket (default: a temporary one)"`
	// Engine is the program with the subcommand "engine serve", for the runtime kind engine.
	Engine string `flag:"engine-binary" help:"<program> that has the subcommand \"engine serve\" (default: this one)"`
	// Env is the environment that the runtime inherits.
	Env []string
	// RuntimePort is the port of runtimes of the kinds command and http that cannot be told one; 0: the runtime gets a port.
	RuntimePort int `flag:"runtime-port" help:"<port> on which a command listens whatever it is told (default: one that is free, which it is told as $PORT and $(PORT))"`
	// ProbePath is the path at which a runtime of the kind http answers with success when it is ready; empty: an open port is enough.
	ProbePath string `flag:"runtime-probe" help:"<path> that a runtime of the kind http answers with success when it is ready (default: that it takes connections is enough)"`
	// ProbeCommand is a command that succeeds when the runtime is ready; empty: ProbePath is used.
	ProbeCommand []string `flag:"runtime-probe-command" help:"<word> of a command that ends with success when a runtime of the kind http is ready; once for each word"`
	// Events is the endpoint whose control.PathEvents receives state changes; empty: they are not posted.
	Events api.Endpoint `flag:"events" help:"<endpoint> that state changes are posted to (default: $ROUSE_EVENTS)"`
	// Emit receives the events in order, in place of Events; it must not block. Nil: Events is used.
	Emit func(api.Event)
	// Join connects the instance to a control plane, which says what it runs and where it is reached, and receives its events. Function
	// is the fallback if no control plane answers. Nil: this Config is all.
	Join *Join
	// Endpoint is the address at which others reach it; empty: Listen.
	Endpoint api.Endpoint
	// Devices are the devices assigned to it.
	Devices []api.DeviceID
	// Trace is the trace of the wake that starts it; zero: none.
	Trace api.Trace
	// Epoch is the epoch of the grant that it was started under; calls with a lower one are refused.
	Epoch uint64
	// Seq is the number of the last report of the previous process of this instance; 0: there was none.
	Seq uint64
	// Asleep starts it asleep: the runtime does not start before the first wake.
	Asleep bool
	// Drain bounds how long requests may finish when Run's context ends; 0: 30 s, with Join 4 min, because Kubernetes bounds a pod's
	// time.
	Drain time.Duration `flag:"drain" least:"1ms" help:"how long requests may go on after SIGTERM (default 30s, in a cluster 4m)"`
	// StopGrace is the time between SIGTERM and SIGKILL for the runtime; 0: 5 s.
	StopGrace time.Duration `flag:"stop-grace" least:"1ms" help:"time between SIGTERM and SIGKILL for the runtime (default 5s)"`
	// ProbeInterval is the time between health probes of an idle runtime; 0: 30 s, negative: none.
	ProbeInterval time.Duration `flag:"probe-interval" help:"time between health probes of an idle runtime; negative: none (default 30s)" negative:""`
	// ProbeTimeout is how long a health probe may take; 0: 30 s.
	ProbeTimeout time.Duration `flag:"probe-timeout" least:"1ms" help:"how long a health probe may take before the runtime counts as hung (default 30s)"`
	// MaxBody bounds a request's body; 0: 64 MiB.
	MaxBody api.Bytes
	// Wrap adds pre- and post-processing around the handler of the client paths; nil: none. A wrapper that changes or holds back a
	// stream's events, or that asks something else on a repeated request, must remove the header control.HeaderState from the requests
	// that it passes on.
	Wrap func(http.Handler) http.Handler
	// Models is the folder for fetched models. Empty: $ROUSE_CACHE, else the first writable one of rouse/models in the user's cache, the
	// temporary folder, and memory.
	Models string `flag:"models" help:"<folder> that models are fetched into (default: $ROUSE_CACHE, else rouse/models in the user's cache)"`
	// ModelsLimit bounds the total size of fetched models; 0: no bound.
	ModelsLimit api.Bytes
	// Share configures fetching models together with other nodes. Empty fields come from the environment (ROUSE_SHARE_SECRET_FILE,
	// ROUSE_SHARE_PEERS, ROUSE_SHARE_LISTEN).
	Share fetch.Share
	// HubTokenFile holds the token for hf:// references; empty: the environment's (HF_TOKEN, HF_TOKEN_PATH). It is read at each use.
	HubTokenFile string `flag:"hub-token-file" help:"<file> with the token for hf:// references"`
	// Fetching receives the progress of a fetch, at most ten times a second; nil: it is dropped.
	Fetching func(fetch.Progress)
	// Diagnostics lets COMPUTE_DIAGNOSTICS be answered at /invocations.
	Diagnostics bool
	// OpenMetrics serves /metrics without a token, as endpoint pickers and Prometheus expect. Otherwise it needs the control plane's
	// token.
	OpenMetrics bool `flag:"open-metrics" help:"let everybody read /metrics, not only the control plane"`
	// MetricsListen is a second address, "host:port", that serves only /metrics, without a token. It is for Prometheus; the network
	// restricts who reaches it. If the address is not available the instance runs without it. Empty: none.
	MetricsListen string
	// Version is the answer of /version; empty: "dev".
	Version string
	// Workers is a folder through which several functions of one host share one runtime: one leads, the others pass requests to it.
	// Empty: the instance does not share.
	Workers string `flag:"workers" help:"<folder> that several functions of one host share to run one runtime between them"`
	// Keep is the command line of a shim (package shim), which ends the runtime however this process dies. Empty: none, where a parent
	// process adopts orphans. Workers need one.
	Keep []string
	// OwnProcess says that this process does nothing else: it adopts the runtime's orphans and kills every child that is not the runtime
	// (process.Adopt).
	OwnProcess bool
	// Kill, when closed, ends the runtime at once, without a drain; nil: never.
	Kill <-chan struct{}
	// Output receives the runtime's output, line by line; nil: only the logs path has it.
	Output io.Writer
	// Listening is called with the endpoint once requests are accepted; nil: no call.
	Listening func(api.Endpoint)
	// Logger; nil: none.
	Logger *slog.Logger
}

// Join configures how an instance finds its control plane.
type Join struct {
	// Control is the control plane's endpoint.
	Control api.Endpoint
	// Namespace and Revision are the instance's. An empty Namespace is the pod's own.
	Namespace, Revision string
	// Role is the role that the pod was created for; empty: the control plane says.
	Role control.Role
	// Merge applies the settings of the instance's command line over the control plane's function, or over nothing if that is zero. Nil:
	// the command line sets nothing.
	Merge func(api.Function) api.Function
	// Patience is how long it waits for the control plane if its own command line names a model; 0: 3 s.
	Patience time.Duration
}

// The default drains.
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

// share serves other caches of models until ctx ends, if this instance takes part. If its port is taken, the instance goes on without it
// and still fetches from others.
func (m *models) share(ctx context.Context, log *slog.Logger) {
	if !m.fetches() {
		return
	}
	cache, err := m.open()
	if err != nil {
		return // the start reports it
	}
	if handler, at := cache.Peers(); handler != nil {
		aside(ctx, log, "models for other caches (--share-listen)", at, handler.ServeHTTP)
	}
}
