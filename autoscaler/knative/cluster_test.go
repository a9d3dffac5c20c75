package knative

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	kubefake "k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	networkingfake "knative.dev/networking/pkg/client/clientset/versioned/fake"
	autoscalingv1alpha1 "knative.dev/serving/pkg/apis/autoscaling/v1alpha1"
	"knative.dev/serving/pkg/apis/serving"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	servingfake "knative.dev/serving/pkg/client/clientset/versioned/fake"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/config"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

const (
	tiny   = api.FunctionName("default/tiny-00001")
	ownTok = "a-token-that-is-long-enough"
)

var (
	deployments = appsv1.SchemeGroupVersion.WithResource("deployments")
	pasResource = autoscalingv1alpha1.SchemeGroupVersion.WithResource("podautoscalers")
	podResource = corev1.SchemeGroupVersion.WithResource("pods")
)

// cluster is a Kubernetes that makes and deletes pods as a Deployment's scale says,
// and the core and activators that hear of them.
type cluster struct {
	t       *testing.T
	kube    *kubefake.Clientset
	serving *servingfake.Clientset
	network *networkingfake.Clientset
	fleet   *Fleet
	stop    func()

	mu        sync.Mutex // guards all below
	made      int
	refuse    string // why pods can't be made; empty: they can
	hold      bool   // pods are made later
	backwards bool   // the wrong pod is deleted
	linger    bool   // containers of pods that are being deleted go on
	seen      []api.InstanceStatus
	told      []control.InstanceReport
	functions map[api.FunctionName]api.Function
	removed   []api.FunctionName
	devices   []inventory.Device
	rooms     []inventory.Room
	unmanaged []inventory.UnmanagedPod
	elastic   bool
	steps     []string // that the core was told of pods, in order
	work      []string // that it was told of wakes, in order
	// gpus are claimed by each pod; annotations are its revision's.
	gpus        int64
	annotations map[string]string
	instances   map[string]http.Handler // by host:port
	calls       []string
}

// newCluster has one node and one revision, tiny-00001, with so many replicas.
func newCluster(t *testing.T, replicas int32, annotations map[string]string) *cluster {
	t.Helper()
	c := &cluster{t: t, functions: map[api.FunctionName]api.Function{}, instances: map[string]http.Handler{},
		kube: kubefake.NewClientset(), serving: servingfake.NewSimpleClientset(), network: networkingfake.NewSimpleClientset()}
	c.kube.PrependReactor("patch", "deployments", c.scale)
	c.kube.PrependWatchReactor("pods", c.watchPods)
	c.add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", Labels: map[string]string{config.GPUMakers[0].Count: "2", labelGPUMemory: "1024"}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("8Gi")}}})
	c.revision(replicas, annotations)
	return c
}

// watchPods filters by label, as the API server does and the fake does not: else two informers would tell of one pod.
func (c *cluster) watchPods(action kubetesting.Action) (bool, apiwatch.Interface, error) {
	wanted := action.(kubetesting.WatchActionImpl)
	w, err := c.kube.Tracker().Watch(wanted.GetResource(), wanted.GetNamespace(), wanted.ListOptions)
	if err != nil {
		return true, nil, err
	}
	chosen := make(chan apiwatch.Event)
	out := apiwatch.NewProxyWatcher(chosen)
	go func() { // ends with the watch
		defer w.Stop()
		for {
			select {
			case e := <-w.ResultChan():
				if o, is := e.Object.(*corev1.Pod); is && !wanted.WatchRestrictions.Labels.Matches(labels.Set(o.Labels)) {
					continue
				}
				select {
				case chosen <- e:
				case <-out.StopChan():
					return
				}
			case <-out.StopChan():
				return
			}
		}
	}()
	return true, out, nil
}

func (c *cluster) add(objects ...runtime.Object) {
	c.t.Helper()
	for _, o := range objects {
		if err := c.kube.Tracker().Add(o); err != nil {
			c.t.Fatal(err)
		}
	}
}

