package pyfunc

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/process"
	bodies "github.com/rouse-dev/rouse/internal/inbound"
)

// maxInputs bounds the strings of one call.
const maxInputs = 1024

// Config of a [Handler].
type Config struct {
	// Next serves the client paths. It is called in process, from goroutines of the
	// call, with requests whose context ends with the call.
	Next http.Handler
	// Status returns the instance's state. It must not block.
	Status func() api.InstanceStatus
	// Refusal returns the error that a request would get now; nil: it would be accepted. It must not block.
	Refusal func() *api.Error
	// Model is added to requests without a model.
	Model api.ModelName
	// Version is the answer of /version; empty: "unknown".
	Version string
	// Engine is the engine_name of a health check, see [EngineName].
	Engine string
	// Credentials allows an envelope's inner request to carry credentials.
	Credentials bool
	// Door reads bodies; nil: a new one.
	Door *bodies.Door
	// MaxAnswer bounds one answer of the runtime in an envelope, after it is unpacked; 0: 256 MiB. A longer one is a
	// 502 in its envelope.
	MaxAnswer api.Bytes
	// Timeout bounds a call, and a stream of events up to its first event; then the answer is 504. 0: only Next
	// bounds it. MLflow's own 60 s is too short for a long generation. The time that a client waits for a sleeping
	// model does not count: it passes in front of the function.
	Timeout time.Duration
	// Parallel is the number of strings of one call in Next at once; 0: 8. The
	// function's concurrency is a good value.
	Parallel int
	// Diagnostics enables COMPUTE_DIAGNOSTICS.
	Diagnostics bool
	// Env is the runtime's environment as "KEY=VALUE". Diagnostics show the values of a few harmless
	// names, and never the value of another one.
	Env []string
	// Logger; nil: none.
	Logger *slog.Logger
}

// TimeoutFrom reads the time limit that stock deployments set in the environment:
// MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT, in seconds; 0: no limit.
func TimeoutFrom(env []string) (time.Duration, error) {
	const name = "MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT"
	value := process.Variable(env, name)
	if value == "" {
		return 0, nil
	}
	seconds, err := strconv.Atoi(value)
	if err != nil || seconds < 0 || seconds > 1e6 {
		return 0, fmt.Errorf("%s is %q: want a whole number of seconds, 0 for no limit", name, value)
	}
	return time.Duration(seconds) * time.Second, nil
}

// EngineName returns the engine_name of a kind of runtime: mlflow-extensions'
// name, or the kind followed by "-engine".
func EngineName(kind string) string {
	if kind == api.RuntimeEngine {
		return "rouse-engine"
	}
	return kind + "-engine"
}

func (c *Config) setDefaults() error {
	switch {
	case c.Next == nil || c.Status == nil || c.Refusal == nil:
		return errors.New("pyfunc: Config needs Next, Status and Refusal")
	case c.MaxAnswer < 0 || c.Timeout < 0 || c.Parallel < 0:
		return errors.New("pyfunc: a limit in Config is negative")
	}
	c.Version = cmp.Or(c.Version, "unknown")
	c.MaxAnswer = cmp.Or(c.MaxAnswer, 256*api.MiB)
	c.Parallel = cmp.Or(c.Parallel, 8)
	if c.Door == nil {
		c.Door = bodies.New(bodies.Config{})
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}
