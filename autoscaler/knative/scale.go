package knative

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/rouse-dev/rouse/api"
)

// manager is the fleet's name as a field manager.
const manager = "rouse-autoscaler"

// start is a start that waits for its pod. Both channels have room for the one result.
type start struct {
	grant  api.Grant
	began  time.Time
	pod    chan api.InstanceID
	failed chan error
}

// deployment returns a revision's Deployment, which the revision's own reconciler creates and its PodAutoscaler names.
func (f *Fleet) deployment(name api.FunctionName) (*appsv1.Deployment, error) {
	pa, err := f.watch.pas.Lister().PodAutoscalers(name.Namespace()).Get(name.Name())
	if err != nil {
		return nil, fmt.Errorf("find the Deployment of %s: %w", name, err)
	}
	if ref := pa.Spec.ScaleTargetRef; ref.Kind != "Deployment" {
		return nil, fmt.Errorf("find the Deployment of %s: its scale target is a %s", name, ref.Kind)
	}
	d, err := f.watch.deploymentLister.Deployments(name.Namespace()).Get(pa.Spec.ScaleTargetRef.Name)
	if err != nil {
		return nil, fmt.Errorf("find the Deployment of %s: %w", name, err)
	}
	return d, nil
}

// takeOver reads the wanted scale from a Deployment, if it is not known yet.
func (f *Fleet) takeOver(r *revision, d *appsv1.Deployment) {
	if r.want < 0 {
		r.want = replicas(d)
	}
}

func replicas(d *appsv1.Deployment) int {
	if d.Spec.Replicas == nil {
		return 1
	}
	return int(*d.Spec.Replicas)
}

// live counts the pods that are not being stopped.
func (r *revision) live() int {
	n := 0
	for _, p := range r.pods {
		if !p.stopping {
			n++
		}
	}
	return n
}

// settle waits until over reports that Kubernetes has acted on the last written scale. A scale that falls and rises again before
// that deletes and creates nothing, and a caller that waits for either would wait in vain. It gives up after CreateTimeout. The caller
// holds f.mu, which is released while it waits.
func (f *Fleet) settle(ctx context.Context, r *revision, over func() bool) error {
	limit := time.NewTimer(f.cfg.CreateTimeout)
	defer limit.Stop()
	for late := false; !over() && !late; {
		acted := r.nextAct()
		f.mu.Unlock()
		var err error
		select {
		case <-acted:
		case <-limit.C:
			late = true
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		f.mu.Lock()
		if err != nil {
			return err
		}
	}
	return nil
}

// nextAct returns a channel that is closed when Kubernetes next acts on the scale. The caller holds f.mu.
func (r *revision) nextAct() <-chan struct{} {
	if r.settled == nil {
		r.settled = make(chan struct{})
	}
	return r.settled
}

// acted closes the channel of [revision.nextAct]. The caller holds f.mu.
func (r *revision) acted() {
	if r.settled != nil {
		close(r.settled)
		r.settled = nil
	}
}

// falling reports whether pods have yet to be deleted for a lower scale.
func (r *revision) falling() bool { return r.live() < len(r.pods) }

// setScale writes the wanted number of pods to the Deployment. Concurrent calls write it once.
func (f *Fleet) setScale(ctx context.Context, r *revision, d *appsv1.Deployment) error {
	select {
	case r.patching <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-r.patching }()
	f.mu.Lock()
	want := r.want
	f.mu.Unlock()
	if want < 0 {
		return nil
	}
	patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, want)
	err := f.write(ctx, func() error {
		_, err := f.deps.Kube.AppsV1().Deployments(d.Namespace).Patch(ctx, d.Name, types.MergePatchType, []byte(patch),
			metav1.PatchOptions{FieldManager: manager}, "scale")
		return err
	}, "scale of %s to %d", d.Name, want)
	if err != nil {
		return fmt.Errorf("scale %s to %d: %w", r.name, want, err)
	}
	return nil
}

// keepScale sets the Deployment back to the wanted scale if it was changed; otherwise it writes nothing.
func (f *Fleet) keepScale(ctx context.Context, name api.FunctionName) error {
	d, err := f.deployment(name)
	if err != nil {
		if apierrors.IsNotFound(err) {
			return nil // the next pass comes with the Deployment
		}
		return err
	}
	f.mu.Lock()
	r := f.revision(name)
	if r == nil {
		f.mu.Unlock()
		return nil
	}
	f.takeOver(r, d)
	if (r.problem != "" || r.elsewhere()) && !r.declared {
		r.want = 0 // it can't be started
	}
	want := r.want
	f.mu.Unlock()
	if want == replicas(d) {
		return nil
	}
	return f.setScale(ctx, r, d)
}

