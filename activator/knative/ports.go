package knative

import (
	"crypto/tls"
	"fmt"

	knativetls "knative.dev/pkg/network/tls"
	"knative.dev/serving/pkg/activator/certificate"
	v1 "knative.dev/serving/pkg/apis/serving/v1"
	servinglisters "knative.dev/serving/pkg/client/listers/serving/v1"
	"knative.dev/serving/pkg/networking"
)

// Ports that requests come to, as Knative's Service for its activator has them.
const (
	portHTTP = networking.BackendHTTPPort
	portH2C  = networking.BackendHTTP2Port
	portTLS  = networking.BackendHTTPSPort
)

// tlsConfig is that of the TLS port, with certificates that may change while it serves.
func tlsConfig(certs *certificate.CertCache) (*tls.Config, error) {
	cfg, err := knativetls.DefaultConfigFromEnv("ACTIVATOR_")
	if err != nil {
		return nil, fmt.Errorf("read the TLS settings from the environment (ACTIVATOR_TLS_…): %w", err)
	}
	cfg.GetCertificate = certs.GetCertificate
	return cfg, nil
}

// revisionLookup finds a revision in an informer's cache.
func revisionLookup(lister servinglisters.RevisionLister) func(namespace, name string) (*v1.Revision, error) {
	return func(namespace, name string) (*v1.Revision, error) { return lister.Revisions(namespace).Get(name) }
}
