package knative

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	networkingclient "knative.dev/networking/pkg/client/clientset/versioned"
	servingclient "knative.dev/serving/pkg/client/clientset/versioned"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/internal/bell"
	"github.com/rouse-dev/rouse/internal/localhttp"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// Config configures a fleet. The zero value takes every default.
type Config struct {
	// Term is the leader's term, the same as the autoscaler's: a new process in a pod refuses orders of earlier leaders. 0: there
	// are no terms.
	Term uint64
	// ProvisionTimeout is how long the timeouts of a start, and of its requests, are paused while a node is being added for its pod.
	// Default 15 min.
	ProvisionTimeout time.Duration
	// NodesOnDemand says that nodes are added when pods need them. If false, that is assumed if a node is a cloud's or Karpenter's,
	// or an event of a node autoscaler was seen.
	NodesOnDemand bool
	// KeepRequests keeps the CPU and memory requests of sleepers' pods, although Kubernetes could resize them in place.
	KeepRequests bool
	// JoinTimeout is how long a running container may take to join before it is examined. Default 10 s.
	JoinTimeout time.Duration
	// CreateTimeout is how long a Deployment may take to create a pod. Default 20 s.
	CreateTimeout time.Duration
	// GPUResources are extended resources that are GPUs, in addition to those of [api.GPUMakers].
	GPUResources []string
	// DeviceMemory is the memory assumed for GPUs of nodes without a label for it. Default 80 GiB.
	DeviceMemory api.Bytes
	// MemoryShare is the part of the nodes' allocatable memory that functions may use. Default 1.
	MemoryShare float64
}

func (c Config) withDefaults() Config {
	c.ProvisionTimeout = cmp.Or(c.ProvisionTimeout, 15*time.Minute)
	c.JoinTimeout = cmp.Or(c.JoinTimeout, 10*time.Second)
	c.CreateTimeout = cmp.Or(c.CreateTimeout, 20*time.Second)
	c.DeviceMemory = cmp.Or(c.DeviceMemory, 80*api.GiB)
	c.MemoryShare = cmp.Or(c.MemoryShare, 1)
	return c
}

func (c Config) firstEpoch() uint64 {
	if c.Term == 0 {
		return 0
	}
	return api.FirstEpoch(c.Term)
}

// Validate reports what is wrong with c; nil if nothing is.
func (c Config) Validate() error {
	var errs []error
	if c.ProvisionTimeout < 0 || c.JoinTimeout < 0 || c.CreateTimeout < 0 {
		errs = append(errs, errors.New("the timeouts of provisioning, joining and creating must be at least 0"))
	}
	if c.DeviceMemory < 0 || c.MemoryShare < 0 || c.MemoryShare > 1 {
		errs = append(errs, errors.New("want a device memory of at least 0 and a memory share from 0 to 1"))
	}
	for _, r := range c.GPUResources {
		if domain, name, found := strings.Cut(r, "/"); !found || domain == "" || name == "" {
			errs = append(errs, fmt.Errorf("the GPU resource %q: want an extended resource, DOMAIN/NAME", r))
		}
	}
	return errors.Join(errs...)
}

// Advice returns advice for missing memory and GPUs in a cluster.
func Advice() decide.Advice {
	return decide.Advice{Place: "the cluster", Memory: "add a node",
		Devices: "lower the function's limit of GPUs, or see what kubectl describe node says of GPUs"}
}

// Activators are all activators of the cluster. Its methods are safe for concurrent use.
type Activators interface {
	// Grant sends g to all known activators; nil if there are none.
	Grant(ctx context.Context, g api.Grant) error
	// Revoke withdraws g; it fails if a living activator can't be reached.
	Revoke(ctx context.Context, g api.Grant) error
	// Fail answers all requests that wait for f.
	Fail(ctx context.Context, f api.FunctionName, err *api.Error) error
	// Tell sends an instance's status to all activators. It never blocks, keeps the order per instance, and remembers the last one
	// for later activators, until Gone.
	Tell(r control.InstanceReport)
}

// Core makes the decisions: *[autoscaler.Autoscaler]. None of its methods block.
type Core interface {
	PutFunction(spec api.Function)
	RemoveFunction(name api.FunctionName)
	ObserveInstance(s api.InstanceStatus)
	SetDevices(devices []inventory.Device)
	SetRooms(rooms []inventory.Room, unmanaged []inventory.UnmanagedPod)
	SetElastic(on bool)
	NotePodSteps(f api.FunctionName, id api.InstanceID, path api.Path, steps ...waketrace.Step)
}

// idleConnection is shorter than instances keep idle connections open.
const idleConnection = 90 * time.Second

// Deps are a fleet's dependencies. All are required except Transport and Registry.
type Deps struct {
	Kube       kubernetes.Interface
	Serving    servingclient.Interface
	Networking networkingclient.Interface
	Activators Activators
	// Transport reaches pods. Default [localhttp.New].
	Transport http.RoundTripper
	// Registry gets the metrics of dual pods. Default: none.
	Registry *prometheus.Registry
	Log      *slog.Logger
}

