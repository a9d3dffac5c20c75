package knative

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler"
	"github.com/rouse-dev/rouse/config"
	"github.com/rouse-dev/rouse/internal/bell"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// state is shared by the parts of a fleet.
//
// One mutex guards the fields below it, everything they point to, and the fields of the parts. It is not held during
// calls to the cluster or a pod. It is locked by the methods of [Fleet], and by those of the parts that take a context,
// handle an event of a watch, or say so. All others are called with it held, or use nothing that it guards.
type state struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	watch   *watch
	core    Core
	metrics *dualMetrics

	pairsDue bell.Bell // a plan of pairs may be due
	namesDue bell.Bell // models' names may have changed owners

	mu        sync.Mutex // see above
	revisions map[api.FunctionName]*revision
	pods      map[api.InstanceID]*pod
	leaving   map[api.InstanceID]*pod  // pods that are being deleted or have ended, until they are gone
	changed   func(n api.FunctionName) // reconciles the PodAutoscaler again; does not block

	// calls run until ctx ends, with the fleet.
	calls sync.WaitGroup
	ctx   context.Context
	end   context.CancelFunc
}

func newState(cfg Config, deps Deps) *state {
	st := &state{cfg: cfg, deps: deps, log: deps.Log, watch: newWatch(deps), metrics: newDualMetrics(),
		pairsDue:  bell.New(),
		namesDue:  bell.New(),
		revisions: make(map[api.FunctionName]*revision),
		pods:      make(map[api.InstanceID]*pod),
		leaving:   make(map[api.InstanceID]*pod),
		changed:   func(api.FunctionName) {},
	}
	st.ctx, st.end = context.WithCancel(context.Background())
	return st
}

// startCall runs do in the background, unless the fleet has ended.
func (st *state) startCall(do func(ctx context.Context)) {
	if st.ctx.Err() == nil {
		st.calls.Go(func() { do(st.ctx) })
	}
}

// stopCalls ends the calls in the background and waits for them. It locks.
func (st *state) stopCalls() {
	st.mu.Lock()
	st.end()
	st.mu.Unlock()
	st.calls.Wait()
}

func (st *state) traceWrite(ctx context.Context, do func() error, what string, about ...any) error {
	if waketrace.From(ctx) == nil {
		return do()
	}
	_, span := waketrace.Start(ctx, waketrace.Step{Name: autoscaler.SpanWrite, Part: api.PartAutoscaler, Note: fmt.Sprintf(what, about...)})
	err := do()
	span.Done(err)
	return err
}

// revision returns nil if the revision is not of our class.
func (st *state) revision(name api.FunctionName) *revision {
	if r := st.revisions[name]; r != nil {
		return r
	}
	pa, err := st.watch.pas.Lister().PodAutoscalers(name.Namespace()).Get(name.Name())
	if err != nil || !config.IsFunction(nil, pa.Annotations) || pa.DeletionTimestamp != nil {
		return nil
	}
	r := &revision{name: name, want: -1, pods: make(map[api.InstanceID]*pod), patching: make(chan struct{}, 1),
		providers: make(map[api.InstanceID]*pod), making: make(map[api.InstanceID]*making)}
	st.revisions[name] = r
	return r
}

func (st *state) deployment(name api.FunctionName) (*appsv1.Deployment, error) {
	pa, err := st.watch.pas.Lister().PodAutoscalers(name.Namespace()).Get(name.Name())
	if err != nil {
		return nil, fmt.Errorf("find the Deployment of %s: %w", name, err)
	}
	if ref := pa.Spec.ScaleTargetRef; ref.Kind != "Deployment" {
		return nil, fmt.Errorf("find the Deployment of %s: its scale target is a %s", name, ref.Kind)
	}
	d, err := st.watch.deployments.Lister().Deployments(name.Namespace()).Get(pa.Spec.ScaleTargetRef.Name)
	if err != nil {
		return nil, fmt.Errorf("find the Deployment of %s: %w", name, err)
	}
	return d, nil
}

// podOrLeaving returns a pod by its name, one of a pair until it is gone.
func (st *state) podOrLeaving(id api.InstanceID) *pod {
	if p := st.leaving[id]; p != nil && p.role != control.RoleInstance && st.pods[id] == nil {
		return p
	}
	return st.pods[id]
}

// annotate fails if the pod was replaced.
func (st *state) annotate(ctx context.Context, o *corev1.Pod, key, value string) error {
	_, err := st.patchPod(ctx, o, map[string]any{"annotations": map[string]string{key: value}}, nil)
	return err
}

// patchPod fails if the pod was replaced.
func (st *state) patchPod(ctx context.Context, o *corev1.Pod, meta map[string]any, containers []map[string]any, subresources ...string) (*corev1.Pod, error) {
	meta["uid"] = o.UID
	patch := map[string]any{"metadata": meta}
	if containers != nil {
		patch["spec"] = map[string]any{"containers": containers}
	}
	raw, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	return st.deps.Kube.CoreV1().Pods(o.Namespace).Patch(ctx, o.Name, types.StrategicMergePatchType, raw, metav1.PatchOptions{FieldManager: manager}, subresources...)
}
