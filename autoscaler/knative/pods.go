package knative

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"knative.dev/serving/pkg/apis/serving"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler/dualpod"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// pod is one instance. It is kept until Kubernetes deletes the pod.
type pod struct {
	id       api.InstanceID
	function api.FunctionName
	object   *corev1.Pod // as last seen; never written to
	seen     time.Time   // when it was first seen

	// Values of the instance's join; token is empty until then.
	token    string
	address  netip.Addr
	endpoint api.Endpoint
	client   *control.Client
	restarts int32 // its container's restarts when it joined

	// status is the last status passed on. epoch is the highest epoch of an order to it, at first of its start; devices
	// are those of the grant that it was started under.
	status  api.InstanceStatus
	epoch   uint64
	devices []api.DeviceID
	trace   string    // the trace of the wake that it was started for
	wanted  time.Time // when that was; zero: it was adopted
	// traced is the time of the start or claim whose steps the core has.
	traced time.Time
	// again says that a process of it has joined; before, that the pod already ran when it was first seen. In either
	// case its next process begins asleep.
	again, before bool
	// refused is why the last join in its name was refused, empty if none was since it joined.
	refused string
	// trouble is the last reported trouble, empty if none. running is since when its container runs; asked says that it
	// was asked why it does not join.
	trouble string
	running time.Time
	asked   bool
	// refusedAt is since when no node fits the pod and none is being added; zero: that is not so.
	refusedAt time.Time
	// rigid says that Kubernetes does not resize the pod; growing is what its containers must get before it wakes.
	rigid   bool
	growing sizes

	// rising and falling say that a call to wake it, or to put it to sleep, is under way.
	rising, falling bool
	// stopping says that the scale was lowered for it. swapped receives when Kubernetes deleted another pod instead; it
	// has room for one, so that sending never blocks.
	stopping bool
	freed    *waketrace.Span // of the call that it makes room for; nil: none
	swapped  chan struct{}
	ended    bool
	gone     chan struct{} // closed when the pod is being deleted, or is gone
	// held says that a stop waits until the instance's process is gone: until then the core counts its memory. over is
	// closed when the core is told that it is gone.
	held bool
	over chan struct{}

	cost, patched int // its deletion cost as computed, and as written

	// role is its part in holding the function's GPUs; pair is used for the roles of dual pods.
	role    control.Role
	pair    pair
	writing writing
}

// joined reports whether the instance may be called.
func (p *pod) joined() bool { return p.token != "" }

// follow handles events of pods and nodes from now on, and takes in existing ones.
func (f *Fleet) follow() error {
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { f.onPod(o.(*corev1.Pod)) },
		UpdateFunc: func(_, o any) { f.onPod(o.(*corev1.Pod)) },
		DeleteFunc: func(o any) {
			if d, lost := o.(cache.DeletedFinalStateUnknown); lost {
				o = d.Obj
			}
			if p, ok := o.(*corev1.Pod); ok {
				f.onPodDeleted(p)
			}
		},
	}
	for _, pods := range []cache.SharedIndexInformer{f.watch.pods, f.watch.providers} {
		if _, err := pods.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watch pods: %w", err)
		}
	}
	if err := f.followRooms(); err != nil {
		return err
	}
	// At once: the handlers see existing pods only later.
	if err := f.takeIn(labels.Everything(), f.watch.podLister.List, f.watch.providerLister.List); err != nil {
		return err
	}
	_, err := f.watch.nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { f.takeStock() },
		UpdateFunc: func(any, any) { f.takeStock() },
		DeleteFunc: func(any) { f.takeStock() },
	})
	if err != nil {
		return fmt.Errorf("watch nodes: %w", err)
	}
	return nil
}

// takeIn takes in the listed pods. It reads the lists with the lock held: if a pod is deleted after that, the handlers
// see it when it is known, so no deleted pod stays.
func (f *Fleet) takeIn(which labels.Selector, lists ...func(labels.Selector) ([]*corev1.Pod, error)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, list := range lists {
		pods, err := list(which)
		if err != nil {
			return fmt.Errorf("list pods: %w", err)
		}
		for _, o := range pods {
			f.see(o)
		}
	}
	return nil
}

