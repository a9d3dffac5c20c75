package knative

import (
	"context"
	"crypto/rand"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"

	"github.com/rouse-dev/rouse/activator/share"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

func (p *process) newShare(token *clusterToken) *share.Share {
	caller := control.New(p.peers.Transport(control.NewTransport(lanes)), token.current)
	return share.New(p.cfg.PodName, rand.Text(), false, caller, p.log)
}

// meetOthers tells s of the other activators until ctx ends. It returns once they are known.
func meetOthers(ctx context.Context, kube kubernetes.Interface, self string, s *share.Share) error {
	f := informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithNamespace(control.SystemNamespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "app=" + control.ActivatorName }))
	pods := f.Core().V1().Pods()
	look := func(*corev1.Pod) { s.Set(others(pods.Lister(), self)) }
	informer := pods.Informer() // before Start, which starts those that are known
	f.Start(ctx.Done())
	return follow(ctx, informer, on(look, look), "the other activators")
}

// others returns the other running activators, also ending ones.
func others(pods listers.PodLister, self string) (all []share.Activator) {
	list, err := pods.List(labels.Everything())
	if err != nil {
		return nil // a lister from memory never fails
	}
	for _, p := range list {
		if p.Name != self && p.Status.PodIP != "" && p.Status.Phase == corev1.PodRunning {
			all = append(all, share.Activator{Name: p.Name,
				Endpoint: api.Endpoint("http://" + net.JoinHostPort(p.Status.PodIP, strconv.Itoa(control.ActivatorPort)))})
		}
	}
	return all
}
