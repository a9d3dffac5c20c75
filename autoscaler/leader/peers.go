package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"knative.dev/networking/pkg/apis/networking"
	netcfg "knative.dev/networking/pkg/config"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/bell"
	"github.com/rouse-dev/rouse/internal/peertls"
)

// peers maintains TLS to activators, which is on with Knative's system-internal-tls.
type peers struct {
	kube     kubernetes.Interface
	log      *slog.Logger
	identity peertls.Identity
	bell     bell.Bell // rung by the watches, received by keep
}

func newPeers(kube kubernetes.Interface, log *slog.Logger) *peers {
	return &peers{kube: kube, log: log, bell: bell.New()}
}

// reload: while the setting is on and there is no certificate, no activator is contacted.
func (p *peers) reload(ctx context.Context) error {
	raw, err := p.kube.CoreV1().ConfigMaps(control.SystemNamespace).Get(ctx, netcfg.ConfigMapName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the ConfigMap %s: %w", netcfg.ConfigMapName, err)
	}
	network, err := netcfg.NewConfigFromConfigMap(raw)
	if err != nil {
		return fmt.Errorf("read the ConfigMap %s: %w", netcfg.ConfigMapName, err)
	}
	on := network.SystemInternalTLSEnabled()
	p.identity.Use(on)
	secret, err := p.kube.CoreV1().Secrets(control.SystemNamespace).Get(ctx, netcfg.ServingRoutingCertName, metav1.GetOptions{})
	if err != nil {
		if !on && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err)) {
			return nil
		}
		return fmt.Errorf("system-internal-tls: read the Secret %s: %w", netcfg.ServingRoutingCertName, err)
	}
	bundles, err := p.kube.CoreV1().ConfigMaps(control.SystemNamespace).List(ctx, metav1.ListOptions{LabelSelector: networking.TrustBundleLabelKey})
	if err != nil {
		return fmt.Errorf("read the trust bundles: %w", err)
	}
	var trusted []string
	for _, b := range bundles.Items {
		for _, pem := range b.Data {
			trusted = append(trusted, pem)
		}
	}
	return p.identity.Set(secret.Data, trusted...)
}

func (p *peers) keep(ctx context.Context) error {
	handler := rings(p.bell)
	setting, secret := only(p.kube, netcfg.ConfigMapName), only(p.kube, netcfg.ServingRoutingCertName)
	_, err := setting.Core().V1().ConfigMaps().Informer().AddEventHandler(handler)
	_, err2 := secret.Core().V1().Secrets().Informer().AddEventHandler(handler)
	if err := errors.Join(err, err2); err != nil {
		return fmt.Errorf("watch what internal TLS is made of: %w", err)
	}
	setting.Start(ctx.Done())
	secret.Start(ctx.Done())
	defer setting.Shutdown()
	defer secret.Shutdown()
	p.bell.Each(ctx, func() {
		if err := p.reload(ctx); err != nil && ctx.Err() == nil {
			p.log.Warn("internal TLS stays as it was", "error", err)
		}
	})
	return nil
}