// functionOf returns the function that a pod is an instance of.
func functionOf(p *corev1.Pod) api.FunctionName {
	return api.NewFunctionName(p.Namespace, cmp.Or(p.Labels[serving.RevisionLabelKey], p.Labels[dualpod.LabelProvider]))
}

// onPod handles a new or changed pod.
func (f *Fleet) onPod(o *corev1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.see(o)
}

// see is onPod with the lock held.
func (f *Fleet) see(o *corev1.Pod) {
	f.inspect(o)
	if _, s := container(o); s != nil && s.State.Terminated != nil || finished(o) {
		f.expire(o.UID)
	}
	if finished(o) {
		f.departed(o)
	}
}

func (f *Fleet) inspect(o *corev1.Pod) {
	r := f.revision(functionOf(o))
	if r == nil {
		f.onOrphan(o)
		return // of another class, or not known yet: its PodAutoscaler's reconciler adopts its pods
	}
	p := f.pods[api.InstanceID(o.Name)]
	over := o.DeletionTimestamp != nil || finished(o)
	switch {
	case p == nil && over:
		f.onLeaving(r, o)
		f.onEnding(r, o)
		return
	case p == nil:
		p = f.addPod(r, o)
	case p.object.Namespace != o.Namespace:
		f.log.Error("two pods of one name: the second is left alone", "pod", o.Name, "namespace", o.Namespace, "other", p.object.Namespace)
		return
	default:
		before := p.object
		p.object = o
		f.resized(p, before)
	}
	p.clock(o)
	if over {
		f.end(p, o.Status.Message)
		f.onLeaving(r, o)
		return
	}
	f.examine(p, time.Now())
	f.pairUp(p)
	r.acted() // a stop may wait until it is ready
}

func (f *Fleet) onPodDeleted(o *corev1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.pods[api.InstanceID(o.Name)]; p != nil && p.object.UID == o.UID {
		p.object = o
		f.end(p, o.Status.Message)
	}
	f.departed(o)
	f.expire(o.UID)
	delete(f.ended, o.UID)
	f.onGone(o)
}

func newPod(name api.FunctionName, o *corev1.Pod) *pod {
	return &pod{id: api.InstanceID(o.Name), function: name, object: o, seen: time.Now(),
		swapped: make(chan struct{}, 1), gone: make(chan struct{}), over: make(chan struct{}), role: roleOf(o)}
}

// addPod takes in a new pod: it belongs to the oldest waiting start, or else is adopted.
func (f *Fleet) addPod(r *revision, o *corev1.Pod) *pod {
	p := newPod(r.name, o)
	p.before, p.patched = o.Status.Phase == corev1.PodRunning, costOf(o)
	f.pods[p.id] = p
	// Its start timeout begins now: after a restart it may have been up for long.
	p.status = api.InstanceStatus{Instance: p.id, Function: r.name, State: api.Starting, Since: p.seen,
		Concurrency: r.spec.Concurrency, Stage: stageCreating, Requests: requestsOf(o)}
	if p.role != control.RoleInstance {
		f.addPair(r, p)
		return p
	}
	r.pods[p.id] = p
	if len(r.starts) > 0 {
		s := r.starts[0]
		r.starts = r.starts[1:]
		r.acted()
		p.take(s)
		f.deps.Activators.Tell(control.InstanceReport{Status: p.status})
	} else {
		f.pass(p, p.status)
	}
	f.weigh(r)
	f.changed(r.name)
	return p
}

// end forgets a pod that is being deleted or has ended. A deletion is no failure of its program: it was scaled down or
// replaced, usually by the fleet itself.
func (f *Fleet) end(p *pod, message string) {
	if p.ended {
		return
	}
	p.ended, f.ended[p.object.UID] = true, true
	p.status.Candidates = nil
	f.leaves(p)
	f.part(p)
	f.departs(p)
	close(p.gone)
	delete(f.pods, p.id)
	r := f.revisions[p.function]
	if r != nil {
		delete(r.pods, p.id)
		delete(r.providers, p.id)
	}
	if !p.stopping && p.role != control.RoleProvider {
		// If the scale was lowered for another pod, that one lives on instead.
		for _, q := range f.podsOf(p.function) {
			if q.stopping {
				q.stopping = false
				q.swapped <- struct{}{}
				break
			}
		}
	}
	if r != nil {
		r.acted()
	}
	f.linger(p)
	if p.role == control.RoleRequester {
		return
	}
	s := lastOf(p, message)
	f.expiring[p.object.UID] = expiring{p, s}
	if !p.held || !p.joined() || !s.Taken {
		f.expire(p.object.UID)
		return
	}
	f.deps.Activators.Tell(control.InstanceReport{Status: s, Token: p.token}) // so that no more requests are sent to it
	f.changed(p.function)
}

