package knative

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	endpointsinformer "knative.dev/pkg/client/injection/kube/informers/core/v1/endpoints"
	"knative.dev/serving/pkg/apis/serving"
	v1 "knative.dev/serving/pkg/apis/serving/v1"
	revisioninformer "knative.dev/serving/pkg/client/injection/informers/serving/v1/revision"
)

// quiet returns a context of Knative's injection whose informer of Endpoints says
// nothing of our revisions. Knative's throttler probes each pod that is not ready
// five times a second, until it is: a pod that sleeps would be probed all its sleep.
func quiet(injected context.Context) context.Context {
	find := revisionLookup(revisioninformer.Get(injected).Lister())
	return context.WithValue(injected, endpointsinformer.Key{}, quietEndpoints{endpointsinformer.Get(injected), find})
}

// quietEndpoints is an informer without what belongs to our revisions.
type quietEndpoints struct {
	coreinformers.EndpointsInformer
	find func(namespace, name string) (*v1.Revision, error)
}

// Informer returns the informer, whose handlers are called for stock revisions only.
func (q quietEndpoints) Informer() cache.SharedIndexInformer {
	return quietInformer{q.EndpointsInformer.Informer(), q.isStock}
}

// isStock says whether Endpoints are those of another class's revision, or of none.
func (q quietEndpoints) isStock(object any) bool {
	o, ok := object.(metav1.Object)
	if !ok {
		return true // the last state of what is gone: who has not heard of it does nothing
	}
	rev, err := q.find(o.GetNamespace(), o.GetLabels()[serving.RevisionLabelKey])
	return err != nil || !isOurs(rev)
}

type quietInformer struct {
	cache.SharedIndexInformer
	wanted func(any) bool
}

// AddEventHandler adds a handler, which hears what is wanted only.
func (q quietInformer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return q.SharedIndexInformer.AddEventHandler(cache.FilteringResourceEventHandler{FilterFunc: q.wanted, Handler: h})
}