// addStart registers a start and raises the scale for it, unless pods are coming that no start waits for. A pod that came just now
// may have been unknown when the start was decided, such as a Deployment's initial scale: it is taken for this start. If it was
// known, the core will decide on one more at once.
func (f *Fleet) addStart(r *revision, g api.Grant) *start {
	s := &start{grant: g, began: time.Now(), pod: make(chan api.InstanceID, 1), failed: make(chan error, 1)}
	for _, p := range f.podsOf(r.name) {
		if p.epoch == 0 && !p.joined() && !p.before && !p.stopping && time.Since(p.seen) < lately {
			p.take(s)
			return s
		}
	}
	if r.want-r.live()-len(r.starts) <= 0 {
		r.want = r.live() + len(r.starts) + 1
	}
	r.starts = append(r.starts, s)
	return s
}

// lately is the longest time between a start's decision and its call.
const lately = 2 * time.Second

// take makes p the pod of a start.
func (p *pod) take(s *start) {
	p.epoch, p.devices, p.trace, p.wanted = s.grant.Epoch, s.grant.Devices, s.grant.Trace, s.began
	p.status.Epoch, p.status.Devices = p.epoch, p.devices
	s.pod <- p.id
}

// dropStart removes a start that got no pod, and its part of the scale. It returns false if the start has its pod.
func (f *Fleet) dropStart(r *revision, s *start) bool {
	for k, t := range r.starts {
		if t == s {
			r.starts = append(r.starts[:k:k], r.starts[k+1:]...)
			r.want = max(0, r.want-1)
			r.acted()
			return true
		}
	}
	return false
}

// awaitPod waits for the pod of a start. It gives up if the Deployment reports that its pods are refused.
func (f *Fleet) awaitPod(ctx context.Context, r *revision, s *start) (api.InstanceID, error) {
	ctx, stop := f.unlessRefused(ctx, r)
	defer stop()
	late := time.NewTimer(f.cfg.CreateTimeout)
	defer late.Stop()
	select {
	case id := <-s.pod:
		return id, nil
	case err := <-s.failed:
		return "", err
	case <-late.C:
		return "", f.errNoPod(r)
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (f *Fleet) errNoPod(r *revision) error {
	if why := f.refusal(r.name); why != "" {
		return fmt.Errorf("no pod was made within %s: %s", f.cfg.CreateTimeout, why)
	}
	return fmt.Errorf("no pod was made within %s: see whether the namespace is being deleted, and look at the Deployment and its ReplicaSet with kubectl describe, and at the kube-controller-manager", f.cfg.CreateTimeout)
}

// webhookFailed is the API server's message about a webhook that does not answer. That does not refuse the pod: the webhook may be
// restarting, and Kubernetes retries.
const webhookFailed = "failed calling webhook"

// unlessRefused returns a context that ends, with the reason, when a revision's Deployment reports that its pods are refused.
func (f *Fleet) unlessRefused(ctx context.Context, r *revision) (refused context.Context, stop func()) {
	refused, refuse := context.WithCancelCause(ctx)
	var polls sync.WaitGroup
	polls.Go(func() {
		first := true
		_ = poll(refused, refusedAfter, func() bool {
			why := ""
			if !first {
				why = f.refusal(r.name)
			}
			if first = false; why == "" || strings.Contains(why, webhookFailed) {
				return false
			}
			refuse(fmt.Errorf("the pod is refused by Kubernetes: %s", why))
			return true
		})
	})
	return refused, func() { refuse(nil); polls.Wait() }
}

// poll calls done now and at each interval until it returns true; an error says that ctx has ended first.
func poll(ctx context.Context, every time.Duration, done func() bool) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// refusedAfter is how long a Deployment must report that its pods are refused: the report may be about an earlier try.
const refusedAfter = 2 * time.Second

// refusal returns why a Deployment can't create pods, empty if it can.
func (f *Fleet) refusal(name api.FunctionName) string {
	d, err := f.deployment(name)
	if err != nil {
		return err.Error()
	}
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}
