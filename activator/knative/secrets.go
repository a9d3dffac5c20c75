package knative

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	netcfg "knative.dev/networking/pkg/config"
	kubeclient "knative.dev/pkg/client/injection/kube/client"
	"knative.dev/pkg/controller"
	nssecretinformer "knative.dev/pkg/injection/clients/namespacedkube/informers/core/v1/secret"

	"github.com/rouse-dev/rouse/api/control"
)

type secrets struct {
	certificate, token cache.SharedIndexInformer
	keys               cache.SharedIndexInformer // nil: keys are off
}

// bySecret replaces Knative's informer of all Secrets by those that the activator may read. Knative's code finds
// the certificate in the context.
func bySecret(injected context.Context, all []controller.Informer, requireKeys bool) (context.Context, []controller.Informer, secrets) {
	kube := kubeclient.Get(injected)
	every := controller.Informer(nssecretinformer.Get(injected).Informer())
	all = slices.DeleteFunc(all, func(i controller.Informer) bool { return i == every })
	certificate, token := newSecret(kube, netcfg.ServingRoutingCertName), newSecret(kube, control.ControlSecret)
	injected = context.WithValue(injected, nssecretinformer.Key{}, coreinformers.SecretInformer(certificate))
	ours := secrets{certificate: certificate, token: token}
	all = append(all, certificate, token)
	if requireKeys {
		declared := newSecret(kube, control.KeysSecret)
		ours.keys, all = declared, append(all, declared)
	}
	return injected, all, ours
}

// Knative's code expects its interface.
type oneSecret struct{ cache.SharedIndexInformer }

func newSecret(kube kubernetes.Interface, name string) oneSecret {
	return oneSecret{coreinformers.NewFilteredSecretInformer(kube, control.SystemNamespace, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		})}
}

// Informer implements [coreinformers.SecretInformer].
func (o oneSecret) Informer() cache.SharedIndexInformer { return o.SharedIndexInformer }

// Lister implements [coreinformers.SecretInformer].
func (o oneSecret) Lister() corelisters.SecretLister {
	return corelisters.NewSecretLister(o.GetIndexer())
}
