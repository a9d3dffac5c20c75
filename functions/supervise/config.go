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

// Child is the runtime's process.
type Child = process.Child

// Suspender suspends a process with its descendants; [process.Suspender] is one.
type Suspender interface {
	Suspend(ctx context.Context, pid int) (moves bool, err error)
	Restore(ctx context.Context, pid int, old, now []api.DeviceID) error
}

// Config configures a [Supervisor].
type Config struct {
	// Status has the fixed fields of the instance's reports (Instance, Function, Endpoint, Devices, Concurrency), the first Epoch, and
	// Seq, the number of the previous process's last report, 0 for none.
	Status api.InstanceStatus
	// Asleep begins asleep at level 2: no process is started before the first wake.
	Asleep bool
	// Runtime is the runtime to run.
	Runtime runtime.Runtime
	// Model is the reference that the runtime loads if Prepare is nil.
	Model string
	// Prepare makes the model ready before a process is started, and returns the path that the runtime loads. report receives the
	// finished share, 0 to 1, or 0 while it is unknown. Prepare must end when ctx ends. Nil: there is nothing to make ready.
	Prepare func(ctx context.Context, report func(share float64)) (model string, err error)
	// Canary enables the canary, see canary.go.
	Canary bool
	// Ready is called with the runtime's endpoint after the first token of each start and wake, before requests are admitted; it loads
	// adapters again. An error fails the start. Nil: nothing to do.
	Ready func(ctx context.Context, e api.Endpoint) error
	// Adapters returns the loaded adapters, and since when each is known: one that was known before a sleep is asked the canary too.
	// Nil: there are none.
	Adapters func() map[api.ModelName]time.Time
	// Early reports that Ready will have nothing to do after a wake, so that a request that came with the wake may run beside the
	// canary, see [Gate.EnterBehind]. Nil: Ready may have.
	Early func() bool
	// Start starts a process; nil: [process.Start].
	Start func(process.Spec) (Child, error)
	// Adopt is called once, when Run begins. It returns a runtime that another supervisor of this instance has left: its process (nil:
	// none), its launch (only Endpoint and Attach count) and that supervisor's last note. False or a nil Adopt: there is none.
	Adopt func() (Child, runtime.Launch, Note, bool)
	// Save receives a note for the next supervisor at each change, before the announced operation is done. It must not block for long.
	// Nil: notes are dropped.
	Save func(Note)
	// SleepLevel is the runtime's own sleep below a suspension; 0: level 1.
	SleepLevel api.Level
	// Suspender takes the runtime off its GPUs. Nil: nothing can, and Status.NoSuspend says why if there are GPUs.
	Suspender Suspender
	// Moves says that the runtime may be restored onto all GPUs that a grant names, as it sees those of the whole machine.
	Moves bool
	// Snapshots keeps a snapshot of the process on the disk; nil: none is made.
	Snapshots Snapshots
	// GPUs measures the memory that a process and its descendants hold of the GPU of which they hold most. found is false if it sees
	// none of them. It returns soon after ctx ends. Nil: there is nothing to measure.
	GPUs func(ctx context.Context, pid int) (held api.Bytes, found bool, err error)
	// Log receives the runtime's output.
	Log *process.Log
	// Report receives each change of state, in order, from one goroutine. It must not block. Nil: no call.
	Report func(api.InstanceStatus)
	// Trace is the trace that the instance was started for; zero: none.
	Trace api.Trace
	// Leave is called before a runtime that has answered sleeps or is ended, when no request is in it, for a last reading of its
	// metrics. It must end soon, and with ctx. Nil: no call.
	Leave func(ctx context.Context, e api.Endpoint)
	// Closed is called when a runtime's process has ended: connections to it are dead. Nil: no call.
	Closed func()
	// StartTimeout bounds a start, to the first token; 0: 10 min.
	StartTimeout time.Duration
	// WakeTimeout bounds a wake, to the first token; 0: 1 min.
	WakeTimeout time.Duration
	// StopGrace is the time between SIGTERM and SIGKILL; 0: 5 s.
	StopGrace time.Duration
	// ProbeInterval is the time between health checks. A runtime is probed if it is idle, or if no part of an answer came in this time.
	// 0: 30 s, negative: none.
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
		c.Start = process.StartChild
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
