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

// stockOnly returns a context of Knative's injection whose informer of Endpoints says
// nothing of our revisions. Knative's throttler probes each pod that is not ready
// five times a second, until it is ready: a sleeping pod would be probed for as long as it sleeps.
func stockOnly(injected context.Context) context.Context {
	find := revisionLookup(revisioninformer.Get(injected).Lister())
	return context.WithValue(injected, endpointsinformer.Key{}, filteredEndpoints{endpointsinformer.Get(injected), find})
}

// filteredEndpoints is an informer without what belongs to our revisions.
type filteredEndpoints struct {
	coreinformers.EndpointsInformer
	find func(namespace, name string) (*v1.Revision, error)
}

// Informer returns the informer, whose handlers are called for stock revisions only.
func (f filteredEndpoints) Informer() cache.SharedIndexInformer {
	return filteredInformer{f.EndpointsInformer.Informer(), f.isStock}
}

// isStock says whether Endpoints are those of another class's revision, or of none.
func (f filteredEndpoints) isStock(object any) bool {
	o, ok := object.(metav1.Object)
	if !ok {
		return true // the last state of a deleted object: a handler that does not know it does nothing
	}
	rev, err := f.find(o.GetNamespace(), o.GetLabels()[serving.RevisionLabelKey])
	return err != nil || !isOurs(rev)
}

type filteredInformer struct {
	cache.SharedIndexInformer
	wanted func(any) bool
}

// AddEventHandler adds a handler of the events that are wanted only.
func (f filteredInformer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return f.SharedIndexInformer.AddEventHandler(cache.FilteringResourceEventHandler{FilterFunc: f.wanted, Handler: h})
}
