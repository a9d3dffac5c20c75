package autoscaler

import (
	"context"
	"errors"

	"github.com/rouse-dev/rouse/api"
)

// Effects carries out the autoscaler's decisions. Every call may block, must end when its context ends, and may come from
// any goroutine. There is at most one call at a time for one instance, except for Adapt. Calls are repeated after a
// failure, so each must be safe to repeat.
type Effects interface {
	// Start creates an instance of f, to be awake under the grant. It returns the instance's real ID, which differs from
	// id if instances are named elsewhere. It returns when the process was spawned; the instance's reports tell the rest.
	// Whatever sees an instance die must report it as [api.Gone].
	Start(ctx context.Context, f api.Function, id api.InstanceID, g api.Grant) (api.InstanceID, error)
	// Wake wakes a sleeping instance and returns when it is awake. [ErrElsewhere]: it was sent no order and sleeps on;
	// another instance of its function starts instead.
	Wake(ctx context.Context, i api.InstanceStatus, g api.Grant) (api.InstanceStatus, error)
	// Sleep drains an instance, puts it to sleep, or deeper, and returns when it sleeps. Grants with a lower epoch are
	// void from then on. If i.Spare is not nil, a sleeper's pod gives up that part of its request, if Kubernetes allows
	// it: the returned status says what it has.
	Sleep(ctx context.Context, i api.InstanceStatus, level api.Level, epoch uint64, drain api.Drain) (api.InstanceStatus, error)
	// Fence makes every grant and order with a lower epoch void at the instance, also those on their way, and returns its
	// status after that. It changes nothing else.
	Fence(ctx context.Context, i api.InstanceStatus, epoch uint64) (api.InstanceStatus, error)
	// Stop drains an instance and ends it. It returns nil if no process is left or there was none. i.Epoch is the epoch
	// of this order.
	// [ErrEnding]: the instance can't be kept from ending but still exists. It holds its memory until it is reported as [api.Gone].
	Stop(ctx context.Context, i api.InstanceStatus, drain api.Drain) error
	// Adapt changes the instance's adapters that its function declares to list. An *[api.Error] with status 501 says that
	// only a new instance can have them.
	Adapt(ctx context.Context, i api.InstanceStatus, list []api.Adapter) error
	// State polls an instance for its status.
	State(ctx context.Context, i api.InstanceStatus) (api.InstanceStatus, error)
	// Grant lets activators wake a sleeping instance until the grant expires.
	Grant(ctx context.Context, g api.Grant) error
	// Revoke withdraws all grants of the instance up to g's epoch from activators, so that they don't try what the
	// instance refuses. Its success proves nothing: see Fence.
	Revoke(ctx context.Context, g api.Grant) error
	// Fail tells activators to answer all requests that wait for a function with err.
	Fail(ctx context.Context, f api.FunctionName, err *api.Error) error
}

// ErrElsewhere says that an instance was not woken because its function got other devices than those it sleeps on.
var ErrElsewhere = errors.New("another instance comes up in its place, where there were devices to be had")

// ErrEnding says that a stop is not complete: the instance will end by itself.
var ErrEnding = errors.New("it is ending, and its process is not gone yet")