// revision adds the revision with its PodAutoscaler and its Deployment.
func (c *cluster) revision(replicas int32, annotations map[string]string) {
	c.t.Helper()
	a := map[string]string{config.AnnotationClass: config.Class, config.AnnotationModel: "pico"}
	for k, v := range annotations {
		a[k] = v
	}
	meta := metav1.ObjectMeta{Namespace: "default", Name: tiny.Name(), UID: "rev-uid", ResourceVersion: "1", Annotations: a,
		Labels: map[string]string{serving.RevisionLabelKey: tiny.Name(), serving.ServiceLabelKey: "tiny"}}
	spec := servingv1.RevisionSpec{PodSpec: corev1.PodSpec{Containers: []corev1.Container{{Name: "user-container", Image: "dev.local/rouse-function:v1"}}}}
	if annotations[config.AnnotationDualPods] != "" {
		spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
	}
	for _, o := range []runtime.Object{
		&servingv1.Revision{ObjectMeta: meta, Spec: spec},
		&autoscalingv1alpha1.PodAutoscaler{ObjectMeta: meta, Spec: autoscalingv1alpha1.PodAutoscalerSpec{
			ScaleTargetRef: corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "tiny-00001-deployment"}}},
	} {
		if err := c.serving.Tracker().Add(o); err != nil {
			c.t.Fatal(err)
		}
	}
	dep := meta
	dep.Name = "tiny-00001-deployment"
	c.add(&appsv1.Deployment{ObjectMeta: dep, Spec: appsv1.DeploymentSpec{Replicas: &replicas}})
	for range replicas {
		c.makePod()
	}
}

