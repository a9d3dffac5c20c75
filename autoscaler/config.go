package autoscaler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/flight"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/autoscaler/usage"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// Config configures an autoscaler. It needs devices. Its JSON has what decisions depend on.
type Config struct {
	// Devices are the memories to allocate, a host's first; see [inventory.Discover]. In a cluster each node has its
	// host's memory, [inventory.HostOf], and its GPUs.
	Devices []inventory.Device `json:"-"`
	// Term is the leader's, higher than any earlier one's: instances refuse earlier leaders. 0: there is no other
	// autoscaler, and the machine's clock orders epochs across restarts.
	Term   uint64 `json:"-"`
	Policy decide.Policy
	// AssumedMemory is assumed for a CPU function that declares none, until it is measured. Default 512 MiB.
	AssumedMemory api.Bytes
	// StopTimeout is for a stop beyond its draining. Default 30 s.
	StopTimeout time.Duration
	// CallTimeout bounds calls that only pass a message on. Default 5 s.
	CallTimeout time.Duration
	// Memory may be nil.
	Memory Memory `json:"-"`
	// Usage is from [Autoscaler.SaveUsage] of an earlier process; may be nil.
	Usage *usage.Saved `json:"-"`
	// Hold tells activators how many GPUs an instance holds awake; 0: it is gone. It must not block; may be nil.
	Hold func(f api.FunctionName, id api.InstanceID, gpus float64) `json:"-"`
	// Traces may be nil.
	Traces *waketrace.Exporter `json:"-"`
	// Record's zero value records nothing; see [Replay].
	Record flight.Config `json:"-"`
	// Source names the source of events. Default "/autoscaler".
	Source string
}

const (
	// assumedResidue is for a sleeping process, on each GPU.
	assumedResidue = api.GiB
	// probeAfter is how long an instance may be silent if its state matters.
	probeAfter = 5 * time.Second
)

func (c Config) withDefaults() Config {
	c.Policy = c.Policy.WithDefaults()
	c.AssumedMemory = cmp.Or(c.AssumedMemory, 512*api.MiB)
	c.StopTimeout = cmp.Or(c.StopTimeout, 30*time.Second)
	c.CallTimeout = cmp.Or(c.CallTimeout, 5*time.Second)
	c.Source = cmp.Or(c.Source, "/autoscaler")
	return c
}

// Validate reports what is wrong with c.
func (c Config) Validate() error {
	var errs []error
	errs = append(errs, checkDevices(c.Devices))
	if c.AssumedMemory < 0 || c.StopTimeout < 0 || c.CallTimeout < 0 {
		errs = append(errs, fmt.Errorf("assumed memory and timeouts: want at least 0, have %s, %s and %s", c.AssumedMemory, c.StopTimeout, c.CallTimeout))
	}
	errs = append(errs, c.Policy.Validate(), c.Record.Validate())
	return errors.Join(errs...)
}

func checkDevices(devices []inventory.Device) error {
	var errs []error
	if len(devices) == 0 || !devices[0].IsHost() {
		errs = append(errs, fmt.Errorf("devices: want a host's memory (%q, in a cluster %q) first, have %d devices", api.HostMemory, inventory.HostOf("NODE"), len(devices)))
	}
	hosts := map[string]bool{}
	for _, d := range devices {
		hosts[d.Node] = hosts[d.Node] || d.IsHost()
	}
	seen := map[api.DeviceID]bool{}
	for _, d := range devices {
		if d.Capacity < 0 || seen[d.ID] {
			errs = append(errs, fmt.Errorf("device %s: want one of that name, with a capacity of at least 0 (have %s)", d.ID, d.Capacity))
		}
		if !hosts[d.Node] {
			errs = append(errs, fmt.Errorf("device %s: its node has no host memory in the list: want a device %s", d.ID, inventory.HostOf(d.Node)))
		}
		if d.Others < 0 {
			errs = append(errs, fmt.Errorf("device %s: want what others use of at least 0, have %s", d.ID, d.Others))
		}
		seen[d.ID] = true
	}
	return errors.Join(errs...)
}

// Effects carries out decisions. Every call may block, ends with its context, and may come from any goroutine. One
// instance has one call at a time, beside Adapt. Calls are repeated after a failure: each must be safe to repeat.
type Effects interface {
	// Start creates an instance of f, to be awake under the grant. It returns its real ID, which may differ from id,
	// when the process was spawned. Whatever sees an instance die must report it as [api.Gone].
	Start(ctx context.Context, f api.Function, id api.InstanceID, g api.Grant) (api.InstanceID, error)
	// Wake returns when the instance is awake. [ErrElsewhere]: it sleeps on, and another one starts instead.
	Wake(ctx context.Context, i api.InstanceStatus, g api.Grant) (api.InstanceStatus, error)
	// Sleep drains an instance and returns when it sleeps, or deeper. Grants with a lower epoch are void from then on.
	// If i.Spare is not nil, a sleeper's pod gives up that part of its request, if Kubernetes allows it.
	Sleep(ctx context.Context, i api.InstanceStatus, level api.Level, epoch uint64, drain api.Drain) (api.InstanceStatus, error)
	// Fence voids every grant and order with a lower epoch, also those on their way, and returns the status after that.
	Fence(ctx context.Context, i api.InstanceStatus, epoch uint64) (api.InstanceStatus, error)
	// Stop drains an instance and ends it. nil: no process is left. i.Epoch is the epoch of this order. [ErrEnding]: it
	// holds its memory until it is reported as [api.Gone].
	Stop(ctx context.Context, i api.InstanceStatus, drain api.Drain) error
	// Adapt changes the adapters that the function declares. An *[api.Error] with status 501: only a new instance can
	// have them.
	Adapt(ctx context.Context, i api.InstanceStatus, list []api.Adapter) error
	// State polls an instance for its status.
	State(ctx context.Context, i api.InstanceStatus) (api.InstanceStatus, error)
	// Grant lets activators wake a sleeping instance until g expires.
	Grant(ctx context.Context, g api.Grant) error
	// Revoke withdraws grants up to g's epoch from activators. Its success proves nothing: see Fence.
	Revoke(ctx context.Context, g api.Grant) error
	// Fail answers all requests that wait for a function with err.
	Fail(ctx context.Context, f api.FunctionName, err *api.Error) error
}

// ErrElsewhere says that the function got other devices than those that the instance sleeps on.
var ErrElsewhere = errors.New("another instance comes up in its place, where there were devices to be had")

// ErrEnding says that the instance will end by itself.
var ErrEnding = errors.New("it is ending, and its process is not gone yet")
