package knative

import (
	"cmp"
	"encoding/json"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	autoscalingv1alpha1 "knative.dev/serving/pkg/apis/autoscaling/v1alpha1"
	"knative.dev/serving/pkg/apis/serving"
	v1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/rouse-dev/rouse/activator"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
)

// watch keeps the activator in sync with the cluster. It is safe for concurrent use.
type watch struct {
	core      *activator.Activator
	instances *instances
	offers    *offers
	// nil: the process is no front door
	services *services
	seen     func(api.InstanceStatus)
	placed   *applier
	log      *slog.Logger

	mu        sync.Mutex // guards the fields below, and orders the calls of the activator about revisions
	revisions map[api.FunctionName]declared
	adapters  map[api.FunctionName][]api.Adapter // Services' own
	classes   map[api.FunctionName]string        // of PodAutoscalers
	// Set before the first event.
	find func(api.FunctionName) *v1.Revision
}

type declared struct {
	function api.Function
	port     int
	fault    string // empty: valid
	away     bool   // the Service is a function, the revision none
	object   *v1.Revision
}

func newWatch(core *activator.Activator, known *instances, log *slog.Logger) *watch {
	return &watch{core: core, instances: known, log: log, revisions: map[api.FunctionName]declared{}, adapters: map[api.FunctionName][]api.Adapter{},
		classes: map[api.FunctionName]string{}, find: func(api.FunctionName) *v1.Revision { return nil }}
}

func (w *watch) isOurs(rev *v1.Revision) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return config.IsFunction(rev.Annotations, map[string]string{config.AnnotationClass: w.classes[api.NewFunctionName(rev.Namespace, rev.Name)]})
}

// A PodAutoscaler has the class and the name of its revision.
func (w *watch) podAutoscaler(pa *autoscalingv1alpha1.PodAutoscaler) {
	name, class := api.NewFunctionName(pa.Namespace, pa.Name), pa.Annotations[config.AnnotationClass]
	w.mu.Lock()
	news := w.classes[name] != class
	w.classes[name] = class
	w.mu.Unlock()
	if rev := w.find(name); news && rev != nil {
		w.revision(rev)
	}
}

// A PodAutoscaler goes with its revision.
func (w *watch) noPodAutoscaler(pa *autoscalingv1alpha1.PodAutoscaler) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.classes, api.NewFunctionName(pa.Namespace, pa.Name))
}

func (w *watch) revision(rev *v1.Revision) {
	if !w.isOurs(rev) || rev.DeletionTimestamp != nil {
		w.noRevision(rev)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.put(rev)
}

// The caller holds mu.
func (w *watch) put(rev *v1.Revision) {
	var adapters *[]api.Adapter
	if list, has := w.adapters[api.NewFunctionName(rev.Namespace, rev.Labels[serving.ServiceLabelKey])]; has {
		adapters = &list
	}
	name, service := api.NewFunctionName(rev.Namespace, rev.Name), serviceOf(rev)
	d := w.declare(rev, adapters)
	old, known := w.revisions[name]
	old.object, w.revisions[name] = rev, d
	if known && reflect.DeepEqual(old, d) {
		return
	}
	if rev.Labels[serving.ServiceLabelKey] == "" {
		w.core.PutService(name, rev.CreationTimestamp.Time)
	}
	if d.away {
		if known && !old.away {
			w.core.RemoveFunction(name)
			w.offers.remove(name)
		}
		w.services.put(service, name, d.function)
		return
	}
	w.core.PutFunction(d.function)
	w.services.put(service, name, here(d.function))
	w.offers.put(d.function)
	if d.fault == "" {
		return
	}
	w.log.Warn("a revision is not valid and takes no requests", "revision", name, "error", d.fault)
	w.core.Fail(name, &api.Error{
		Status: http.StatusServiceUnavailable, Code: api.CodeStartFailed, NoRetry: true,
		Message: "the function can't run: " + d.fault,
	})
}

// adapters is the Service's own list. A revision for other clusters is their function at a front door, ignored by
// an agent, and otherwise invalid.
func (w *watch) declare(rev *v1.Revision, adapters *[]api.Adapter) declared {
	d, source := declare(rev, adapters)
	if d.function.Clusters == "" {
		return d
	}
	switch {
	case w.offers != nil:
		d.away = true
	case w.services == nil:
		d.fault = "it is for other clusters (" + config.AnnotationClusters + "), and the activators are no front door of any: " +
			"add the component manifests/components/front, or take the annotation away"
	case d.fault == "":
		there, err := config.Placed(source)
		if err != nil {
			d.fault = "it can't be sent to other clusters (" + config.AnnotationClusters + "): " + err.Error()
		} else {
			d.function, d.away = there, true
		}
	}
	return d
}

func here(f api.Function) api.Function {
	f.Clusters = ""
	return f
}

func declare(rev *v1.Revision, adapters *[]api.Adapter) (declared, config.RevisionSource) {
	spec, _ := json.Marshal(rev.Spec) // it was made from JSON
	source := config.RevisionSource{
		Namespace: rev.Namespace, Name: rev.Name, Service: rev.Labels[serving.ServiceLabelKey],
		Annotations: rev.Annotations, Spec: spec, Adapters: adapters,
	}
	f, err := config.Revision(source)
	d := declared{function: f, port: config.RevisionPort(source), object: rev}
	if err != nil {
		d.fault = err.Error()
	}
	return d, source
}

// It was deleted or is not of our class.
func (w *watch) noRevision(rev *v1.Revision) {
	name := api.FunctionName(rev.Namespace + "/" + rev.Name)
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.revisions[name]; known {
		delete(w.revisions, name)
		w.services.remove(serviceOf(rev), name)
		w.core.RemoveFunction(name)
		w.offers.remove(name)
		if rev.Labels[serving.ServiceLabelKey] == "" {
			w.core.RemoveService(name)
		}
	}
}

func (w *watch) names() []api.FunctionName {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.revisions))
}

