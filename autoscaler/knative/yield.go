package knative

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// A ReplicaSet first deletes pods without a node, then those that have not begun to run, then those not ready; the
// deletion cost decides only between equals. So a scale that is lowered for a ready pod deletes a starting one.

// awaitDeletionTurn waits until Kubernetes would delete p first, as long as ctx allows. It returns the pods that must go
// with p: those that fit on no node or do not start may need what p holds, and each would wait for the other. The caller
// holds the mutex, which is released meanwhile.
func (sc *scaler) awaitDeletionTurn(ctx context.Context, r *revision, p *pod) ([]*pod, error) {
	for {
		with, rising := r.deletedBefore(p)
		if p.ended || p.stopping || len(r.starts) == 0 && rising == nil {
			return with, nil
		}
		err := sc.awaitAct(ctx, r)
		switch {
		case err != nil && rising != nil:
			return nil, fmt.Errorf("wait until %s is ready, which Kubernetes would take first: %w", rising.id, err)
		case err != nil:
			return nil, fmt.Errorf("wait until the pods that were asked for are made: %w", err)
		}
	}
}

func takenBefore(a, b *corev1.Pod) bool { return slices.Compare(deletionRank(a), deletionRank(b)) < 0 }

func deletionRank(o *corev1.Pod) []int {
	rank := []int{0, 0, 0}
	if o.Spec.NodeName != "" {
		rank[0] = 1
	}
	switch o.Status.Phase {
	case corev1.PodRunning:
		rank[1] = 2
	case corev1.PodUnknown:
		rank[1] = 1
	}
	if slices.ContainsFunc(o.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }) {
		rank[2] = 1
	}
	return rank
}
