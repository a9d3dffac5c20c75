package knative

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// When a ReplicaSet's scale falls, Kubernetes first deletes pods without a node, then pods that have not begun to run,
// then pods that are not ready; the deletion cost decides only between equals. So a scale that is lowered for a ready
// pod deletes a starting one, whatever its cost. That start is lost, and the next one too if the stop is retried, and
// the pod lives on.

// yields waits until Kubernetes would delete p first, and returns the pods that it would still delete before p and that
// must go with it. The caller holds f.mu, which is released while it waits.
//
// It waits, as long as ctx allows, for pods on their way up; by then p has released its devices' memory, if it can be
// reached. It does not wait for a pod that fits on no node, or that does not come up: it may need just the CPU and
// memory that p holds, and each would wait for the other. Such a pod loses only its place in the queue, so it goes,
// too; it is started again if needed, which waits until p is being deleted.
func (f *Fleet) yields(ctx context.Context, r *revision, p *pod) (with []*pod, err error) {
	var rising *pod
	for {
		with, rising = r.before(p)
		if p.ended || p.stopping || len(r.starts) == 0 && rising == nil {
			return with, nil
		}
		acted := r.nextAct()
		f.mu.Unlock()
		select {
		case <-acted:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		f.mu.Lock()
		switch {
		case err != nil && rising != nil:
			return nil, fmt.Errorf("wait until %s is ready, which Kubernetes would take first: %w", rising.id, err)
		case err != nil:
			return nil, fmt.Errorf("wait until the pods that were asked for are made: %w", err)
		}
	}
}

// before lists the pods of the revision that Kubernetes deletes before p and that can't come up at present, and returns
// one that can, nil if there is none. Pods that are being stopped don't count.
func (r *revision) before(p *pod) (stuck []*pod, rising *pod) {
	for _, q := range r.pods {
		switch {
		case q == p || q.stopping || !takenBefore(q.object, p.object):
		case q.trouble != "" || q.object.Spec.NodeName == "" && refusedBy(q.object) != nil:
			stuck = append(stuck, q)
		default:
			rising = q
		}
	}
	return stuck, rising
}

// takenBefore reports whether a ReplicaSet deletes a before b whatever their deletion costs.
func takenBefore(a, b *corev1.Pod) bool {
	return cmp.Or(compareBool(a.Spec.NodeName != "", b.Spec.NodeName != ""),
		cmp.Compare(phaseRank(a.Status.Phase), phaseRank(b.Status.Phase)),
		compareBool(ready(a), ready(b))) < 0
}

// phaseRank is Kubernetes' order.
func phaseRank(p corev1.PodPhase) int {
	switch p {
	case corev1.PodRunning:
		return 2
	case corev1.PodUnknown:
		return 1
	}
	return 0
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func ready(o *corev1.Pod) bool {
	for k := range o.Status.Conditions {
		if c := &o.Status.Conditions[k]; c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
