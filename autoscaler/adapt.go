package autoscaler

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// adapted is what is known of an instance's adapters. It belongs to the loop.
type adapted struct {
	known    bool // has is what the instance was started with, or was told last
	has      []api.Adapter
	telling  bool
	failures int
}

// adapt tells an instance of the adapters that its function declares, where they may not be what it has.
// It is tried again until the instance has them. One whose runtime takes adapters at its start only is
// replaced.
func (a *Autoscaler) adapt(i *instance) {
	f := i.f
	want := f.Spec.Runtime.Adapters
	switch {
	case i.adapters.telling, i.Outdated, f.Undeclared, !i.reported:
		return
	case i.adapters.known && slices.Equal(i.adapters.has, want):
		return
	case !i.adapters.known && len(want) == 0 && len(i.Status.Adapters)+len(i.Status.Standby) == 0:
		return
	case i.Status.State != api.Awake && i.Status.State != api.Asleep && i.Status.State != api.Draining:
		return // it is told when it has come up
	}
	i.adapters.telling = true
	status := i.Status
	pause := time.Duration(0)
	if i.adapters.failures > 0 {
		pause = backoff(i.adapters.failures)
	}
	a.call(&call{Kind: callAdapt, Function: f.Spec.Name, Adapters: want, i: i}, pause+adaptTimeout, func(ctx context.Context) returned {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		return returned{Err: newFailure(a.fx.Adapt(ctx, status, want))}
	})
}

// adaptTimeout bounds a change of adapters, which may have to be fetched.
const adaptTimeout = 15 * time.Minute

// toldAdapters takes in how an instance took a list of adapters.
func (a *Autoscaler) toldAdapters(i *instance, list []api.Adapter, err error) {
	id := i.Status.Instance
	i.adapters.telling = false
	var refused *api.Error
	switch {
	case err == nil:
		i.adapters.known, i.adapters.has, i.adapters.failures = true, list, 0
	case errors.As(err, &refused) && refused.Status == http.StatusNotImplemented:
		i.Outdated = true
		a.tell(api.Decision{At: a.now, Function: i.f.Spec.Name, Instance: id, Action: actionAdapt, Reason: "its runtime takes adapters at its start only: another takes its place"})
		return
	default:
		if i.adapters.failures++; i.adapters.failures == 1 {
			a.tellError(i.f.Spec.Name, id, actionAdapt, err)
		}
	}
	a.adapt(i)
}

// actionAdapt is what decisions call a change of adapters.
const actionAdapt = "adapt"
