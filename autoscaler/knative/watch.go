package knative

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	appstyped "k8s.io/client-go/informers/apps/v1"
	coretyped "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	networkinginformers "knative.dev/networking/pkg/client/informers/externalversions"
	networkingtyped "knative.dev/networking/pkg/client/informers/externalversions/networking/v1alpha1"
	"knative.dev/serving/pkg/apis/serving"
	servinginformers "knative.dev/serving/pkg/client/informers/externalversions"
	autoscalingtyped "knative.dev/serving/pkg/client/informers/externalversions/autoscaling/v1alpha1"
	servingtyped "knative.dev/serving/pkg/client/informers/externalversions/serving/v1"

	"github.com/rouse-dev/rouse/api/control"
)

// watch holds the informers: pods and Deployments of Knative revisions only, and providers, the fleet's own pods.
type watch struct {
	factories []factory
	informers []cache.SharedIndexInformer

	pods, providers coretyped.PodInformer
	deployments     appstyped.DeploymentInformer
	nodes           coretyped.NodeInformer
	namespaces      coretyped.NamespaceInformer
	kubeServices    coretyped.ServiceInformer   // that the fleet has created
	endpoints       coretyped.EndpointsInformer // that the fleet has created
	activators      coretyped.EndpointsInformer // the activators'

	revisions servingtyped.RevisionInformer
	services  servingtyped.ServiceInformer
	routes    servingtyped.RouteInformer
	pas       autoscalingtyped.PodAutoscalerInformer
	skss      networkingtyped.ServerlessServiceInformer
	// everyPod is stripped by [stripPod].
	everyPod cache.SharedIndexInformer
	events   []cache.SharedIndexInformer
}

type factory interface {
	Start(stop <-chan struct{})
	Shutdown()
}

func newWatch(d Deps) *watch {
	w := &watch{}
	kube := func(options ...informers.SharedInformerOption) informers.SharedInformerFactory {
		f := informers.NewSharedInformerFactoryWithOptions(d.Kube, 0, options...)
		w.factories = append(w.factories, f)
		return f
	}
	labelled := func(selector string) informers.SharedInformerOption {
		return informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = selector })
	}
	fields := func(selector string) informers.SharedInformerOption {
		return informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = selector })
	}
	ofRevisions, made, cluster := kube(labelled(serving.RevisionLabelKey)), kube(labelled(labelManaged+"="+control.AutoscalerName)), kube()
	w.pods, w.deployments = ofRevisions.Core().V1().Pods(), ofRevisions.Apps().V1().Deployments()
	w.providers = kube(labelled(LabelProvider)).Core().V1().Pods()
	w.kubeServices, w.endpoints = made.Core().V1().Services(), made.Core().V1().Endpoints()
	w.activators = kube(informers.WithNamespace(control.SystemNamespace), fields("metadata.name="+control.ActivatorName)).Core().V1().Endpoints()
	w.nodes, w.namespaces = cluster.Core().V1().Nodes(), cluster.Core().V1().Namespaces()
	knative := servinginformers.NewSharedInformerFactory(d.Serving, 0)
	network := networkinginformers.NewSharedInformerFactory(d.Networking, 0)
	w.factories = append(w.factories, knative, network)
	w.revisions, w.services, w.routes = knative.Serving().V1().Revisions(), knative.Serving().V1().Services(), knative.Serving().V1().Routes()
	w.pas, w.skss = knative.Autoscaling().V1alpha1().PodAutoscalers(), network.Networking().V1alpha1().ServerlessServices()
	for _, reason := range nodeEvents {
		events := kube(fields("reason=" + reason)).Core().V1().Events().Informer()
		_ = events.AddIndexers(cache.Indexers{indexPodOfEvent: podOfEvent}) // the informer has not started, and has no index of this name
		w.events = append(w.events, events)
	}
	w.everyPod = kube(informers.WithTransform(stripPod)).Core().V1().Pods().Informer()
	_ = w.everyPod.AddIndexers(cache.Indexers{indexNode: byNode})
	w.informers = append(slices.Clone(w.events), w.everyPod)
	for _, of := range []interface {
		Informer() cache.SharedIndexInformer
	}{w.pods, w.providers, w.deployments, w.nodes, w.namespaces,
		w.kubeServices, w.endpoints, w.activators, w.revisions, w.services, w.routes, w.pas, w.skss} {
		w.informers = append(w.informers, of.Informer()) // a factory starts only informers that were asked for
	}
	return w
}

func (w *watch) sync(ctx context.Context) error {
	for _, f := range w.factories {
		f.Start(ctx.Done())
	}
	for _, i := range w.informers {
		if !cache.WaitForCacheSync(ctx.Done(), i.HasSynced) {
			return fmt.Errorf("watch the cluster: %w", errors.Join(context.Cause(ctx), errors.New("not everything could be read: check the permissions of the autoscaler's service account")))
		}
	}
	return nil
}

func (w *watch) wait() {
	for _, f := range w.factories {
		f.Shutdown()
	}
}

func (w *watch) nodeEvents(o *corev1.Pod) []*corev1.Event {
	var events []*corev1.Event
	for _, i := range w.events {
		found, _ := i.GetIndexer().ByIndex(indexPodOfEvent, o.Namespace+"/"+o.Name) // the index exists
		for _, e := range found {
			events = append(events, e.(*corev1.Event))
		}
	}
	return events
}
