package knative

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler"
	"github.com/rouse-dev/rouse/config"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// Start implements [autoscaler.Effects].
func (f *Fleet) Start(ctx context.Context, spec api.Function, id api.InstanceID, g api.Grant) (api.InstanceID, error) {
	d, err := f.deployment(spec.Name)
	if err != nil {
		return "", fmt.Errorf("start %s: %w", id, err)
	}
	f.scaler.awaitQuota(ctx, spec.Name)
	f.mu.Lock()
	r := f.revision(spec.Name)
	if r == nil {
		f.mu.Unlock()
		return "", fmt.Errorf("start %s: there is no revision %s of the class %s any more", id, spec.Name, config.Class)
	}
	r.adoptScale(d)
	if r.spec.DualPods {
		w := f.pairs.addWant(ctx, r, g, "")
		f.mu.Unlock()
		s, err := f.pairs.awaitWant(w)
		if err != nil {
			return "", fmt.Errorf("start %s: %w", id, err)
		}
		return s.Instance, nil
	}
	if err := f.scaler.awaitScale(ctx, r, func() bool { return !r.scalingDown() }); err != nil {
		f.mu.Unlock()
		return "", fmt.Errorf("start %s: wait until the pods that are to go are being deleted: %w", id, err)
	}
	s := r.addStart(g)
	f.mu.Unlock()
	f.changed(spec.Name)
	if err = f.scaler.setScale(ctx, r, d); err == nil {
		err = f.scaler.awaitCreated(ctx, r, func() bool { return s.pod != "" || s.err != nil })
	}
	f.mu.Lock()
	real, open := s.pod, r.dropStart(s)
	if err = cmp.Or(s.err, err); real == "" {
		r.trouble = &trouble{"StartFailed", err.Error()}
	}
	f.mu.Unlock()
	if real != "" { // perhaps after an error
		return real, nil
	}
	f.changed(spec.Name)
	if !open {
		return "", fmt.Errorf("start %s: %w", id, err)
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if err := f.scaler.setScale(undo, r, d); err != nil {
		f.log.Warn("the scale of a start that failed is not taken back yet", "function", spec.Name, "error", err)
	}
	return "", fmt.Errorf("start %s: %w", id, err)
}

const undoTimeout = 5 * time.Second

// Wake implements [autoscaler.Effects].
func (f *Fleet) Wake(ctx context.Context, i api.InstanceStatus, g api.Grant) (api.InstanceStatus, error) {
	f.mu.Lock()
	if p := f.pods[i.Instance]; p != nil && p.role == control.RoleProvider {
		w := f.pairs.addWant(ctx, f.revision(p.function), g, p.id)
		f.mu.Unlock()
		s, err := f.pairs.awaitWant(w)
		if err == nil && s.Instance != i.Instance {
			return i, fmt.Errorf("%s: %w", s.Instance, autoscaler.ErrElsewhere)
		}
		return s, err
	}
	f.mu.Unlock()
	if err := f.resizer.growPod(ctx, i.Instance); err != nil {
		return i, fmt.Errorf("wake %s: %w", i.Instance, err)
	}
	return f.callInstance(i, g.Epoch, func(p *pod) *bool { return &p.rising }, func(c *control.Client, e api.Endpoint) (api.InstanceStatus, error) {
		return c.Wake(ctx, e, g)
	})
}

// Stop implements [autoscaler.Effects]. It returns when the process is gone and nothing holds memory. It waits for its
// turn; see [scaler.awaitDeletionTurn]. If Kubernetes deletes another pod all the same, Stop fails and this pod lives
// on.
func (f *Fleet) Stop(ctx context.Context, i api.InstanceStatus, drain api.Drain) error {
	f.mu.Lock()
	p, old := f.pods[i.Instance], f.tracker.expiringPod(i.Instance)
	atOnce := p != nil && endsAtOnce(p.object)
	f.mu.Unlock()
	switch {
	case p == nil && old != nil:
		return f.endProcess(ctx, old, drain.Limit)
	case p == nil:
		return nil
	}
	if p.role == control.RoleProvider {
		f.emptyInstance(ctx, p, i.Epoch, drain)
		return f.pairs.deleteProvider(ctx, p)
	}
	var noted sync.WaitGroup
	noted.Go(func() { f.tracker.writeDevices(ctx, p) })
	atOnce = f.emptyInstance(ctx, p, i.Epoch, drain) && atOnce
	noted.Wait()
	d, err := f.deployment(i.Function)
	if err != nil {
		return fmt.Errorf("stop %s: %w", i.Instance, err)
	}
	r, err := f.lowerScaleFor(ctx, p, d)
	if err != nil {
		return fmt.Errorf("stop %s: %w", i.Instance, err)
	}
	if r == nil {
		return nil
	}
	if err := f.scaler.deleteByScale(ctx, r, p, d, atOnce); err != nil {
		return f.abandonStop(p, err)
	}
	return f.endProcess(ctx, p, drain.Limit)
}

// endsAtOnce reports whether an empty instance's pod is deleted without its grace period: it has no other container of
// its user's, and the policy of deletions knows it by its annotations.
func endsAtOnce(o *corev1.Pod) bool {
	return ourAnnotation(o.Annotations) != "" && len(o.Spec.Containers) <= 2
}

// lowerScaleFor lowers the wanted scale by p and the pods that must go with it. It returns nil if p is being deleted
// already.
func (f *Fleet) lowerScaleFor(ctx context.Context, p *pod, d *appsv1.Deployment) (*revision, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.revision(p.function)
	if r == nil || p.ended {
		return nil, nil
	}
	before, err := f.scaler.awaitDeletionTurn(ctx, r, p)
	if err != nil || p.ended {
		return nil, err
	}
	r.adoptScale(d)
	if p.status.Unplaced() { // its start took too long
		r.trouble = &trouble{reasonUnschedulable, p.status.Message}
	}
	p.freed, p.held = waketrace.From(ctx), true
	if !p.stopping {
		for _, q := range append(before, p) {
			r.lowerFor(q)
		}
	}
	f.scaler.updateCosts(r)
	return r, nil
}
