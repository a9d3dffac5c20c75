package knative

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	networkingclient "knative.dev/networking/pkg/client/clientset/versioned"
	"knative.dev/pkg/controller"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
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

// Config configures a fleet.
type Config struct {
	// Term is the leader's, the same as the autoscaler's; 0: none.
	Term uint64
	// ProvisionTimeout is how long timeouts are paused while a node is being added. Default 15 min.
	ProvisionTimeout time.Duration
	// NodesOnDemand: nodes are added when pods need them. If false, the fleet looks for signs of that.
	NodesOnDemand bool
	// KeepRequests keeps the CPU and memory requests of sleepers' pods.
	KeepRequests bool
	// GPUResources are GPUs beside those of [config.GPUMakers].
	GPUResources []string
	// DeviceMemory is for GPUs of nodes without a label. Default 80 GiB.
	DeviceMemory api.Bytes
}

func (c Config) withDefaults() Config {
	c.ProvisionTimeout = cmp.Or(c.ProvisionTimeout, 15*time.Minute)
	c.DeviceMemory = cmp.Or(c.DeviceMemory, 80*api.GiB)
	return c
}

func (c Config) firstEpoch() uint64 {
	if c.Term == 0 {
		return 0
	}
	return decide.FirstEpoch(c.Term)
}

// Validate reports what is wrong with c.
func (c Config) Validate() error {
	var errs []error
	for _, r := range c.GPUResources {
		if domain, name, found := strings.Cut(r, "/"); !found || domain == "" || name == "" {
			errs = append(errs, fmt.Errorf("the GPU resource %q: want an extended resource, DOMAIN/NAME", r))
		}
	}
	return errors.Join(errs...)
}

// Advice returns advice for missing memory and GPUs.
func Advice() decide.Advice {
	return decide.Advice{Place: "the cluster", Memory: "add a node",
		Devices: "lower the function's limit of GPUs, or see what kubectl describe node says of GPUs"}
}

// Activators are all activators of the cluster. It is safe for concurrent use.
type Activators interface {
	granter
	// Tell sends a status to all activators. It never blocks, keeps the order per instance, and remembers the last one
	// for later activators, until Gone.
	Tell(r control.InstanceReport)
}

type granter interface {
	// Grant sends g to all known activators.
	Grant(ctx context.Context, g api.Grant) error
	// Revoke withdraws g; it fails if a living activator can't be reached.
	Revoke(ctx context.Context, g api.Grant) error
	// Fail answers all requests that wait for f.
	Fail(ctx context.Context, f api.FunctionName, err *api.Error) error
}

// Core makes the decisions: *[autoscaler.Autoscaler]. No method blocks.
type Core interface {
	PutFunction(spec api.Function)
	RemoveFunction(name api.FunctionName)
	ObserveInstance(s api.InstanceStatus)
	SetDevices(devices []inventory.Device)
	SetRooms(rooms []inventory.Room, unmanaged []inventory.UnmanagedPod)
	SetElastic(on bool)
	NotePodSteps(f api.FunctionName, id api.InstanceID, path api.Path, steps ...waketrace.Step)
}

// idleConnection is shorter than instances keep idle connections.
const idleConnection = 90 * time.Second

// Deps are a fleet's dependencies. All but Transport and Registry are required.
type Deps struct {
	Kube       kubernetes.Interface
	Serving    servingclient.Interface
	Networking networkingclient.Interface
	Activators Activators
	// Transport reaches pods. Default [localhttp.New].
	Transport http.RoundTripper
	Registry  *prometheus.Registry
	Log       *slog.Logger
}

// Fleet implements [autoscaler.Effects] in a cluster. It is safe for concurrent use.
type Fleet struct {
	*state
	nodes     *nodes
	rooms     *rooms
	resizer   *resizer
	scaler    *scaler
	functions *functions
	tracker   *tracker
	*orders
	granter
	pairs *pairs
	names *modelNames
	// reviewed has the addresses with a proof that was checked within a second.
	reviewed sync.Map
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
	f := &Fleet{state: newState(cfg.withDefaults(), deps), granter: deps.Activators}
	f.nodes = &nodes{state: f.state, byName: make(map[string]*node), renamed: make(map[api.DeviceID]api.DeviceID)}
	f.rooms = &rooms{state: f.state, stale: bell.New(), ending: make(map[types.UID]bool)}
	f.resizer = &resizer{f.state, f.rooms, make(map[string]bool)}
	f.scaler = &scaler{f.state, bell.New()}
	f.functions = &functions{f.state, f.nodes}
	f.tracker = &tracker{f.state, f.nodes, f.rooms, f.resizer, f.scaler, f.functions}
	f.orders = &orders{f.state, f.rooms, f.resizer, f.tracker}
	f.pairs = &pairs{f.state, f.nodes, f.scaler, f.tracker, f.orders, 0}
	f.names = &modelNames{f.state, nil}
	if deps.Registry != nil {
		f.metrics.register(deps.Registry)
	}
	return f, nil
}