// Fleet implements [autoscaler.Effects] in a cluster. See [New]. Its methods are safe for concurrent use.
type Fleet struct {
	cfg    Config
	deps   Deps
	log    *slog.Logger
	watch  *watch
	core   Core
	costs  bell.Bell // a pod's deletion cost may be outdated
	stale  bell.Bell // the nodes' rooms may have changed
	pairs  bell.Bell // a plan of pairs may be due
	naming bell.Bell // models' names may have changed owners
	dual   *dualMetrics
	fenced fenced

	mu        sync.Mutex // guards all below and their contents; never held over a call to the cluster or a pod
	revisions map[api.FunctionName]*revision
	pods      map[api.InstanceID]*pod
	leaving   map[api.InstanceID]*pod // requesters and providers that are being deleted and may still run
	wanted    int                     // the number of the last want

	departures map[types.UID]*waketrace.Span // of pods that are deleted for a wake, until they are gone
	expiring   map[types.UID]expiring
	ended      map[types.UID]bool // pods that were ours, or count until they are gone, while they exist
	nodes      map[string]*node
	devices    []inventory.Device            // as last given to the core
	renamed    map[api.DeviceID]api.DeviceID // the GPUs' names at that time, by their present names
	rooms      []inventory.Room              // as last given to the core
	elastic    bool                          // as last given to the core
	pooled     bool                          // see [pooled]
	unmanaged  []inventory.UnmanagedPod      // as last given to the core
	ending     map[types.UID]bool            // pods that are about to be deleted, while rooms are given
	rigid      map[string]bool               // nodes that don't resize pods
	changed    func(n api.FunctionName)      // reconciles the PodAutoscaler again; does not block
	parting    parting
	lost       map[api.FunctionName][]string // names that a service has lost, with reasons
}

var (
	_ autoscaler.Effects = (*Fleet)(nil)
	_ Core               = (*autoscaler.Autoscaler)(nil)
)

// New returns a fleet that watches nothing yet. The order is: New, [Fleet.Sync], [autoscaler.New] with [Fleet.Devices],
// [Fleet.Attach], [NewController], then [Fleet.Run] and the controller's RunContext.
func New(cfg Config, deps Deps) (*Fleet, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Transport == nil {
		deps.Transport = localhttp.New(4, idleConnection)
	}
	f := &Fleet{
		cfg: cfg.withDefaults(), deps: deps, log: deps.Log, watch: newWatch(deps),
		costs:     bell.New(),
		stale:     bell.New(),
		revisions: make(map[api.FunctionName]*revision),
		pods:      make(map[api.InstanceID]*pod),
		leaving:   make(map[api.InstanceID]*pod),

		departures: make(map[types.UID]*waketrace.Span),
		expiring:   make(map[types.UID]expiring),
		ended:      make(map[types.UID]bool),
		pairs:      bell.New(),
		naming:     bell.New(),
		dual:       newDualMetrics(),
		nodes:      make(map[string]*node),
		renamed:    make(map[api.DeviceID]api.DeviceID),
		ending:     make(map[types.UID]bool),
		rigid:      make(map[string]bool),
		changed:    func(api.FunctionName) {},
		parting:    parting{some: bell.New()},
	}
	if deps.Registry != nil {
		if err := f.dual.register(deps.Registry); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Sync starts watching the cluster and returns when all existing objects are known. The watches end with ctx. It changes nothing, so
// a process that does not lead may call it too.
func (f *Fleet) Sync(ctx context.Context) error {
	if err := f.watch.sync(ctx); err != nil {
		return err
	}
	f.takeStock()
	return nil
}

// Devices returns the cluster's memories, a host's first. Call it after [Fleet.Sync].
func (f *Fleet) Devices() []inventory.Device {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.devices
}

// Attach sets the autoscaler that the fleet works for. Call it before Run.
func (f *Fleet) Attach(a Core) { f.core = a }

// Run follows the cluster until ctx ends, and the context of Sync too: it adopts pods, reports their troubles and keeps the devices
// and deletion costs current. Call it once, on the leader only.
func (f *Fleet) Run(ctx context.Context) error {
	if err := f.follow(); err != nil {
		return err
	}
	if err := f.followNames(); err != nil {
		return err
	}
	if err := f.followAdapters(); err != nil {
		return err
	}
	var background sync.WaitGroup
	background.Go(func() { f.naming.Each(ctx, f.settleNames) })
	background.Go(func() { f.askAll(ctx) })
	background.Go(func() { f.keepCosts(ctx) })
	background.Go(func() { f.keepPairs(ctx) })
	background.Go(func() { f.keepRooms(ctx) })
	background.Go(func() { f.keepParting(ctx) })
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			background.Wait()
			f.watch.wait()
			return nil
		case <-tick.C:
			f.examineAll(ctx, &background)
		}
	}
}

// pollEvery is how often pods that have not joined are examined: no watch tells that time has passed.
const pollEvery = time.Second
