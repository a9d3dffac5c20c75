package knative

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Of the pods of a ReplicaSet whose scale falls Kubernetes takes those first that have no node,
// then those that have not begun to run, then those that are not ready; only between equals does the
// deletion cost decide. So a scale that is lowered for a pod that is ready takes one that starts, however
// it is marked: the start is lost, the next one too if the stop is tried again, and the pod lives on.

// yields waits until Kubernetes would take p first, and returns those that it takes before p
// all the same and that are to go with it. f.mu is held when it is called and when it returns, not in
// between.
//
// It waits, as long as ctx allows, for those that are on their way up; p has given up its devices' memory by
// then, where it can be asked. It does not wait for a pod that no node takes, or that does not come up: what it
// lacks may be just what p's pod holds, CPU and memory of the node, and each would wait for the other.
// Such a pod has nothing to lose but its place in the queue, and goes too; it is started again where it is needed,
// which waits until p is being deleted.
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

// before lists the pods of the revision that Kubernetes takes before p and that don't come up while things are as
// they are, and says one that does, nil if there is none. Those that are to go anyway count neither way.
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

// takenBefore says whether a ReplicaSet gives up a before b whatever their deletion costs are.
func takenBefore(a, b *corev1.Pod) bool {
	return cmp.Or(compareBool(a.Spec.NodeName != "", b.Spec.NodeName != ""),
		cmp.Compare(phaseRank(a.Status.Phase), phaseRank(b.Status.Phase)),
		compareBool(ready(a), ready(b))) < 0
}

// phaseRank is Kubernetes' own.
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
