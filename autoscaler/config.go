package autoscaler

import (
	"cmp"
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

// Config configures an autoscaler. The zero value is not valid: it lacks devices. Its JSON, which a record contains, has what decisions
// depend on.
type Config struct {
	// Devices are the memories that the autoscaler allocates, a host's first; see [inventory.Discover]. In a cluster
	// each node has its host's memory, [inventory.HostOf], and its GPUs.
	Devices []inventory.Device `json:"-"`
	// Term is the leader's term, higher than any earlier leader's: instances that have heard of it refuse orders and
	// grants of earlier leaders. 0: there is no other autoscaler, and epochs are ordered by the machine's clock across
	// restarts.
	Term uint64 `json:"-"`
	// Policy holds the parameters of decisions; zero fields take their defaults.
	Policy decide.Policy
	// AssumedMemory is the host memory assumed for a CPU function that declares none, until it has been measured.
	// Default 512 MiB.
	AssumedMemory api.Bytes
	// StopTimeout is how long stopping an instance may take in addition to its draining. Default 30 s.
	StopTimeout time.Duration
	// CallTimeout bounds calls that only pass a message on. Default 5 s.
	CallTimeout time.Duration
	// Memory returns what was learned earlier; nil: nothing was.
	Memory Memory `json:"-"`
	// Usage was returned by [Autoscaler.SaveUsage] of an earlier process, and is counted further; nil: there is none.
	Usage *usage.Saved `json:"-"`
	// Hold tells activators how many GPUs an instance holds while it is awake; 0: it is gone. It must not block; nil: nobody is told.
	Hold func(f api.FunctionName, id api.InstanceID, gpus float64) `json:"-"`
	// Traces exports the spans of wakes; nil: they are not exported.
	Traces *waketrace.Exporter `json:"-"`
	// Record configures the recording of all that decisions depend on; see [Replay]. Its zero value records nothing.
	Record flight.Config `json:"-"`
	// Source is the source of emitted events. Default "/autoscaler".
	Source string
}

const (
	// assumedResidue is the memory that a sleeping process is assumed to keep on each of its GPUs if it does not report it.
	assumedResidue = api.GiB
	// demandTTL is how long a demand counts after its last report; activators repeat it each second.
	demandTTL = 15 * time.Second
	// probeAfter is how long an instance may be silent before it is polled, if it is starting, waking or draining or its function has waiting
	// requests.
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

// Validate reports what is wrong with c; nil if nothing is.
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
