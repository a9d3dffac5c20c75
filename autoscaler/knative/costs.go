package knative

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// annotationCost is Kubernetes': of equally ready pods of a ReplicaSet, the cheapest is deleted first.
const annotationCost = "controller.kubernetes.io/pod-deletion-cost"

// Awake pods have the default: most pods are never written to.
const (
	costAwake    = 0
	costStarting = -50
	costAsleep   = -100 // minus the level
	costIll      = -500
	costStopping = -1000
)

func costOf(o *corev1.Pod) int {
	n, _ := strconv.Atoi(o.Annotations[annotationCost])
	return n
}

func (sc *scaler) updateCosts(r *revision) {
	dirty := false
	for _, p := range r.pods {
		switch s := p.status; {
		case p.stopping:
			p.cost = costStopping
		case p.role == control.RoleRequester && p.pair.bound == "":
			p.cost = costAsleep
		case p.role == control.RoleRequester:
			p.cost = costAwake
		case s.State == api.Unhealthy:
			p.cost = costIll
		case s.State == api.Asleep:
			p.cost = costAsleep - int(s.Level)
		case s.State == api.Starting:
			p.cost = costStarting
		default:
			p.cost = costAwake
		}
		dirty = dirty || p.cost != p.patched
	}
	if dirty && len(r.pods) > 1 {
		sc.costs.Ring()
	}
}

func (sc *scaler) keepCosts(ctx context.Context) {
	sc.costs.Each(ctx, func() {
		for _, p := range sc.outdatedCosts() {
			if err := sc.writeCost(ctx, p); err != nil && ctx.Err() == nil {
				sc.log.Debug("a pod's deletion cost could not be written", "pod", p.id, "error", err)
			}
		}
	})
}

// outdatedCosts locks.
func (sc *scaler) outdatedCosts() []*pod {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	var ps []*pod
	for _, r := range sc.revisions {
		for _, p := range r.pods {
			if len(r.pods) > 1 && p.cost != p.patched {
				ps = append(ps, p)
			}
		}
	}
	return ps
}

func (sc *scaler) writeCost(ctx context.Context, p *pod) error {
	sc.mu.Lock()
	cost, o := p.cost, p.object
	same := p.ended || cost == p.patched
	sc.mu.Unlock()
	if same {
		return nil
	}
	err := sc.traceWrite(ctx, func() error {
		return sc.annotate(ctx, o, annotationCost, strconv.Itoa(cost))
	}, "deletion cost of %s", p.id)
	if err != nil {
		return fmt.Errorf("write the deletion cost of %s: %w", p.id, err)
	}
	sc.mu.Lock()
	p.patched = cost
	sc.mu.Unlock()
	return nil
}

// markForDeletion makes p the first pod of its revision to be deleted. It waits up to [markTimeout] until the
// controller's cache probably has the change.
func (sc *scaler) markForDeletion(ctx context.Context, p *pod) error {
	sc.mu.Lock()
	r := sc.revisions[p.function]
	alone := r == nil || len(r.pods) < 2
	sc.mu.Unlock()
	if alone {
		return nil
	}
	if err := sc.writeCost(ctx, p); err != nil {
		return err
	}
	until, cancel := context.WithTimeout(ctx, markTimeout)
	defer cancel()
	_ = poll(until, markTimeout/50, func() bool {
		sc.mu.Lock()
		defer sc.mu.Unlock()
		return p.ended || costOf(p.object) == costStopping
	})
	return context.Cause(ctx)
}

const markTimeout = time.Second
