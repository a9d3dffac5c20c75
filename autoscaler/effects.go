package autoscaler

import (
	"context"
	"errors"

	"github.com/rouse-dev/rouse/api"
)

// Effects is what the autoscaler does to the world. Every call may block, must
// end when its context ends, and may come from any goroutine; there is at most
// one call at a time for one instance, but for Adapt. Calls repeat after a failure, so each must
// be safe to repeat.
type Effects interface {
	// Start creates an instance of f, to be awake under the grant, and returns the ID that it
	// really has: id, or another where instances are named elsewhere. It returns when the
	// process was spawned; reports of the instance tell the rest. An instance that dies must
	// be reported as [api.Gone] by what sees it die.
	Start(ctx context.Context, f api.Function, id api.InstanceID, g api.Grant) (api.InstanceID, error)
	// Wake wakes a sleeping instance and returns when it is awake. [ErrElsewhere] says that it
	// sleeps on, and was sent no order: another of its function comes up in its place.
	Wake(ctx context.Context, i api.InstanceStatus, g api.Grant) (api.InstanceStatus, error)
	// Sleep drains an instance as drain says, puts it to sleep, or deeper, and returns when
	// it sleeps. Grants with a lower epoch are worth nothing from then on. Where i.Spare is not nil, the pod of a sleeper
	// gives that up, if Kubernetes lets it: the status that is returned says what it has.
	Sleep(ctx context.Context, i api.InstanceStatus, level api.Level, epoch uint64, drain api.Drain) (api.InstanceStatus, error)
	// Fence makes every grant and order with a lower epoch worthless at the instance, those on
	// their way included, and returns the status that it has after that. It changes nothing else.
	Fence(ctx context.Context, i api.InstanceStatus, epoch uint64) (api.InstanceStatus, error)
	// Stop drains an instance as drain says and ends it. nil says that no process is left,
	// be it that there was none. i.Epoch is that of this order. [ErrEnding] says that it can't be kept from ending any
	// more and is not gone yet: it is reported as [api.Gone] when it is, and until then holds what it held.
	Stop(ctx context.Context, i api.InstanceStatus, drain api.Drain) error
	// Adapt makes the adapters that an instance has of its function's declaration those of list. An
	// *[api.Error] with status 501 says that only an instance that is started anew can have them.
	Adapt(ctx context.Context, i api.InstanceStatus, list []api.Adapter) error
	// State asks an instance how it is.
	State(ctx context.Context, i api.InstanceStatus) (api.InstanceStatus, error)
	// Grant lets activators wake a sleeping instance until the grant expires.
	Grant(ctx context.Context, g api.Grant) error
	// Revoke takes all grants of the instance up to g's epoch back from activators, so that they
	// don't try what the instance refuses. Nothing is concluded from its end: see Fence.
	Revoke(ctx context.Context, g api.Grant) error
	// Fail tells activators to answer all that waits for a function with err.
	Fail(ctx context.Context, f api.FunctionName, err *api.Error) error
}

// ErrElsewhere is why an instance was not woken whose function got other devices than those
// that it sleeps on.
var ErrElsewhere = errors.New("another instance comes up in its place, where there were devices to be had")

// ErrEnding is why a stop is not over whose instance will end by itself.
var ErrEnding = errors.New("it is ending, and its process is not gone yet")
