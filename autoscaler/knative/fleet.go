package knative

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	networkingclient "knative.dev/networking/pkg/client/clientset/versioned"
	servingclient "knative.dev/serving/pkg/client/clientset/versioned"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler"
	"github.com/rouse-dev/rouse/autoscaler/ledger"
)

// Config is what a fleet may be told. The zero value takes every default.
type Config struct {
	// ScheduleTimeout is how long a pod may find no node before its start counts as failed. Default 30 s.
	ScheduleTimeout time.Duration
	// JoinTimeout is how long a running container may take to join before it is looked at. Default 10 s.
	JoinTimeout time.Duration
	// DeviceMemory is taken for GPUs of nodes without the label nvidia.com/gpu.memory. Default 80 GiB.
	DeviceMemory api.Bytes
	// MemoryShare is the part of the nodes' allocatable memory that functions may use. Default 1.
	MemoryShare float64
}

// Activators are all activators of the cluster.
type Activators interface {
	// Grant gives g to all that are known; nil if there are none.
	Grant(ctx context.Context, g api.Grant) error
	// Revoke takes g back; an error if one that is alive can't be asked.
	Revoke(ctx context.Context, g api.Grant) error
	// Fail answers all that waits for f.
	Fail(ctx context.Context, f api.FunctionName, err *api.Error) error
	// Tell passes an instance's status on. It never blocks, keeps the order per
	// instance, and remembers the last for activators that come later; Gone forgets.
	Tell(r control.InstanceReport)
}

// Core is the decider: *[autoscaler.Autoscaler].
type Core interface {
	PutFunction(spec api.Function)
	RemoveFunction(name api.FunctionName)
	ObserveInstance(s api.InstanceStatus)
	SetDevices(devices []ledger.Device)
}

// Deps are what a fleet works with. All are required but Transport.
type Deps struct {
	Kube       kubernetes.Interface
	Serving    servingclient.Interface
	Networking networkingclient.Interface
	Activators Activators
	// Transport reaches pods. Default [api.NewTransport].
	Transport http.RoundTripper
	Log       *slog.Logger
}

// Fleet is the autoscaler's [autoscaler.Effects] in a cluster. See [New].
type Fleet struct {
	cfg  Config
	deps Deps
	log  *slog.Logger

	mu   sync.Mutex
	core Core
}

var _ autoscaler.Effects = (*Fleet)(nil)
var _ Core = (*autoscaler.Autoscaler)(nil)

// New makes a fleet that watches nothing yet. The order is: New, [Fleet.Sync],
// [autoscaler.New] with [Fleet.Devices], [Fleet.Attach], then [Fleet.Run] and [NewController].
func New(cfg Config, deps Deps) (*Fleet, error) {
	return &Fleet{cfg: cfg, deps: deps, log: deps.Log}, nil
}

// Sync starts to watch the cluster and returns when everything that exists is known.
// What it watches ends with ctx. It changes nothing, so that a process that does not lead may call it.
func (f *Fleet) Sync(ctx context.Context) error { return errors.New("not yet") }

// Devices are the cluster's memories, the host's first. Call it after [Fleet.Sync].
func (f *Fleet) Devices() []ledger.Device { return nil }

// Attach ties the fleet to the autoscaler whose effects it is, before Run.
func (f *Fleet) Attach(a Core) { f.core = a }

// Run follows the cluster until ctx ends: declares functions, adopts pods,
// reports their troubles. It runs on the leader only.
func (f *Fleet) Run(ctx context.Context) error { return errors.New("not yet") }

// Join takes in an instance that introduces itself. Errors are *[api.Error]: 404 for a
// pod or revision that is not known (yet: the sender tries again), 403 for a wrong address,
// 422 for a function whose declaration is wrong.
func (f *Fleet) Join(ctx context.Context, r control.JoinRequest, from netip.Addr, token string) (control.JoinAnswer, error) {
	return control.JoinAnswer{}, errors.New("not yet")
}

// Report takes in an instance's state event. Errors are *[api.Error]: 404 where it has to join
// first, 403 for a wrong token or address. It does not block.
func (f *Fleet) Report(s api.InstanceStatus, from netip.Addr, token string) error {
	return errors.New("not yet")
}

// Resolve finds the revisions that a name stands for: a revision's own, or those of a
// service, the one with most traffic first.
func (f *Fleet) Resolve(name api.FunctionName) []api.FunctionName { return nil }

// Reach says how to call an instance's control paths; an *[api.Error] with status 404 where it has not joined.
func (f *Fleet) Reach(id api.InstanceID) (*control.Client, api.Endpoint, error) {
	return nil, "", errors.New("not yet")
}
