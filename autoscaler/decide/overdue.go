package decide

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// stopOverdue stops instances that exceed their function's time limits, and refuses held requests of functions whose
// starts keep failing.
func (p *plan) stopOverdue() {
	for _, f := range p.fs {
		for _, i := range f.instances {
			if !f.Undeclared && i.Doing == Nothing { // a call under way has a time limit of its own
				p.stopIfLate(i)
			}
		}
	}
	for _, f := range p.fs {
		p.refuse(f)
	}
}

// stopIfLate stops i if it is lost or takes too long.
func (p *plan) stopIfLate(i *instance) {
	if i.Lost != "" && p.due(i.RetryAt) {
		p.stop(i, 0, "it is lost: "+i.Lost)
		return
	}
	spec := &i.f.Spec
	switch i.phase {
	case phaseRising:
		if i.Status.OnItsWay() {
			return // adding nodes and fetching models have limits of their own
		}
		limit, name := spec.StartTimeout, "start"
		if i.From < inventory.Stopped && !i.Unloaded {
			limit, name = spec.WakeTimeout, "wake"
		}
		if p.due(i.Since.Add(limit+Slack)) && p.due(i.RetryAt) {
			p.giveUp(i, fmt.Sprintf("the %s takes longer than %s (%s-timeout)", name, short(limit), name))
		}
	case phaseUnhealthy:
		if p.failing(i.f) && p.due(i.RetryAt) {
			reason := fmt.Sprintf("unhealthy after %s in a row", many(i.f.Failures, "failure"))
			if !p.refuses(i.f) { // whose reason has the error
				reason += ": " + i.f.LastError
			}
			p.stop(i, 0, reason)
		} else if p.stuck(i) && p.due(i.RetryAt) {
			p.stop(i, 0, fmt.Sprintf("%s in a row on %s, and another GPU is free: %s", many(i.f.Failures, "failure"), i.f.FailedOn[0], i.f.LastError))
		} else if p.due(i.Since.Add(spec.StartTimeout+Slack)) && p.due(i.RetryAt) {
			p.giveUp(i, fmt.Sprintf("unhealthy for longer than %s: %s", short(spec.StartTimeout), i.Status.Message))
		}
	case phaseAsleep:
		if i.Doubt != "" && !i.reserved() && p.due(i.RetryAt) {
			p.stop(i, 0, i.Doubt)
		} else if i.Failures >= 2 && p.due(i.RetryAt) {
			p.stop(i, 0, fmt.Sprintf("failed %d times in a row: %s", i.Failures, i.f.LastError))
		}
	case phaseFalling:
		limit := p.pol.Drain + spec.WakeTimeout
		if p.due(i.Since.Add(limit+Slack)) && p.due(i.RetryAt) {
			p.stop(i, 0, fmt.Sprintf("draining for longer than %s", short(limit)))
		}
	}
}

// stuck reports whether i would use up its function's last try where earlier ones failed, while another GPU is free: the
// cause may be at that GPU only.
func (p *plan) stuck(i *instance) bool {
	f := i.f
	if f.Failures < MaxFailures-1 || len(f.FailedOn) == 0 || !slices.Equal(f.FailedOn, i.Status.Devices) {
		return false
	}
	spots := p.searchFor(nil, f).spots()
	return len(spots) > 0 && spots[0].class == 0
}

// giveUp stops an instance that failed to come up.
func (p *plan) giveUp(i *instance, fault string) { p.stop(i, 0, fault).Fault = fault }

// failing reports whether f's starts failed too often, or for a reason that retries don't change.
func (p *plan) failing(f *function) bool { return f.Failures >= MaxFailures || f.Hopeless }

// refuses reports whether f's held requests are answered with the failure of its starts.
func (p *plan) refuses(f *function) bool {
	return p.failing(f) && f.awake == 0 && f.asking() && f.FailedAt.After(f.RefusedAt)
}

// refuse answers held requests if f's starts keep failing and no other instance can take them.
func (p *plan) refuse(f *function) {
	if !p.refuses(f) {
		return
	}
	// A runtime's output may have paths; it is for the operator, in the reason of the action.
	const ask = "who operates it finds out why with rouse why, in a cluster kn rouse why"
	err := api.Errorf(http.StatusServiceUnavailable, api.CodeStartFailed,
		"%s could not be brought up, %s in a row: %s", f.Spec.Name, many(f.Failures, "failure"), ask)
	if f.Hopeless {
		err.Message = fmt.Sprintf("%s can't be brought up: %s", f.Spec.Name, ask)
		err.NoRetry = true
	}
	p.fail(f, err.WithRetryAfter(f.RetryAt.Sub(p.now)), fmt.Sprintf("%s in a row, the last: %s", many(f.Failures, "failure"), f.LastError))
}

// asking reports whether a request or an operator waits for an answer.
func (f *function) asking() bool { return f.Order == OrderWake || f.unanswered() }

// unanswered reports whether requests wait that came after the last refusal.
func (f *function) unanswered() bool {
	return f.Waiting > 0 && (f.RefusedAt.IsZero() || later(f.LastRequest, f.WaitingSince).After(f.RefusedAt))
}
