package knative

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/bell"
)

const manager = "rouse-autoscaler"

// createTimeout is how long Kubernetes may take to act on a scale.
const createTimeout = 20 * time.Second

type scaler struct {
	*state
	costs bell.Bell // a pod's deletion cost may be outdated
}

// awaitScale waits until Kubernetes has acted on the last written scale: one that falls and rises again before that
// deletes and creates nothing. It gives up after createTimeout. The caller holds the mutex, which is released meanwhile.
func (sc *scaler) awaitScale(ctx context.Context, r *revision, over func() bool) error {
	until, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	for !over() {
		if sc.awaitAct(until, r) != nil {
			return context.Cause(ctx) // nil after createTimeout
		}
	}
	return nil
}

// awaitAct waits until Kubernetes next acts on the scale. The caller holds the mutex, which is released meanwhile.
func (sc *scaler) awaitAct(ctx context.Context, r *revision) error {
	if r.acted == nil {
		r.acted = make(chan struct{})
	}
	acted := r.acted
	sc.mu.Unlock()
	defer sc.mu.Lock()
	select {
	case <-acted:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// deleteByScale writes the scale that was lowered for p, and returns when p is being deleted: with [claimGrace] if
// atOnce. It fails if Kubernetes deletes another pod instead.
func (sc *scaler) deleteByScale(ctx context.Context, r *revision, p *pod, d *appsv1.Deployment, atOnce bool) error {
	if err := sc.markForDeletion(ctx, p); err != nil {
		sc.log.Debug("a pod's deletion cost could not be written", "pod", p.id, "error", err)
	}
	if err := sc.setScale(ctx, r, d); err != nil {
		return err
	}
	if atOnce {
		sc.deletePod(ctx, p, claimGrace)
	}
	select {
	case <-p.gone:
		return nil
	case <-p.swapped:
		return errors.New("another pod of the revision was taken by Kubernetes instead")
	case <-ctx.Done():
		return fmt.Errorf("its pod is not deleted though the scale was lowered: %w", context.Cause(ctx))
	}
}

// In seconds. The queue-proxy's own would hold the claim for half a minute; a provider has to end its runtime.
const (
	claimGrace int64 = 1
	shortGrace int64 = 10
)

// deletePod also shortens the grace period of a pod that is being deleted.
func (sc *scaler) deletePod(ctx context.Context, p *pod, grace int64) {
	sc.mu.Lock()
	o := p.object
	sc.mu.Unlock()
	err := sc.traceWrite(ctx, func() error {
		return sc.deps.Kube.CoreV1().Pods(o.Namespace).Delete(ctx, o.Name,
			metav1.DeleteOptions{GracePeriodSeconds: &grace, Preconditions: &metav1.Preconditions{UID: &o.UID}})
	}, "deletion of %s", p.id)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
		sc.log.Warn("pod not deleted", "pod", p.id, "error", err)
	}
}

func (sc *scaler) setScale(ctx context.Context, r *revision, d *appsv1.Deployment) error {
	select {
	case r.patching <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-r.patching }()
	sc.mu.Lock()
	want := r.want
	sc.mu.Unlock()
	if want < 0 {
		return nil
	}
	patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, want)
	err := sc.traceWrite(ctx, func() error {
		_, err := sc.deps.Kube.AppsV1().Deployments(d.Namespace).Patch(ctx, d.Name, types.MergePatchType, []byte(patch),
			metav1.PatchOptions{FieldManager: manager}, "scale")
		return err
	}, "scale of %s to %d", d.Name, want)
	if err != nil {
		return fmt.Errorf("scale %s to %d: %w", r.name, want, err)
	}
	return nil
}

func (sc *scaler) keepScale(ctx context.Context, name api.FunctionName) error {
	d, err := sc.deployment(name)
	if err != nil {
		if apierrors.IsNotFound(err) {
			return nil // the next pass comes with the Deployment
		}
		return err
	}
	sc.mu.Lock()
	r := sc.revision(name)
	if r == nil {
		sc.mu.Unlock()
		return nil
	}
	r.adoptScale(d)
	if (r.problem != "" || r.elsewhere()) && !r.declared {
		r.want = 0 // it can't be started
	}
	want := r.want
	sc.mu.Unlock()
	if want == replicas(d) {
		return nil
	}
	return sc.setScale(ctx, r, d)
}

// awaitCreated waits for the pods of the wanted scale. It fails if the Deployment reports that they are refused, or with
// ctx.
func (sc *scaler) awaitCreated(ctx context.Context, r *revision, there func() bool) error {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	refused, late := time.Now().Add(refusedAfter), time.Now().Add(createTimeout)
	for !there() {
		until, cancel := context.WithTimeout(ctx, refusedAfter)
		_ = sc.awaitAct(until, r) // now and then: no watch tells of a refusal
		cancel()
		why, now := sc.refusal(r.name), time.Now()
		switch {
		case there():
		case ctx.Err() != nil:
			return fmt.Errorf("no pod was made: %s: %w", cmp.Or(why, "look at the Deployment and its ReplicaSet with kubectl describe, and at the kube-controller-manager"), context.Cause(ctx))
		case why != "" && !now.Before(refused) && !strings.Contains(why, webhookFailed):
			return fmt.Errorf("the pod is refused by Kubernetes: %s", why)
		case why != "" && !now.Before(late):
			return fmt.Errorf("no pod was made within %s: %s", createTimeout, why)
		}
	}
	return nil
}

// awaitQuota waits a minute at most while pods that are being deleted fill the quota that refused the last pod.
func (sc *scaler) awaitQuota(ctx context.Context, name api.FunctionName) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // longer than the queue-proxy goes on
	defer cancel()
	_ = poll(ctx, pollEvery/10, func() bool {
		sc.mu.Lock()
		defer sc.mu.Unlock()
		if r := sc.revisions[name]; r == nil || r.trouble == nil || !api.QuotaFull(r.trouble.message) {
			return true
		}
		for _, p := range sc.leaving {
			if p.function.Namespace() == name.Namespace() {
				return false
			}
		}
		return true
	})
}

// webhookFailed is the API server's message about a webhook that may be restarting: Kubernetes retries.
const webhookFailed = "failed calling webhook"

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

// refusedAfter is how long a refusal must last: it may be about an earlier try.
const refusedAfter = 2 * time.Second

// refusal returns why a Deployment can't create pods. It reports nothing in a namespace that is being deleted.
func (sc *scaler) refusal(name api.FunctionName) string {
	if n, err := sc.watch.namespaces.Lister().Get(name.Namespace()); err == nil && n.DeletionTimestamp != nil {
		return "its namespace is being deleted"
	}
	d, err := sc.deployment(name)
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