// Sync starts watching the cluster and returns when all existing objects are known. The watches end with ctx.
func (f *Fleet) Sync(ctx context.Context) error {
	if err := f.watch.sync(ctx); err != nil {
		return err
	}
	f.readNodes()
	return nil
}

// Devices returns the cluster's memories, a host's first, after [Fleet.Sync].
func (f *Fleet) Devices() []inventory.Device {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.nodes.given
}

// Attach sets the autoscaler that the fleet works for.
func (f *Fleet) Attach(a Core) { f.core = a }

// Run follows the cluster until ctx ends, and the context of Sync too. Call it once, on the leader only.
func (f *Fleet) Run(ctx context.Context) error {
	for _, follow := range []func() error{f.tracker.followPods, f.followNodes, f.names.followNames, f.functions.followAdapters} {
		if err := follow(); err != nil {
			return err
		}
	}
	var loops sync.WaitGroup
	for _, loop := range []func(context.Context){f.names.keepNames, f.tracker.askAll, f.scaler.keepCosts, f.pairs.keepPairs, f.rooms.keepRooms} {
		loops.Go(func() { loop(ctx) })
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			loops.Wait()
			f.stopCalls()
			f.watch.wait()
			return nil
		case <-tick.C:
			f.tracker.examineAll()
		}
	}
}

const pollEvery = time.Second

func (f *Fleet) followNodes() error {
	if _, err := f.watch.nodes.Informer().AddEventHandler(controller.HandleAll(func(any) { f.readNodes() })); err != nil {
		return fmt.Errorf("watch nodes: %w", err)
	}
	return nil
}

func (f *Fleet) readNodes() {
	all, err := f.watch.nodes.Lister().List(labels.Everything())
	if err != nil {
		f.log.Error("the nodes can't be listed", "error", err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nodes.update(all)
	for _, r := range f.revisions { // whether GPUs are shared may have changed
		f.functions.putFunction(r)
	}
}

// declare stores a declaration. news is its problem, or why a start failed, if users have not been told.
func (f *Fleet) declare(ctx context.Context, name api.FunctionName, s scaling) (rev *servingv1.Revision, problem string, news trouble, err error) {
	fn, rev, wrong, err := f.functions.readFunction(ctx, name)
	if err != nil {
		return nil, "", news, err
	}
	f.mu.Lock()
	r := f.revision(name)
	if r == nil {
		f.mu.Unlock()
		return nil, "", news, fmt.Errorf("the revision %s is of another class", name)
	}
	adopted := r.adopted
	r.adopted = true
	f.functions.setDeclaration(r, fn, wrong)
	switch {
	case r.elsewhere():
		if r.declared {
			f.core.RemoveFunction(name)
		}
		r.declared, r.told = false, api.Function{}
	case r.problem == "":
		r.scaling, r.declared = s, true
		f.functions.putFunction(r)
	}
	problem = r.problem
	now := trouble{reasonAnnotation, problem}
	if problem == "" {
		now = *cmp.Or(r.trouble, &trouble{})
	}
	if now != r.warned {
		news = now
	}
	r.warned = now
	f.mu.Unlock()
	if !adopted {
		f.tracker.adoptPods(name)
	}
	return rev, problem, news, nil
}

func (f *Fleet) forgetFunction(name api.FunctionName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.revisions[name]
	if r == nil {
		return
	}
	for _, p := range slices.Concat(r.sortedPods(), slices.Collect(maps.Values(r.providers))) {
		p.stopping = true
		f.tracker.endPod(p, "the revision was deleted")
	}
	r.failWants(fmt.Errorf("the revision %s was deleted", name))
	f.pairsDue.Ring()
	for _, s := range r.starts {
		s.err = fmt.Errorf("the revision %s was deleted", name)
	}
	r.announceAct()
	r.starts = nil
	delete(f.revisions, name)
	f.namesDue.Ring()
	f.core.RemoveFunction(name)
}
