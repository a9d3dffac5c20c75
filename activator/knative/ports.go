package knative

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	knativetls "knative.dev/pkg/network/tls"
	"knative.dev/serving/pkg/activator/certificate"
	v1 "knative.dev/serving/pkg/apis/serving/v1"
	servinglisters "knative.dev/serving/pkg/client/listers/serving/v1"
	"knative.dev/serving/pkg/networking"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/internal/inbound"
)

const (
	portHTTP = networking.BackendHTTPPort
	portH2C  = networking.BackendHTTP2Port
	portTLS  = networking.BackendHTTPSPort
)

// Ingresses bound headers to as much, or less.
const (
	headerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
)

func newServer(addr string, h http.Handler) *http.Server {
	p := inbound.Protocols()
	p.SetHTTP2(true)
	return &http.Server{Addr: addr, Handler: h, Protocols: p,
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes}
}

func listenAndServe(s *http.Server, log *slog.Logger, wrap func(net.Listener) net.Listener) error {
	l, err := net.Listen("tcp", s.Addr)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	return s.Serve(wrap(inbound.Bound(s, l, log)))
}

// The listener checks connections as on the other ports. The server can't do TLS itself: it would take a checked
// connection for HTTP/2 without TLS.
func overTLS(s *http.Server, cfg *tls.Config) func(net.Listener) net.Listener {
	cfg = cfg.Clone()
	cfg.NextProtos = []string{"h2", "http/1.1"}
	return func(l net.Listener) net.Listener {
		return inbound.Guard(s, tls.NewListener(l, cfg), activator.WriteError)
	}
}

// Certificates may change.
func tlsConfig(certs *certificate.CertCache) (*tls.Config, error) {
	cfg, err := knativetls.DefaultConfigFromEnv("ACTIVATOR_")
	if err != nil {
		return nil, fmt.Errorf("read the TLS settings from the environment (ACTIVATOR_TLS_…): %w", err)
	}
	cfg.GetCertificate = certs.GetCertificate
	return cfg, nil
}

func revisionLookup(lister servinglisters.RevisionLister) func(namespace, name string) (*v1.Revision, error) {
	return func(namespace, name string) (*v1.Revision, error) { return lister.Revisions(namespace).Get(name) }
}
