package knative

import (
	"cmp"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

type revision struct {
	name api.FunctionName
	// told is the function given to the core, whose bounds may differ.
	spec     api.Function
	loaded   bool
	told     api.Function
	declared bool
	scaling  scaling
	problem  string
	warned   trouble   // the last news that users were told
	adopted  bool      // its existing pods have been taken in
	fenced   time.Time // when its NetworkPolicies were last written

	pods   map[api.InstanceID]*pod // of its Deployment
	starts []*start                // the oldest first

	// For dual pods; raising is the number of claims about to be added to want.
	providers map[api.InstanceID]*pod
	wants     []*want
	making    map[api.InstanceID]*making
	raising   int
	// want is the number of pods that its Deployment should have, -1 while unknown.
	want int
	// acted is closed when Kubernetes has acted on the scale; nil while nothing waits for that.
	acted chan struct{}
	// patching is the lock for writing the scale.
	patching chan struct{}
	replaced bool // a pod from before the injector was replaced
	// trouble is why the last start failed; nil since one succeeded.
	trouble *trouble
}

type trouble struct {
	reason  string // one word, for conditions
	message string // what happened and what to do
}

type scaling struct {
	min, initial int
	most         int // config-autoscaler's maximum for a function without max-scale; 0: none
	unreachable  bool
	initialized  bool
}

func (r *revision) elsewhere() bool { return r.problem == "" && r.spec.Clusters != "" }

func (r *revision) sortedPods() []*pod {
	return slices.SortedFunc(maps.Values(r.pods), func(a, b *pod) int { return cmp.Compare(a.id, b.id) })
}

func (r *revision) adoptScale(d *appsv1.Deployment) {
	if r.want < 0 {
		r.want = replicas(d)
	}
}

func (r *revision) livePods() int {
	n := 0
	for _, p := range r.pods {
		if !p.stopping {
			n++
		}
	}
	return n
}

func (r *revision) scalingDown() bool { return r.livePods() < len(r.pods) }

func (r *revision) lowerFor(p *pod) {
	p.stopping = true
	r.want = max(0, r.want-1)
	select {
	case <-p.swapped: // of an earlier try
	default:
	}
}

// announceAct ends the waits of [scaler.awaitAct].
func (r *revision) announceAct() {
	if r.acted != nil {
		close(r.acted)
		r.acted = nil
	}
}

// deletedBefore lists the pods that Kubernetes deletes before p and that can't come up, and returns one that can.
func (r *revision) deletedBefore(p *pod) (stuck []*pod, rising *pod) {
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

// dropPod removes a pod. A pod that the scale was lowered for lives on instead.
func (r *revision) dropPod(p *pod) {
	delete(r.pods, p.id)
	delete(r.providers, p.id)
	if !p.stopping && p.role != control.RoleProvider {
		for _, q := range r.sortedPods() {
			if q.stopping {
				q.stopping = false
				q.swapped <- struct{}{}
				break
			}
		}
	}
	r.announceAct()
}

func (r *revision) failWants(err error) {
	for _, w := range r.wants {
		w.done <- wanted{err: err}
	}
	r.wants = nil
}

func (r *revision) wantSpan() *waketrace.Span {
	if len(r.wants) == 0 {
		return nil
	}
	return waketrace.From(r.wants[0].ctx)
}

func replicas(d *appsv1.Deployment) int {
	if d.Spec.Replicas == nil {
		return 1
	}
	return int(*d.Spec.Replicas)
}

// addStart registers a start and raises the scale, unless pods are coming that no start waits for. It takes a pod that
// came just now, which the core may not have known: if it did, it will decide on one more.
func (r *revision) addStart(g api.Grant) *start {
	s := &start{grant: g, began: time.Now()}
	for _, p := range r.sortedPods() {
		if p.epoch == 0 && !p.joined() && !p.before && !p.stopping && time.Since(p.seen) < lately {
			p.assignStart(s)
			return s
		}
	}
	if r.want-r.livePods()-len(r.starts) <= 0 {
		r.want = r.livePods() + len(r.starts) + 1
	}
	r.starts = append(r.starts, s)
	return s
}

// dropStart returns false if the start has its pod, or the revision was deleted.
func (r *revision) dropStart(s *start) bool {
	for k, t := range r.starts {
		if t == s {
			r.starts = append(r.starts[:k:k], r.starts[k+1:]...)
			r.want = max(0, r.want-1)
			r.announceAct()
			return true
		}
	}
	return false
}

type start struct {
	grant api.Grant
	began time.Time
	pod   api.InstanceID // empty until there is one
	err   error          // why there will be none
}

const lately = 2 * time.Second