func (w *watch) endpoint(name api.FunctionName, ip string) api.Endpoint {
	w.mu.Lock()
	defer w.mu.Unlock()
	return podEndpoint(ip, w.revisions[name].port)
}

// The activator does not know other classes' revisions.
func (w *watch) route(route *v1.Route) {
	t := activator.Traffic{Service: serviceOf(route)}
	for _, target := range route.Status.Traffic {
		if target.Percent != nil && *target.Percent > 0 && target.RevisionName != "" {
			t.Shares = append(t.Shares, activator.Share{Function: api.NewFunctionName(route.Namespace, target.RevisionName), Percent: int(*target.Percent)})
		}
	}
	w.core.PutTraffic(t)
	w.offers.route(t)
	w.services.route(t)
}

func (w *watch) noRoute(route *v1.Route) {
	w.core.RemoveTraffic(serviceOf(route))
	w.offers.route(activator.Traffic{Service: serviceOf(route)})
	w.services.route(activator.Traffic{Service: serviceOf(route)})
}

func (w *watch) service(s *v1.Service) {
	name := api.NewFunctionName(s.Namespace, s.Name)
	w.core.PutService(name, s.CreationTimestamp.Time)
	if w.placed.See(s) {
		w.offers.changed(name)
	}
	text, has := s.Annotations[config.AnnotationAdapters]
	list, err := config.Adapters(text)
	if err != nil {
		w.log.Warn("a service's adapters can't be read and stay as they are", "service", name, "error", err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if old, had := w.adapters[name]; had == has && slices.Equal(old, list) {
		return
	}
	if has {
		w.adapters[name] = list
	} else {
		delete(w.adapters, name)
	}
	for _, d := range w.revisions { // put replaces only existing revisions
		if rev := d.object; name == api.NewFunctionName(rev.Namespace, rev.Labels[serving.ServiceLabelKey]) {
			w.put(rev)
		}
	}
}

func (w *watch) noService(s *v1.Service) {
	name := api.NewFunctionName(s.Namespace, s.Name)
	w.core.RemoveService(name)
	w.placed.Forget(s)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.adapters, name)
}

func (w *watch) namespace(n *corev1.Namespace)   { w.core.SetNamespace(n.Name, true) }
func (w *watch) noNamespace(n *corev1.Namespace) { w.core.SetNamespace(n.Name, false) }

// Without a Service it is its own.
func serviceOf(o metav1.Object) api.FunctionName {
	return api.NewFunctionName(o.GetNamespace(), cmp.Or(o.GetLabels()[serving.ServiceLabelKey], o.GetName()))
}

func (w *watch) pod(pod *corev1.Pod) {
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		w.noPod(pod)
		return
	}
	w.instances.pod(functionOf(pod), api.InstanceID(pod.Name), pod.Status.PodIP)
	port, _ := strconv.Atoi(pod.Annotations[config.AnnotationInjected]) // an invalid number counts as none
	w.instances.listens(api.InstanceID(pod.Name), port)
}

// Its instance ends too, whatever its last report.
func (w *watch) noPod(pod *corev1.Pod) {
	name, id := functionOf(pod), api.InstanceID(pod.Name)
	w.instances.noPod(name, id)
	if w.core.Declared(name) {
		w.observe(api.InstanceStatus{Instance: id, Function: name, State: api.Gone})
		w.offers.touched(name)
	}
}

func (w *watch) observe(st api.InstanceStatus) {
	w.core.ObserveInstance(st)
	if w.seen != nil {
		w.seen(st)
	}
}

func functionOf(pod *corev1.Pod) api.FunctionName {
	return api.NewFunctionName(pod.Namespace, pod.Labels[serving.RevisionLabelKey])
}

func podEndpoint(ip string, port int) api.Endpoint {
	return api.Endpoint("http://" + net.JoinHostPort(ip, strconv.Itoa(cmp.Or(port, 8080))))
}
