package knative

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"knative.dev/serving/pkg/apis/serving"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"

	"github.com/rouse-dev/rouse/autoscaler"
	"github.com/rouse-dev/rouse/config"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// pod is one instance. It is kept until Kubernetes deletes the pod.
type pod struct {
	id       api.InstanceID
	function api.FunctionName
	object   *corev1.Pod // as last seen; never written to
	seen     time.Time

	// Values of the instance's join; token is empty until then.
	token    string
	address  netip.Addr
	endpoint api.Endpoint
	client   *control.Client
	restarts int32 // of its container when it joined

	// epoch is the highest epoch of an order to it; devices are those of its grant.
	status  api.InstanceStatus
	epoch   uint64
	devices []api.DeviceID
	trace   string    // of the wake that it was started for
	wanted  time.Time // when that was; zero: it was adopted
	// traced is the time of the start or claim whose steps the core has.
	traced time.Time
	// again: a process of it has joined. before: it already ran when it was first seen.
	again, before bool
	// refused is why the last join in its name was refused, since it joined.
	refused string
	// trouble is the last reported one. running is since when its container runs; asked says that it was asked why it
	// does not join.
	trouble string
	running time.Time
	asked   bool
	// refusedAt is since when no node fits the pod and none is being added.
	refusedAt time.Time
	// rigid: Kubernetes does not resize it. growing are the requests that it must get before it wakes.
	rigid   bool
	growing sizes

	// A call to wake it, or to put it to sleep, is under way.
	rising, falling bool
	// stopping says that the scale was lowered for it. swapped has room for one: Kubernetes deleted another pod instead.
	stopping bool
	swapped  chan struct{}
	freed    *waketrace.Span // of the call that it makes room for; nil: none
	endSpan  *waketrace.Span
	ended    bool
	gone     chan struct{} // closed when the pod is being deleted, or is gone
	// held: a stop waits until the process is gone. expiring: it is being deleted and its memory counts; then the core
	// is told last, and over is closed.
	held, expiring bool
	last           api.InstanceStatus
	over           chan struct{}

	cost, patched int // its deletion cost as computed, and as written

	role    control.Role
	pair    pair
	writing writing
}

func (p *pod) joined() bool { return p.token != "" }

func newPod(name api.FunctionName, o *corev1.Pod) *pod {
	return &pod{id: api.InstanceID(o.Name), function: name, object: o, seen: time.Now(),
		swapped: make(chan struct{}, 1), gone: make(chan struct{}), over: make(chan struct{}), role: roleOf(o)}
}

func newEnded(o *corev1.Pod) *pod {
	p := newPod(functionOf(o), o)
	p.ended = true
	close(p.gone)
	return p
}

// beginsAsleep reports whether a joining process must not start its runtime: its memory may be another's, unless it is
// the first process of a pod that was created for a start.
func (p *pod) beginsAsleep() bool { return p.before || p.again }

func (p *pod) assignStart(s *start) {
	p.epoch, p.devices, p.trace, p.wanted = s.grant.Epoch, s.grant.Devices, s.grant.Trace, s.began
	p.status.Epoch, p.status.Devices = p.epoch, p.devices
	s.pod = p.id
}

func lastOf(p *pod, message string) api.InstanceStatus {
	s := api.InstanceStatus{Instance: p.id, Function: p.function, State: api.Gone, Seq: math.MaxUint64, Since: time.Now(),
		Message: message, Taken: !finished(p.object)}
	if s.Taken {
		s.Message = cmp.Or(message, "its pod was deleted")
	}
	return s
}

func functionOf(p *corev1.Pod) api.FunctionName {
	return api.NewFunctionName(p.Namespace, cmp.Or(p.Labels[serving.RevisionLabelKey], p.Labels[LabelProvider]))
}

// container returns the function's own container and its status; nil: none yet.
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

func addresses(o *corev1.Pod) []netip.Addr {
	var all []netip.Addr
	for _, ip := range append([]corev1.PodIP{{IP: o.Status.PodIP}}, o.Status.PodIPs...) {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			all = append(all, a.Unmap())
		}
	}
	return all
}

func (p *pod) recordTimes(o *corev1.Pod) {
	m := &p.pair.marks
	if p.role == control.RoleProvider { // the other times are the requester's
		if p.joined() && m.Up.IsZero() && !m.Made.IsZero() {
			m.Up = time.Now()
		}
		return
	}
	if o.Spec.NodeName != "" && m.Scheduled.IsZero() {
		m.Scheduled = time.Now()
	}
	if _, s := container(o); s != nil && s.State.Running != nil && m.Started.IsZero() {
		m.Started = time.Now()
	}
	if p.joined() && m.Joined.IsZero() {
		m.Joined = time.Now()
		if m.Started.IsZero() { // the join came before the kubelet's status
			m.Started = m.Joined
		}
	}
}

// setStatus reports whether s completes a start or wake.
func (p *pod) setStatus(s api.InstanceStatus) (up bool) {
	if s.State == api.Awake || p.status.State == api.Awake {
		p.pair.used = time.Now()
	}
	if s.State == api.Awake && p.pair.down && p.role == control.RoleProvider { // an activator has woken it under its grant
		p.pair.marks = Marks{Path: autoscaler.PathHot, Asked: time.Now().Add(-s.WakeTime)}
		if p.status.PID == 0 {
			p.pair.marks.Path = autoscaler.PathWarm
		}
	}
	if s.State == api.Awake || s.State == api.Asleep {
		p.pair.down = s.State == api.Asleep
	}
	if s.State == api.Awake {
		p.pair.stuck = false
		if p.pair.marks.Ready.IsZero() && !p.pair.marks.Asked.IsZero() {
			p.pair.marks.Ready, up = time.Now(), true
		}
	}
	if s.State != p.status.State {
		p.pair.since = time.Now()
	}
	p.status = s
	return up
}

func roleOf(o *corev1.Pod) control.Role {
	if o.Labels[LabelProvider] != "" {
		return control.RoleProvider
	}
	if declaresDual(o.Annotations) {
		return control.RoleRequester
	}
	return control.RoleInstance
}

func declaresDual(annotations map[string]string) bool {
	dual, err := strconv.ParseBool(annotations[config.AnnotationDualPods])
	return err == nil && dual
}

// finished reports whether no process of a pod is left.
func finished(o *corev1.Pod) bool {
	return o.Status.Phase == corev1.PodFailed || o.Status.Phase == corev1.PodSucceeded
}
