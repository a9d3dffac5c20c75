package knative

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"knative.dev/serving/pkg/apis/serving"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"

	"github.com/rouse-dev/rouse/internal/waketrace"
)

type tracker struct {
	*state
	nodes     *nodes
	rooms     *rooms
	resizer   *resizer
	scaler    *scaler
	functions *functions
}

func (tr *tracker) followPods() error {
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { tr.onPod(o.(*corev1.Pod)) },
		UpdateFunc: func(_, o any) { tr.onPod(o.(*corev1.Pod)) },
		DeleteFunc: func(o any) {
			if d, lost := o.(cache.DeletedFinalStateUnknown); lost {
				o = d.Obj
			}
			if p, ok := o.(*corev1.Pod); ok {
				tr.onPodDeleted(p)
			}
		},
	}
	for _, pods := range []cache.SharedIndexInformer{tr.watch.pods.Informer(), tr.watch.providers.Informer()} {
		if _, err := pods.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watch pods: %w", err)
		}
	}
	if err := tr.rooms.followRooms(); err != nil {
		return err
	}
	// The handlers see existing pods only later.
	return tr.observeListed(labels.Everything(), tr.watch.pods.Lister().List, tr.watch.providers.Lister().List)
}

// observeListed reads the lists with the lock held: the handlers see a later deletion when the pod is known. It locks.
func (tr *tracker) observeListed(which labels.Selector, lists ...func(labels.Selector) ([]*corev1.Pod, error)) error {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, list := range lists {
		pods, err := list(which)
		if err != nil {
			return fmt.Errorf("list pods: %w", err)
		}
		for _, o := range pods {
			tr.observePod(o)
		}
	}
	return nil
}

func (tr *tracker) onPod(o *corev1.Pod) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.observePod(o)
}

func (tr *tracker) observePod(o *corev1.Pod) {
	tr.updatePod(o)
	p := tr.leaving[api.InstanceID(o.Name)]
	if p == nil || p.object.UID != o.UID {
		return
	}
	if _, s := container(o); s != nil && s.State.Terminated != nil || finished(o) {
		tr.reportGone(p)
	}
	if finished(o) {
		p.endSpan.Done(nil)
	}
}

func (tr *tracker) updatePod(o *corev1.Pod) {
	r := tr.revision(functionOf(o))
	if r == nil {
		tr.onLeaving(nil, o)
		return // of another class, or its PodAutoscaler's reconciler adopts its pods later
	}
	p := tr.pods[api.InstanceID(o.Name)]
	over := o.DeletionTimestamp != nil || finished(o)
	switch {
	case p == nil && over:
		tr.onLeaving(r, o)
		return
	case p == nil:
		p = tr.addPod(r, o)
	case p.object.Namespace != o.Namespace:
		tr.log.Error("two pods of one name: the second is left alone", "pod", o.Name, "namespace", o.Namespace, "other", p.object.Namespace)
		return
	default:
		before := p.object
		p.object = o
		tr.resizer.onResize(p, before)
	}
	p.recordTimes(o)
	if over {
		tr.endPod(p, o.Status.Message)
		return
	}
	tr.examine(p, time.Now())
	tr.planPairOf(p)
	r.announceAct() // a stop may wait until it is ready
}

func (tr *tracker) onPodDeleted(o *corev1.Pod) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if p := tr.pods[api.InstanceID(o.Name)]; p != nil && p.object.UID == o.UID {
		p.object = o
		tr.endPod(p, o.Status.Message)
	}
	tr.dropLeaving(o)
}

// addPod gives a new pod to the oldest waiting start, or adopts it.
func (tr *tracker) addPod(r *revision, o *corev1.Pod) *pod {
	p := newPod(r.name, o)
	p.before, p.patched = o.Status.Phase == corev1.PodRunning, costOf(o)
	tr.pods[p.id] = p
	// After a restart it may have been up for long.
	p.status = api.InstanceStatus{Instance: p.id, Function: r.name, State: api.Starting, Since: p.seen,
		Concurrency: r.spec.Concurrency, Stage: stageCreating, Requests: requestsOf(o)}
	if p.role != control.RoleInstance {
		tr.addDualPod(r, p)
		return p
	}
	r.pods[p.id] = p
	if len(r.starts) > 0 {
		s := r.starts[0]
		r.starts = r.starts[1:]
		r.announceAct()
		p.assignStart(s)
		tr.deps.Activators.Tell(control.InstanceReport{Status: p.status})
	} else {
		tr.publishStatus(p, p.status)
	}
	tr.scaler.updateCosts(r)
	tr.changed(r.name)
	return p
}