// lastOf returns the last status of an instance.
func lastOf(p *pod, message string) api.InstanceStatus {
	s := api.InstanceStatus{Instance: p.id, Function: p.function, State: api.Gone, Seq: math.MaxUint64, Since: time.Now(),
		Message: message, Taken: !finished(p.object)}
	if s.Taken {
		s.Message = cmp.Or(message, "its pod was deleted")
	}
	return s
}

// pass stores a status as p's last, and gives it to the core and the activators.
func (f *Fleet) pass(p *pod, s api.InstanceStatus) {
	if p.note(s) {
		m := p.pair.marks
		f.dual.up(m.Path, m.Ready.Sub(m.Asked))
	}
	f.pairUp(p)
	if p.role == control.RoleRequester { // a claim is no instance
		f.changed(p.function)
		return
	}
	r := f.revisions[p.function]
	if r != nil {
		switch {
		case s.State == api.Awake:
			r.trouble = nil
		case s.State == api.Unhealthy && s.GaveUp && p.trouble == "":
			r.trouble = &trouble{"StartFailed", s.Message}
		}
		f.tell(r) // before the core sees the failure, so that it does not retry in vain
		f.weigh(r)
	}
	if s.State == api.Awake {
		f.podSteps(p)
	}
	f.core.ObserveInstance(s)
	f.deps.Activators.Tell(control.InstanceReport{Status: s, Token: p.token})
	f.changed(p.function)
}

// podsOf lists the pods of a function that are not being deleted, by name.
func (f *Fleet) podsOf(name api.FunctionName) []*pod {
	r := f.revisions[name]
	if r == nil {
		return nil
	}
	return slices.SortedFunc(maps.Values(r.pods), func(a, b *pod) int { return cmp.Compare(a.id, b.id) })
}

// adopt takes in the existing pods of a revision.
func (f *Fleet) adopt(name api.FunctionName) {
	ofRevision := labels.SelectorFromSet(labels.Set{serving.RevisionLabelKey: name.Name()})
	ofProvider := labels.SelectorFromSet(labels.Set{dualpod.LabelProvider: name.Name()})
	err := errors.Join(f.takeIn(ofRevision, f.watch.podLister.Pods(name.Namespace()).List),
		f.takeIn(ofProvider, f.watch.providerLister.Pods(name.Namespace()).List))
	if err != nil {
		f.log.Error("the pods of a function can't be listed", "function", name, "error", err)
	}
}

// container returns the function's own container and its status, nil if there is none yet.
func container(o *corev1.Pod) (*corev1.Container, *corev1.ContainerStatus) {
	for k := range o.Spec.Containers {
		c := &o.Spec.Containers[k]
		if c.Name == "queue-proxy" || !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == servingv1.UserPortName }) {
			continue
		}
		for j := range o.Status.ContainerStatuses {
			if s := &o.Status.ContainerStatuses[j]; s.Name == c.Name {
				return c, s
			}
		}
		return c, nil
	}
	return nil, nil
}

// address returns the endpoint of a pod's function; empty while the pod has no address.
func address(o *corev1.Pod) api.Endpoint {
	ip, err := netip.ParseAddr(o.Status.PodIP)
	if err != nil {
		return ""
	}
	port := uint16(control.DefaultFunctionPort)
	if c, _ := container(o); c != nil {
		for _, p := range c.Ports {
			if p.Name == servingv1.UserPortName && p.ContainerPort > 0 && p.ContainerPort <= math.MaxUint16 {
				port = uint16(p.ContainerPort)
			}
		}
	}
	return api.Endpoint("http://" + netip.AddrPortFrom(ip, port).String())
}
