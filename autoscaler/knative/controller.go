package knative

import (
	"context"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	kubeclient "knative.dev/pkg/client/injection/kube/client"
	"knative.dev/pkg/configmap"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/logging"
	pkgreconciler "knative.dev/pkg/reconciler"
	autoscalingv1alpha1 "knative.dev/serving/pkg/apis/autoscaling/v1alpha1"
	"knative.dev/serving/pkg/apis/serving"
	"knative.dev/serving/pkg/autoscaler/config/autoscalerconfig"
	"knative.dev/serving/pkg/client/clientset/versioned/scheme"
	servingclient "knative.dev/serving/pkg/client/injection/client"
	painformer "knative.dev/serving/pkg/client/injection/informers/autoscaling/v1alpha1/podautoscaler"
	pareconciler "knative.dev/serving/pkg/client/injection/reconciler/autoscaling/v1alpha1/podautoscaler"
	"knative.dev/serving/pkg/deployment"
	"knative.dev/serving/pkg/reconciler/autoscaling/config"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	rouseconfig "github.com/rouse-dev/rouse/config"
)

// NewController returns the reconciler of PodAutoscalers of our class. Call it between [Fleet.Attach] and [Fleet.Run].
// The caller starts cmw, the ConfigMaps of the system namespace, before the controller's RunContext.
func NewController(ctx context.Context, fleet *Fleet, cmw configmap.Watcher) *controller.Impl {
	ctx = context.WithValue(ctx, kubeclient.Key{}, fleet.deps.Kube)
	ctx = context.WithValue(ctx, servingclient.Key{}, fleet.deps.Serving)
	ctx = context.WithValue(ctx, painformer.Key{}, fleet.watch.pas)
	ctx = logging.WithLogger(ctx, warnings())
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: fleet.deps.Kube.CoreV1().Events("")})
	events := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: control.AutoscalerName})
	ctx = controller.WithEventRecorder(ctx, events)

	ours := pkgreconciler.AnnotationFilterFunc(rouseconfig.AnnotationClass, rouseconfig.Class, false)
	impl := pareconciler.NewImpl(ctx, &reconciler{fleet}, rouseconfig.Class, func(impl *controller.Impl) controller.Options {
		resync := configmap.TypeFilter(&autoscalerconfig.Config{}, &deployment.Config{})(func(string, any) {
			impl.FilteredGlobalResync(ours, fleet.watch.pas.Informer())
		})
		store := config.NewStore(logging.FromContext(ctx).Named("config-store"), resync)
		store.WatchConfigs(cmw)
		return controller.Options{ConfigStore: store, PromoteFilterFunc: ours}
	})
	handle := func(i cache.SharedIndexInformer, h cache.ResourceEventHandler) {
		if _, err := i.AddEventHandler(h); err != nil {
			fleet.log.Error("changes in the cluster are not followed", "error", err) // only an informer that has ended refuses
		}
	}
	handle(fleet.watch.pas.Informer(), cache.FilteringResourceEventHandler{FilterFunc: ours, Handler: controller.HandleAll(impl.Enqueue)})
	handle(fleet.watch.pas.Informer(), warnMissingClass(events))
	for _, i := range []cache.SharedIndexInformer{fleet.watch.skss.Informer(), fleet.watch.kubeServices.Informer(), fleet.watch.endpoints.Informer()} {
		handle(i, cache.FilteringResourceEventHandler{FilterFunc: controller.FilterController(&autoscalingv1alpha1.PodAutoscaler{}),
			Handler: controller.HandleAll(impl.EnqueueControllerOf)})
	}
	handle(fleet.watch.activators.Informer(), controller.HandleAll(func(any) { impl.FilteredGlobalResync(ours, fleet.watch.pas.Informer()) }))
	// A revision, its PodAutoscaler and its Deployment's label have the same name.
	handle(fleet.watch.revisions.Informer(), cache.FilteringResourceEventHandler{FilterFunc: fleet.functions.isFunction, Handler: controller.HandleAll(impl.Enqueue)})
	handle(fleet.watch.deployments.Informer(), cache.FilteringResourceEventHandler{FilterFunc: fleet.functions.hasFunction,
		Handler: controller.HandleAll(impl.EnqueueLabelOfNamespaceScopedResource("", serving.RevisionLabelKey))})

	fleet.mu.Lock()
	fleet.changed = func(n api.FunctionName) {
		impl.EnqueueKey(types.NamespacedName{Namespace: n.Namespace(), Name: n.Name()})
	}
	fleet.mu.Unlock()
	return impl
}

func warnings() *zap.SugaredLogger {
	cfg := zap.NewProductionConfig()
	cfg.Level = zap.NewAtomicLevelAt(zap.WarnLevel)
	cfg.DisableStacktrace = true
	log, err := cfg.Build()
	if err != nil {
		return zap.NewNop().Sugar() // standard error is closed
	}
	return log.Sugar()
}
