package functions

import (
	"cmp"
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

// Config is all that an instance is told when it is started.
type Config struct {
	// Function is what it runs. Defaults are filled in as [api.Function.WithDefaults] says.
	Function api.Function
	// Instance is its name, unique in the cluster.
	Instance api.InstanceID
	// Listen is where it takes requests: "unix:/path", or "http://host:port" with port 0 for any. Empty, with [Start]: nowhere but in this process.
	Listen api.Endpoint
	// TokenFile holds the bearer token of the control plane. It is read at each use, so
	// that it can be renewed. Empty: the control paths are closed, unless Listen is a
	// Unix socket, where who can open it may use them.
	TokenFile string
	// Token is such a token too. Empty: with Join, a random one.
	Token string
	// Dir is a folder of its own, for the engine's socket; empty: a temporary one.
	Dir string
	// Engine is the program with the subcommand "engine serve"; for the runtime kind engine.
	Engine string
	// Env is the environment that the runtime inherits.
	Env []string
	// RuntimePort is where a runtime of the kinds command and http listens whatever it is told; 0: where it is told to.
	RuntimePort int
	// ProbePath is what a runtime of the kind http answers with success when it is ready; empty: that it takes connections is enough.
	ProbePath string
	// ProbeCommand is a command that says so by its success; empty: ProbePath does.
	ProbeCommand []string
	// Events is where state changes are posted, at control.PathEvents; empty: nowhere.
	Events api.Endpoint
	// Emit gets them instead, in their order; it must not block. Nil: Events says.
	Emit func(api.Event)
	// Join makes it one of a cluster's: what it runs and where it is reached it learns
	// from the control plane, which its events go to. Function is what it runs where
	// nobody answers. Nil: it is told all here.
	Join *Join
	// Endpoint is where others reach it; empty: Listen.
	Endpoint api.Endpoint
	// Devices are the devices it was given.
	Devices []api.DeviceID
	// Trace is the wake that it is started for; zero: nobody traces it.
	Trace api.Trace
	// Epoch is that of the grant it was started under; calls with a lower one are refused.
	Epoch uint64
	// Seq is the number of the last report of an instance's process before; 0: there was none.
	Seq uint64
	// Asleep begins asleep: nothing of the runtime is there before the first wake.
	Asleep bool
	// Drain bounds how long requests may go on when Run's context ends; 0: 30 s, with
	// Join 4 min: it is Kubernetes that ends a pod's time.
	Drain time.Duration
	// StopGrace is the time between SIGTERM and SIGKILL for the runtime; 0: 5 s.
	StopGrace time.Duration
	// ProbeInterval is the time between health probes of an idle runtime; 0: 30 s, negative: none.
	ProbeInterval time.Duration
	// ProbeTimeout is how long a health probe may take; 0: 30 s.
	ProbeTimeout time.Duration
	// MaxBody bounds a request's body; 0: 64 MiB.
	MaxBody api.Bytes
	// Wrap puts pre- and post-processing around the handler of the client paths; nil: none. One that makes other events of a stream's, holds
	// them back, or asks for something else the second time must take the header control.HeaderState out of the requests that it passes on.
	Wrap func(http.Handler) http.Handler
	// Models is the folder that models are fetched into; empty: $ROUSE_CACHE, else the
	// first that can be written to of rouse/models in the user's cache, the temporary
	// folder, and memory.
	Models string
	// ModelsLimit bounds what fetched models take together; 0: no bound.
	ModelsLimit api.Bytes
	// Share is with whom models' files are fetched together; empty fields are what the environment says
	// (ROUSE_SHARE_SECRET_FILE, ROUSE_SHARE_PEERS, ROUSE_SHARE_LISTEN).
	Share fetch.Share
	// HubTokenFile holds the token for hf:// references; empty: what the environment
	// says (HF_TOKEN, HF_TOKEN_PATH). It is read at each use.
	HubTokenFile string
	// Fetching gets the progress of a fetch, ten times a second at most; nil: nobody.
	Fetching func(fetch.Progress)
	// Diagnostics lets COMPUTE_DIAGNOSTICS be answered at /invocations.
	Diagnostics bool
	// OpenMetrics lets everybody read /metrics, as endpoint pickers and Prometheus do;
	// else it is the control plane's.
	OpenMetrics bool
	// MetricsListen is a second address, "host:port", where everybody may read /metrics, and nothing else is. It is for
	// Prometheus: the network says who reaches it. Where it can't be had the instance serves without. Empty: none.
	MetricsListen string
	// Version is what /version says; empty: "dev".
	Version string
	// Workers is a folder that several functions of one host share to run one
	// runtime between them: one leads, the others pass requests to it. Empty: alone.
	Workers string
	// Keep is the command line of a shim (package shim), which sees to it that
	// nothing of the runtime outlives us, however we die; empty: none, as where
	// somebody above us adopts what we leave. Workers need one.
	Keep []string
	// OwnProcess says that this process does nothing else: it adopts the runtime's
	// orphans and kills every child that is not the runtime (process.Adopt).
	OwnProcess bool
	// Kill, when closed, ends the runtime at once, without a drain; nil: never.
	Kill <-chan struct{}
	// Output gets the runtime's output, line by line; nil: nobody but the logs path.
	Output io.Writer
	// Listening is called once requests are taken, with the endpoint; nil: nobody.
	Listening func(api.Endpoint)
	// Logger; nil: none.
	Logger *slog.Logger
}

// Join is how an instance finds its control plane; see package functions/registration.
type Join struct {
	// Control is where the control plane listens.
	Control api.Endpoint
	// Namespace and Revision are the instance's; the namespace's first is
	// the pod's own where it is empty.
	Namespace, Revision string
	// Role is what the pod was made for; empty: it learns that from the control plane.
	Role control.Role
	// Merge puts what the instance was told by its own command line over what the
	// control plane says; with a zero function: over nothing. Nil: it was told nothing.
	Merge func(api.Function) api.Function
	// Patience is how long it waits for the control plane where it can do without,
	// because it was told a model itself; 0: 3 s.
	Patience time.Duration
}

// drains by default.
const (
	defaultDrain = 30 * time.Second
	clusterDrain = 4 * time.Minute // with the queue-proxy's 30 s, less than the five minutes that Knative gives a pod
)

// Validate reports the first field that can't be meant, and fills in defaults.
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
		return fmt.Errorf("function %s: an instance that joins a control plane reports to it and shares its runtime with nobody: leave out --events and --workers, or join nobody (ROUSE_CONTROL=none)", c.Function.Name)
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
