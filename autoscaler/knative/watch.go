package knative

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	networkinginformers "knative.dev/networking/pkg/client/informers/externalversions"
	networkingtyped "knative.dev/networking/pkg/client/informers/externalversions/networking/v1alpha1"
	"knative.dev/serving/pkg/apis/serving"
	servinginformers "knative.dev/serving/pkg/client/informers/externalversions"
	autoscalingtyped "knative.dev/serving/pkg/client/informers/externalversions/autoscaling/v1alpha1"
	servingtyped "knative.dev/serving/pkg/client/informers/externalversions/serving/v1"
	servinglisters "knative.dev/serving/pkg/client/listers/serving/v1"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler/dualpod"
)

// watch holds the informers. Pods and Deployments are only those of Knative revisions; providers are pods that the
// fleet has created.
type watch struct {
	start []func(stop <-chan struct{})
	ended []func()

	pods, providers, deployments, nodes, namespaces, routeChanges cache.SharedIndexInformer
	// serviceChanges and endpointChanges watch objects that the fleet has created, activatorChanges the activators'
	// Endpoints.
	serviceChanges, endpointChanges, activatorChanges cache.SharedIndexInformer

	kubeServices          corelisters.ServiceLister
	endpoints, activators corelisters.EndpointsLister

	podLister        corelisters.PodLister
	providerLister   corelisters.PodLister
	deploymentLister appslisters.DeploymentLister
	nodeLister       corelisters.NodeLister

	revisions servingtyped.RevisionInformer
	services  servingtyped.ServiceInformer
	routes    servinglisters.RouteLister
	pas       autoscalingtyped.PodAutoscalerInformer
	skss      networkingtyped.ServerlessServiceInformer
	// everyPod watches all pods of the cluster, stripped by [lean].
	everyPod cache.SharedIndexInformer
	// events has one informer for each of [nodeEvents].
	events []cache.SharedIndexInformer

	all []cache.SharedIndexInformer
}

// newWatch returns the informers; they start with [watch.sync].
func newWatch(d Deps) *watch {
	ofRevisions := informers.NewSharedInformerFactoryWithOptions(d.Kube, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = serving.RevisionLabelKey }))
	ofOurs := informers.NewSharedInformerFactoryWithOptions(d.Kube, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = dualpod.LabelProvider }))
	made := informers.NewSharedInformerFactoryWithOptions(d.Kube, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = labelManaged + "=" + control.AutoscalerName }))
	behind := informers.NewSharedInformerFactoryWithOptions(d.Kube, 0, informers.WithNamespace(control.SystemNamespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=" + control.ActivatorName }))
	services, endpoints, activators := made.Core().V1().Services(), made.Core().V1().Endpoints(), behind.Core().V1().Endpoints()
	cluster := informers.NewSharedInformerFactory(d.Kube, 0)
	knative := servinginformers.NewSharedInformerFactory(d.Serving, 0)
	network := networkinginformers.NewSharedInformerFactory(d.Networking, 0)
	pods, deployments, nodes := ofRevisions.Core().V1().Pods(), ofRevisions.Apps().V1().Deployments(), cluster.Core().V1().Nodes()
	providers := ofOurs.Core().V1().Pods()
	w := &watch{
		start: []func(<-chan struct{}){ofRevisions.Start, ofOurs.Start, made.Start, behind.Start, cluster.Start, knative.Start, network.Start},
		ended: []func(){ofRevisions.Shutdown, ofOurs.Shutdown, made.Shutdown, behind.Shutdown, cluster.Shutdown, knative.Shutdown, network.Shutdown},
		pods:  pods.Informer(), deployments: deployments.Informer(), nodes: nodes.Informer(),
		namespaces: cluster.Core().V1().Namespaces().Informer(), routeChanges: knative.Serving().V1().Routes().Informer(),
		providers: providers.Informer(), providerLister: providers.Lister(),
		podLister: pods.Lister(), deploymentLister: deployments.Lister(), nodeLister: nodes.Lister(),
		serviceChanges: services.Informer(), endpointChanges: endpoints.Informer(), activatorChanges: activators.Informer(),
		kubeServices: services.Lister(), endpoints: endpoints.Lister(), activators: activators.Lister(),
		revisions: knative.Serving().V1().Revisions(),
		services:  knative.Serving().V1().Services(),
		routes:    knative.Serving().V1().Routes().Lister(),
		pas:       knative.Autoscaling().V1alpha1().PodAutoscalers(),
		skss:      network.Networking().V1alpha1().ServerlessServices(),
	}
	for _, reason := range nodeEvents {
		of := informers.NewSharedInformerFactoryWithOptions(d.Kube, 0,
			informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = "reason=" + reason }))
		events := of.Core().V1().Events().Informer()
		_ = events.AddIndexers(cache.Indexers{indexPodOfEvent: podOfEvent}) // it can't fail: the informer has not started, and has no index of this name
		w.start, w.ended, w.events = append(w.start, of.Start), append(w.ended, of.Shutdown), append(w.events, events)
	}
	w.all = []cache.SharedIndexInformer{w.pods, w.providers, w.deployments, w.nodes, w.namespaces, w.revisions.Informer(),
		w.services.Informer(), w.routeChanges, w.pas.Informer(), w.skss.Informer(),
		w.serviceChanges, w.endpointChanges, w.activatorChanges}
	ofAll := informers.NewSharedInformerFactoryWithOptions(d.Kube, 0, informers.WithTransform(lean))
	w.everyPod = ofAll.Core().V1().Pods().Informer()
	_ = w.everyPod.AddIndexers(cache.Indexers{indexNode: byNode})
	w.start, w.ended = append(w.start, ofAll.Start), append(w.ended, ofAll.Shutdown)
	w.all = append(append(w.all, w.events...), w.everyPod)
	return w
}

// sync starts the informers and waits until all existing objects are known.
func (w *watch) sync(ctx context.Context) error {
	for _, start := range w.start {
		start(ctx.Done())
	}
	for _, i := range w.all {
		if !cache.WaitForCacheSync(ctx.Done(), i.HasSynced) {
			return fmt.Errorf("watch the cluster: %w", errors.Join(context.Cause(ctx), errors.New("not everything could be read: check the permissions of the autoscaler's service account")))
		}
	}
	return nil
}

// wait returns when all informers have ended, after the context of sync.
func (w *watch) wait() {
	for _, ended := range w.ended {
		ended()
	}
}

// nodeEvents returns the node autoscalers' events about a pod.
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
