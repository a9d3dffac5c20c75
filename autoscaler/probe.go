package autoscaler

import (
	"context"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
)

// mostMisses is the number of consecutive unanswered probes after which an instance counts as lost.
const mostMisses = 3

// probe polls instances of f that have been silent for too long, in case a report was lost. It returns the time when
// the next poll is due; zero: none is.
func (a *loop) probe(f *function, now time.Time) (next time.Time) {
	for _, known := range f.Instances {
		i := a.instances[known.Status.Instance]
		if i.Probing || i.Doing != decide.Nothing || !i.Reported || !i.matters() {
			continue
		}
		if t := i.Heard.Add(probeAfter); t.After(now) {
			next = earlier(next, t)
			continue
		}
		a.calls.poll(i)
	}
	return next
}

// matters reports whether requests or a change under way depend on i's state.
func (i *instance) matters() bool {
	switch i.Status.State {
	case api.Awake:
		return i.f.Waiting > 0
	case api.Asleep:
		return i.f.Waiting > 0 || i.f.Running > 0 && !i.f.Serving
	}
	return true
}

// poll asks an instance for its status.
func (a *calls) poll(i *instance) {
	i.Probing, i.Heard = true, a.now
	s := i.Status
	a.call(&call{Kind: callState, Function: i.f.Spec.Name, i: i}, a.cfg.CallTimeout, func(ctx context.Context) returned {
		got, err := a.fx.State(ctx, s)
		return returned{Status: got, Err: newFailure(err)}
	})
}

// polled handles an instance's answer to a poll.
func (a *calls) polled(c *call, s api.InstanceStatus, err error) {
	i := c.i
	if i == nil {
		return
	}
	i.Probing = false
	if a.instances[c.Asked] != i {
		return
	}
	if err == nil {
		a.merge(s, a.now)
		return
	}
	a.log.Debug("an instance does not answer", "function", c.Function, "instance", c.Asked, "error", err)
	// A starting instance may not answer yet: its time limit watches over it.
	if i.Misses++; i.Misses >= mostMisses && i.Status.State != api.Starting {
		i.Lost = err.Error()
	}
}