// addDualPod: the core learns of a provider that was created for a start when the start ends.
func (tr *tracker) addDualPod(r *revision, p *pod) {
	p.pair.bound, p.pair.since = api.InstanceID(p.object.Annotations[AnnotationBound]), time.Now()
	if p.role == control.RoleRequester {
		r.pods[p.id] = p
		r.announceAct()
		tr.scaler.updateCosts(r)
		tr.planPairOf(p)
		tr.changed(r.name)
		return
	}
	r.providers[p.id] = p
	p.devices = Devices(p.object)
	p.status.Devices, p.status.Node = p.devices, NodeOf(p.object)
	m := r.making[p.id]
	if m == nil {
		tr.publishStatus(p, p.status)
		return
	}
	delete(r.making, p.id)
	p.pair.bound, p.pair.marks, p.pair.span = m.bound(), m.want.marks, waketrace.From(m.want.ctx)
	p.pair.marks.Made, p.trace = p.seen, m.want.grant.Trace
	p.epoch, p.status.Epoch = m.want.grant.Epoch, m.want.grant.Epoch
	if m.want.provider != "" { // made instead of waking that sleeper: no start tells the core of it
		tr.publishStatus(p, p.status)
		return
	}
	tr.deps.Activators.Tell(control.InstanceReport{Status: p.status})
	tr.planPairOf(p)
	tr.changed(r.name)
}

func (tr *tracker) endPod(p *pod, message string) {
	if p.ended {
		return
	}
	p.ended = true
	p.status.Candidates = nil
	tr.rooms.removeFromRoom(p)
	tr.stopProcess(p)
	if p.freed != nil {
		p.endSpan = p.freed.Start(waketrace.Step{Name: api.SpanVictimEnd, Part: api.PartKubernetes, Instance: p.id})
	}
	close(p.gone)
	delete(tr.pods, p.id)
	if r := tr.revisions[p.function]; r != nil {
		r.dropPod(p)
	}
	tr.keepLeaving(p)
	if p.role == control.RoleRequester {
		tr.nodes.dropExcess(p.object.Spec.NodeName)
		return
	}
	s := lastOf(p, message)
	p.expiring, p.last = true, s
	if !p.held || !p.joined() || !s.Taken {
		tr.reportGone(p)
		return
	}
	tr.deps.Activators.Tell(control.InstanceReport{Status: s, Token: p.token})
	tr.changed(p.function)
}

func (tr *tracker) publishStatus(p *pod, s api.InstanceStatus) {
	if p.setStatus(s) {
		m := p.pair.marks
		tr.metrics.up(m.Path, m.Ready.Sub(m.Asked))
	}
	tr.planPairOf(p)
	if p.role == control.RoleRequester {
		tr.changed(p.function)
		return
	}
	r := tr.revisions[p.function]
	if r != nil {
		switch {
		case s.State == api.Awake:
			r.trouble = nil
		case s.State == api.Unhealthy && s.GaveUp && p.trouble == "":
			r.trouble = &trouble{"StartFailed", s.Message}
		}
		tr.functions.putFunction(r) // before the core sees the failure and would retry in vain
		tr.scaler.updateCosts(r)
	}
	if s.State == api.Awake {
		tr.podSteps(p)
	}
	tr.core.ObserveInstance(s)
	tr.deps.Activators.Tell(control.InstanceReport{Status: s, Token: p.token})
	tr.changed(p.function)
}

// adoptPods locks.
func (tr *tracker) adoptPods(name api.FunctionName) {
	ofRevision := labels.SelectorFromSet(labels.Set{serving.RevisionLabelKey: name.Name()})
	ofProvider := labels.SelectorFromSet(labels.Set{LabelProvider: name.Name()})
	err := errors.Join(tr.observeListed(ofRevision, tr.watch.pods.Lister().Pods(name.Namespace()).List),
		tr.observeListed(ofProvider, tr.watch.providers.Lister().Pods(name.Namespace()).List))
	if err != nil {
		tr.log.Error("the pods of a function can't be listed", "function", name, "error", err)
	}
}

func (tr *tracker) planPairOf(p *pod) {
	if p.role != control.RoleInstance {
		tr.pairsDue.Ring()
	}
}

// podSteps tells the core, once for each claim, about Kubernetes' steps for an instance that has become awake.
func (tr *tracker) podSteps(p *pod) {
	m := p.pair.marks
	if p.role == control.RoleInstance {
		if m.Asked = p.seen; !p.wanted.IsZero() {
			m.Asked, m.Created = p.wanted, p.seen
		}
	}
	if m.Asked.IsZero() || m.Asked.Equal(p.traced) {
		return
	}
	p.traced = m.Asked
	var steps []waketrace.Step
	m.Steps(func(name string, began, ended time.Time) {
		steps = append(steps, waketrace.Step{Name: name, Began: began, Ended: ended})
	})
	if len(steps) > 0 {
		tr.core.NotePodSteps(p.function, p.id, m.Path, steps...)
	}
}
