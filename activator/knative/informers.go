package knative

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	autoscalingv1alpha1 "knative.dev/serving/pkg/apis/autoscaling/v1alpha1"
	"knative.dev/serving/pkg/apis/serving"
	v1 "knative.dev/serving/pkg/apis/serving/v1"
	servingclient "knative.dev/serving/pkg/client/clientset/versioned"
	servinginformers "knative.dev/serving/pkg/client/informers/externalversions"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
)

// Informers of revisions and of the token's Secret already run.
type sources struct {
	revisions, secret cache.SharedIndexInformer
	kube              kubernetes.Interface
	serving           servingclient.Interface
}

// feed returns once all existing objects are handled.
func (s sources) feed(ctx context.Context, w *watch, token *clusterToken) error {
	pods := informers.NewSharedInformerFactoryWithOptions(s.kube, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = serving.RevisionLabelKey }),
		informers.WithTransform(strip))
	w.find = func(name api.FunctionName) *v1.Revision {
		o, _, _ := s.revisions.GetStore().GetByKey(string(name))
		rev, _ := o.(*v1.Revision)
		return rev
	}
	routes := servinginformers.NewSharedInformerFactory(s.serving, 0)
	services := routes.Serving().V1().Services().Informer()
	namespaces := informers.NewSharedInformerFactoryWithOptions(s.kube, 0, informers.WithTransform(strip))
	if err := services.SetTransform(strip); err != nil {
		return fmt.Errorf("watch services: %w", err)
	}
	classes := routes.Autoscaling().V1alpha1().PodAutoscalers().Informer()
	if err := classes.SetTransform(strip); err != nil {
		return fmt.Errorf("watch PodAutoscalers: %w", err)
	}
	var synced []cache.InformerSynced
	for _, c := range []struct {
		what     string
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{"services", services, on(w.service, w.noService)},
		{"namespaces", namespaces.Core().V1().Namespaces().Informer(), on(w.namespace, w.noNamespace)},
		{"PodAutoscalers", classes, on(w.podAutoscaler, w.noPodAutoscaler)},
		// Revisions come before the objects that refer to them.
		{"revisions", s.revisions, on(w.revision, w.noRevision)},
		{"routes", routes.Serving().V1().Routes().Informer(), on(w.route, w.noRoute)},
		{"pods", pods.Core().V1().Pods().Informer(), on(w.pod, w.noPod)},
		{"the Secret of the token", s.secret, token.handler()},
	} {
		registered, err := c.informer.AddEventHandler(c.handler)
		if err != nil {
			return fmt.Errorf("watch %s: %w", c.what, err)
		}
		synced = append(synced, registered.HasSynced)
	}
	routes.Start(ctx.Done())
	pods.Start(ctx.Done())
	namespaces.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return fmt.Errorf("wait for the cluster's state: %w", context.Cause(ctx))
	}
	return nil
}

// strip keeps what a watch reads: clusters have many objects.
func strip(object any) (any, error) {
	kept := func(m metav1.ObjectMeta) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, CreationTimestamp: m.CreationTimestamp}
	}
	switch o := object.(type) {
	case *corev1.Pod:
		meta := kept(o.ObjectMeta)
		meta.Labels = map[string]string{serving.RevisionLabelKey: o.Labels[serving.RevisionLabelKey]}
		if port, has := o.Annotations[config.AnnotationInjected]; has {
			meta.Annotations = map[string]string{config.AnnotationInjected: port}
		}
		return &corev1.Pod{ObjectMeta: meta, Status: corev1.PodStatus{Phase: o.Status.Phase, PodIP: o.Status.PodIP}}, nil
	case *autoscalingv1alpha1.PodAutoscaler:
		meta := kept(o.ObjectMeta)
		meta.Annotations = map[string]string{config.AnnotationClass: o.Annotations[config.AnnotationClass]}
		return &autoscalingv1alpha1.PodAutoscaler{ObjectMeta: meta}, nil
	case *corev1.Namespace:
		return &corev1.Namespace{ObjectMeta: kept(o.ObjectMeta)}, nil
	case *v1.Service:
		meta := kept(o.ObjectMeta)
		if list, has := o.Annotations[config.AnnotationAdapters]; has {
			meta.Annotations = map[string]string{config.AnnotationAdapters: list}
		}
		keepMarks(&meta, o.ObjectMeta)
		return &v1.Service{ObjectMeta: meta}, nil
	}
	return object, nil
}

func on[T *v1.Revision | *autoscalingv1alpha1.PodAutoscaler | *v1.Route | *v1.Service | *corev1.Pod | *corev1.Namespace | *corev1.Secret](there, gone func(T)) cache.ResourceEventHandler {
	with := func(f func(T)) func(any) {
		return func(object any) {
			if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			if o, ok := object.(T); ok {
				f(o)
			}
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    with(there),
		UpdateFunc: func(_, object any) { with(there)(object) },
		DeleteFunc: with(gone),
	}
}
