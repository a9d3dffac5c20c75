package knative

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/networking/pkg/apis/networking"
	kubeclient "knative.dev/pkg/client/injection/kube/client"
	nssecretinformer "knative.dev/pkg/injection/clients/namespacedkube/informers/core/v1/secret"

	"github.com/rouse-dev/rouse/api/control"
)

// Control traffic with the autoscaler uses TLS if Knative's system-internal-tls was on when the process began; the
// control port accepts TLS with a certificate.
func (p *process) meetPeers(ctx context.Context) error {
	network, err := networkConfig(ctx)
	if err != nil {
		return err
	}
	take := func(s *corev1.Secret) {
		bundles, err := kubeclient.Get(ctx).CoreV1().ConfigMaps(control.SystemNamespace).List(ctx, metav1.ListOptions{LabelSelector: networking.TrustBundleLabelKey})
		var trusted []string
		if err == nil {
			for _, b := range bundles.Items {
				for _, pem := range b.Data {
					trusted = append(trusted, pem)
				}
			}
			err = p.peers.Set(s.Data, trusted...)
		}
		if err != nil {
			p.log.Warn("internal TLS stays as it was", "error", err)
		}
	}
	p.peers.Use(network.SystemInternalTLSEnabled())
	return follow(ctx, nssecretinformer.Get(ctx).Informer(), on(take, func(*corev1.Secret) {}), "the certificate of internal TLS")
}
