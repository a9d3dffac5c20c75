package autoscaler

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// adapt sends an instance the adapters that its function declares, if it may have others, and repeats that until it
// succeeds. An instance whose runtime takes adapters only at its start is replaced.
func (a *calls) adapt(i *instance) {
	f := i.f
	want := f.Spec.Runtime.Adapters
	switch {
	case i.Telling, i.Outdated, f.Undeclared, !i.Reported:
		return
	case i.AdaptersKnown && slices.Equal(i.Adapters, want):
		return
	case !i.AdaptersKnown && len(want) == 0 && len(i.Status.Adapters)+len(i.Status.Standby) == 0:
		return
	case i.Status.State != api.Awake && i.Status.State != api.Asleep && i.Status.State != api.Draining:
		return // told once it is up
	}
	i.Telling = true
	status := i.Status
	pause := time.Duration(0)
	if i.AdapterFailures > 0 {
		pause = backoff(i.AdapterFailures)
	}
	a.call(&call{Kind: callAdapt, Function: f.Spec.Name, Adapters: want, i: i}, pause+adaptTimeout, func(ctx context.Context) returned {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		return returned{Err: newFailure(a.fx.Adapt(ctx, status, want))}
	})
}

// adaptTimeout bounds a change of adapters, which may include downloads.
const adaptTimeout = 15 * time.Minute

// toldAdapters handles an instance's answer to a list of adapters.
func (a *calls) toldAdapters(i *instance, list []api.Adapter, err error) {
	id := i.Status.Instance
	i.Telling = false
	var refused *api.Error
	switch {
	case err == nil:
		i.AdaptersKnown, i.Adapters, i.AdapterFailures = true, list, 0
	case errors.As(err, &refused) && refused.Status == http.StatusNotImplemented:
		i.Outdated = true
		a.tell(api.Decision{At: a.now, Function: i.f.Spec.Name, Instance: id, Action: actionAdapt, Reason: "its runtime takes adapters at its start only: another takes its place"})
		return
	default:
		if i.AdapterFailures++; i.AdapterFailures == 1 {
			a.tellError(i.f.Spec.Name, id, actionAdapt, err)
		}
	}
	a.adapt(i)
}

// actionAdapt is the action name of a change of adapters in decisions.
const actionAdapt = "adapt"