// start brings up the fleet.
func (c *cluster) start() {
	c.t.Helper()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(c.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	f, err := New(Config{}, Deps{Kube: c.kube, Serving: c.serving, Networking: c.network, Activators: c, Transport: c, Log: log})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := f.Sync(ctx); err != nil {
		c.t.Fatal(err)
	}
	f.Attach(c)
	c.fleet = f
	done := make(chan error)
	go func() { done <- f.Run(ctx) }()
	c.stop = func() {
		cancel()
		if err := <-done; err != nil {
			c.t.Error(err)
		}
	}
	synctest.Wait()
}

// declare does what the reconciler does first.
func (c *cluster) declare(s scaling) (problem string) {
	c.t.Helper()
	_, problem, _, err := c.fleet.declare(c.t.Context(), tiny, s)
	if err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
	return problem
}

// scale does what Kubernetes does with a new scale. The fake's lock is held: scale works on the tracker.
func (c *cluster) scale(action kubetesting.Action) (bool, runtime.Object, error) {
	p := action.(kubetesting.PatchAction)
	if p.GetSubresource() != "scale" {
		return false, nil, nil
	}
	var patch struct {
		Spec struct {
			Replicas int32 `json:"replicas"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(p.GetPatch(), &patch); err != nil {
		return true, nil, err
	}
	o, err := c.kube.Tracker().Get(deployments, p.GetNamespace(), p.GetName())
	if err != nil {
		return true, nil, err
	}
	d := o.(*appsv1.Deployment).DeepCopy()
	d.Spec.Replicas = &patch.Spec.Replicas
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, fmt.Sprintf("scale %d", patch.Spec.Replicas))
	if c.refuse != "" {
		d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: c.refuse}}
	}
	if err := c.kube.Tracker().Update(deployments, d, d.Namespace); err != nil {
		return true, nil, err
	}
	if c.refuse == "" && !c.hold {
		c.match(int(patch.Spec.Replicas))
	}
	return true, d, nil
}

// match makes or deletes pods until there are n. Of those to delete such without a node go first, then such
// that don't run, that aren't ready, that are cheapest. The fake's lock is held.
func (c *cluster) match(n int) {
	pods := slices.DeleteFunc(c.pods(), func(p *corev1.Pod) bool { return p.Labels[serving.RevisionLabelKey] == "" })
	for k := len(pods); k < n; k++ {
		c.makePod()
	}
	order := func(p *corev1.Pod) []int {
		o := []int{0, 0, 0, costOf(p)}
		if p.Spec.NodeName != "" {
			o[0] = 1
		}
		if p.Status.Phase == corev1.PodRunning {
			o[1] = 1
		}
		if slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }) {
			o[2] = 1
		}
		return o
	}
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int { return slices.Compare(order(a), order(b)) })
	if c.backwards {
		slices.Reverse(pods)
	}
	for k := 0; k < len(pods)-n; k++ {
		how := beingDeleted
		if c.linger {
			how = leaving
		}
		c.change(pods[k].Name, how)
	}
}

// pods lists those that are not being deleted, by name.
func (c *cluster) pods() []*corev1.Pod {
	o, err := c.kube.Tracker().List(podResource, corev1.SchemeGroupVersion.WithKind("Pod"), "default")
	if err != nil {
		c.t.Error(err)
		return nil
	}
	var ps []*corev1.Pod
	for k := range o.(*corev1.PodList).Items {
		if p := &o.(*corev1.PodList).Items[k]; p.DeletionTimestamp == nil {
			ps = append(ps, p)
		}
	}
	return ps
}

// makePod makes the next pod, pod-1, pod-2 and so on, on node1 and without an address.
func (c *cluster) makePod() {
	c.made++
	name := fmt.Sprintf("pod-%d", c.made)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), CreationTimestamp: metav1.Now(),
			Labels: map[string]string{serving.RevisionLabelKey: tiny.Name()}},
		Spec: corev1.PodSpec{NodeName: "node1", Containers: []corev1.Container{
			{Name: "user-container", Ports: []corev1.ContainerPort{{Name: servingv1.UserPortName, ContainerPort: 8080}}}, {Name: "queue-proxy"}}},
	}
	p.Annotations = maps.Clone(c.annotations)
	if c.gpus > 0 {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(c.gpus, resource.DecimalSI)}
	}
	if err := c.kube.Tracker().Create(podResource, p, "default"); err != nil {
		c.t.Error(err)
	}
}

// edit changes a pod in one step, as the API server does: what the fleet patches meanwhile
// is not lost, and its patch, which the fake makes of a pod as read before, undoes nothing.
func (c *cluster) edit(name string, how func(*corev1.Pod)) {
	c.kube.Lock()
	defer c.kube.Unlock()
	c.change(name, how)
}

// change is edit with the fake's lock held.
func (c *cluster) change(name string, how func(*corev1.Pod)) {
	o, err := c.kube.Tracker().Get(podResource, "default", name)
	if err != nil {
		c.t.Error(err)
		return
	}
	p := o.(*corev1.Pod).DeepCopy()
	how(p)
	if err := c.kube.Tracker().Update(podResource, p, "default"); err != nil {
		c.t.Error(err)
	}
}

func (c *cluster) deletePod(name string) { c.edit(name, beingDeleted) }

// beingDeleted has a pod deleted, whose containers end at once.
func beingDeleted(p *corev1.Pod) {
	leaving(p)
	for k := range p.Status.ContainerStatuses {
		p.Status.ContainerStatuses[k].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	}
}

// leaving has a pod deleted, whose containers go on.
func leaving(p *corev1.Pod) { now := metav1.Now(); p.DeletionTimestamp = &now }

// runs publishes a pod's address and says that its container runs and is ready.
func (c *cluster) runs(name, ip string) {
	c.edit(name, func(p *corev1.Pod) {
		p.Status.Phase, p.Status.PodIP, p.Status.PodIPs = corev1.PodRunning, ip, []corev1.PodIP{{IP: ip}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "user-container", Image: "dev.local/rouse-function:v1",
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	})
	synctest.Wait()
}

// addressed publishes a pod's address.
func (c *cluster) addressed(name, ip string) {
	c.edit(name, func(p *corev1.Pod) { p.Status.PodIP, p.Status.PodIPs = ip, []corev1.PodIP{{IP: ip}} })
	synctest.Wait()
}

// join lets a pod's function join from an address.
func (c *cluster) join(name, ip string, devices ...api.DeviceID) (control.RegisterAnswer, error) {
	return c.fleet.Join(c.t.Context(), control.RegisterRequest{Instance: api.InstanceID(name), Namespace: "default", Revision: tiny.Name(), Port: 8080, Devices: devices},
		netip.MustParseAddr(ip), ownTok)
}

// report lets a pod's function report a state.
func (c *cluster) report(name, ip string, state api.State, seq uint64) error {
	s := api.InstanceStatus{Instance: api.InstanceID(name), Function: tiny, State: state, Seq: seq}
	if state == api.Asleep {
		s.Level = api.Level1
	}
	return c.fleet.Report(s, netip.MustParseAddr(ip), ownTok)
}

// last returns the core's last report of an instance.
func (c *cluster) last(name string) api.InstanceStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := len(c.seen) - 1; k >= 0; k-- {
		if c.seen[k].Instance == api.InstanceID(name) {
			return c.seen[k]
		}
	}
	return api.InstanceStatus{}
}

// heard counts how often the core heard of an instance.
func (c *cluster) heard(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, s := range c.seen {
		if s.Instance == api.InstanceID(name) {
			n++
		}
	}
	return n
}

// replicas is the Deployment's scale.
func (c *cluster) replicas() int {
	o, err := c.kube.Tracker().Get(deployments, "default", "tiny-00001-deployment")
	if err != nil {
		c.t.Fatal(err)
	}
	return replicas(o.(*appsv1.Deployment))
}

// The core.

func (c *cluster) PutFunction(f api.Function) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.functions[f.Name] = f
}

func (c *cluster) RemoveFunction(n api.FunctionName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.functions, n)
	c.removed = append(c.removed, n)
}

func (c *cluster) ObserveInstance(s api.InstanceStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, s)
}

func (c *cluster) NotePodSteps(_ api.FunctionName, _ api.InstanceID, _ api.Path, steps ...waketrace.Step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range steps {
		c.steps = append(c.steps, s.Name)
	}
}

// traced is a context of a call that is made for theWake, of which the cluster notes the work.
func (c *cluster) traced(ctx context.Context) context.Context {
	return waketrace.With(ctx, waketrace.NewTracer(waketrace.ExportTo(c)).Join(theWake))
}

// OnStart is part of [sdktrace.SpanProcessor].
func (c *cluster) OnStart(_ context.Context, s sdktrace.ReadWriteSpan) {
	if s.Name() == api.SpanVictimEnd {
		c.worksOn(s, " begins")
	}
}

// OnEnd is part of [sdktrace.SpanProcessor].
func (c *cluster) OnEnd(s sdktrace.ReadOnlySpan) { c.worksOn(s, "") }

func (c *cluster) worksOn(s sdktrace.ReadOnlySpan, how string) {
	about := map[attribute.Key]string{}
	for _, a := range s.Attributes() {
		about[a.Key] = a.Value.AsString()
	}
	line := fmt.Sprintf("%s: %s%s", s.Name(), cmp.Or(about["rouse.note"], about["rouse.instance"]), how)
	if p := s.Parent(); p.TraceID().String() != theWake.ID || p.SpanID().String() != theWake.Span {
		line += " of another trace"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.work = append(c.work, line)
}

// Shutdown is part of [sdktrace.SpanProcessor].
func (*cluster) Shutdown(context.Context) error { return nil }

// ForceFlush is part of [sdktrace.SpanProcessor].
func (*cluster) ForceFlush(context.Context) error { return nil }

func (c *cluster) SetElastic(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.elastic = on
}

func (c *cluster) SetRooms(rooms []inventory.Room, unmanaged []inventory.UnmanagedPod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rooms, c.unmanaged = rooms, unmanaged
}

func (c *cluster) SetDevices(d []inventory.Device) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.devices = d
}

// The activators.

func (c *cluster) Grant(context.Context, api.Grant) error  { return nil }
func (c *cluster) Revoke(context.Context, api.Grant) error { return nil }
func (c *cluster) Fail(context.Context, api.FunctionName, *api.Error) error {
	return nil
}

func (c *cluster) Tell(r control.InstanceReport) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, r)
}

// RoundTrip reaches the instances.
func (c *cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.calls = append(c.calls, r.Method+" "+r.URL.Host+r.URL.Path)
	h := c.instances[r.URL.Host]
	c.mu.Unlock()
	if h == nil {
		return nil, fmt.Errorf("dial %s: connection refused", r.URL.Host)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result(), nil
}

// called reports whether a call with this prefix was made.
func (c *cluster) called(prefix string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.calls, func(s string) bool { return strings.HasPrefix(s, prefix) })
}

// inCluster runs test in virtual time, in a cluster that [newCluster] makes, which runs for so long.
func inCluster(t *testing.T, replicas int32, annotations map[string]string, test func(t *testing.T, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, replicas, annotations)
		c.start()
		defer func() { c.stop() }() // the last, where it was started again
		test(t, c)
	})
}
