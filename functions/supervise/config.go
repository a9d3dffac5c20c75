package supervise

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// Child is a started process; *[process.Process] is one. Where it also has
// [process.Process.CPU], a runtime that computes is not taken for one that hangs.
type Child interface {
	PID() int
	Exited() <-chan struct{}
	Status() string
	Stop(grace time.Duration)
	Kill()
	Memory() (all api.Bytes, shared api.SharedMemory, err error)
}

// Config of a [Supervisor].
type Config struct {
	// Status is what never changes in the instance's reports: Instance, Function,
	// Endpoint, Devices, Concurrency; Epoch, the first one; and
	// Seq, that of the last report of before, 0 for none.
	Status api.InstanceStatus
	// Asleep begins asleep at level 2: no process is started before the first wake.
	Asleep bool
	// Runtime is what runs.
	Runtime runtime.Runtime
	// Model is what the runtime loads where Prepare is nil: the reference as declared.
	Model string
	// Prepare makes the model ready before a process is started, and returns what the
	// runtime loads (a path). report gets the share that is done, 0 to 1, or 0 while it
	// is unknown. It must end when ctx ends. Nil: there is nothing to make ready.
	Prepare func(ctx context.Context, report func(share float64)) (model string, err error)
	// Canary says that the runtime is asked the canary, see canary.go.
	Canary bool
	// Ready is called with the runtime's endpoint after its first token, of each
	// start and wake, before requests are let in: loaded adapters are put back by it.
	// An error fails the start. Nil: nothing is to be done.
	Ready func(ctx context.Context, e api.Endpoint) error
	// Adapters are those that the runtime has loaded, and since when each is known: one that was known before a sleep is asked the
	// canary too. Nil: it has none.
	Adapters func() map[api.ModelName]time.Time
	// Early says that Ready will have nothing to do after a wake, so that a request that came behind
	// the wake may go to the runtime beside the canary, see [Gate.EnterBehind]. Nil: it has.
	Early func() bool
	// Start starts a process; nil: [process.Start].
	Start func(process.Spec) (Child, error)
	// Adopt is asked once, when Run begins, for a runtime that another supervisor of
	// this instance has left: its process (nil: it has none), its launch (only
	// Endpoint and Attach count) and that supervisor's last note. False: there is
	// none. Nil: nobody has left one.
	Adopt func() (Child, runtime.Launch, Note, bool)
	// Save gets a note for whoever adopts the runtime after us, at each change and
	// before what it announces is done. It must not block for long. Nil: nobody.
	Save func(Note)
	// GPUs measures what a process and its descendants hold of the GPU of which they hold most; found is
	// false where it sees none of them. It returns soon after ctx ends. Nil: there is nothing to measure.
	GPUs func(ctx context.Context, pid int) (held api.Bytes, found bool, err error)
	// Log gets the runtime's output.
	Log *process.Log
	// Report gets each change of state, in order, from one goroutine. It must not block. Nil: nobody.
	Report func(api.InstanceStatus)
	// Trace is what the instance was started for; zero: nobody traces it.
	Trace api.Trace
	// Leave is called before a runtime that has answered sleeps or is ended, with no request
	// in it: for the last look at it. It ends soon, and with ctx. Nil: nobody looks.
	Leave func(ctx context.Context, e api.Endpoint)
	// Closed is called when a runtime's process has ended: connections to it are dead. Nil: nobody.
	Closed func()
	// StartTimeout bounds a start, to the first token; 0: 10 min.
	StartTimeout time.Duration
	// WakeTimeout bounds a wake, to the first token; 0: 1 min.
	WakeTimeout time.Duration
	// StopGrace is the time between SIGTERM and SIGKILL; 0: 5 s.
	StopGrace time.Duration
	// ProbeInterval is the time between looks at a runtime's health: an idle one, and
	// one of whose answers no part came in this time, is sent a probe. 0: 30 s, negative: none.
	ProbeInterval time.Duration
	// ProbeTimeout is how long a health probe may take before it counts as not answered; 0: 30 s.
	ProbeTimeout time.Duration
	// Logger; nil: none.
	Logger *slog.Logger
}

func (c *Config) defaults() error {
	switch {
	case c.Runtime == nil || c.Log == nil:
		return errors.New("supervise: Config needs Runtime and Log")
	case c.Status.Concurrency < 1:
		return errors.New("supervise: Config.Status.Concurrency is less than 1")
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.StartTimeout, 10 * time.Minute}, {&c.WakeTimeout, time.Minute},
		{&c.StopGrace, 5 * time.Second}, {&c.ProbeInterval, 30 * time.Second}, {&c.ProbeTimeout, 30 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.Start == nil {
		c.Start = func(s process.Spec) (Child, error) {
			p, err := process.Start(s)
			if err != nil {
				return nil, err // not p: a nil *Process is no nil Child
			}
			return p, nil
		}
	}
	if c.Report == nil {
		c.Report = func(api.InstanceStatus) {}
	}
	if c.Adapters == nil {
		c.Adapters = func() map[api.ModelName]time.Time { return nil }
	}
	if c.Save == nil {
		c.Save = func(Note) {}
	}
	if c.Closed == nil {
		c.Closed = func() {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}
