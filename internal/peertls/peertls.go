// Package peertls provides TLS between Rouse's processes in the system namespace of a cluster, with the certificate of
// Knative's internal encryption, and certificates for servers of others ([Files], [SelfSigned]).
//
// A client with TLS enabled opens no plain connection. A server accepts TLS and plain text on one port: processes can be
// switched one after another, and functions have no certificate of the authority.
package peertls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Name is in the certificates of Knative's data path in the system namespace.
const Name = "kn-routing"

const (
	keyCertificate = "tls.crt"
	keyPrivate     = "tls.key"
	keyAuthority   = "ca.crt"
)

const handshake = 5 * time.Second

// Identity holds a process's certificate and authorities. The zero value has none. It is safe for concurrent use.
type Identity struct {
	certificate atomic.Pointer[tls.Certificate]
	roots       atomic.Pointer[x509.CertPool]
	use         atomic.Bool
}

// Set loads the data of the Secret and further authorities (PEM). After an error the previous state stays.
func (i *Identity) Set(secret map[string][]byte, bundles ...string) error {
	certificate, err := tls.X509KeyPair(secret[keyCertificate], secret[keyPrivate])
	if err != nil {
		return fmt.Errorf("read the certificate of internal TLS: %w", err)
	}
	roots := x509.NewCertPool()
	known := roots.AppendCertsFromPEM(secret[keyAuthority])
	for _, b := range bundles {
		known = roots.AppendCertsFromPEM([]byte(b)) || known
	}
	if !known {
		return errors.New("read the certificate of internal TLS: there is no authority to check peers by, in ca.crt or a trust bundle")
	}
	i.certificate.Store(&certificate)
	i.roots.Store(roots)
	return nil
}

// Use sets whether clients use TLS from their next connection on.
func (i *Identity) Use(use bool) { i.use.Store(use) }

// Listen wraps l so that its connections may use TLS.
func (i *Identity) Listen(l net.Listener) net.Listener { return listener{l, i} }

func (i *Identity) server() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if c := i.certificate.Load(); c != nil {
			return c, nil
		}
		return nil, errors.New("there is no certificate yet")
	}}
}

// Transport returns a transport to peers that uses TLS if enabled, otherwise base. Requests have the scheme http.
func (i *Identity) Transport(base http.RoundTripper) http.RoundTripper {
	return &transport{of: i, plain: base, secure: &http.Transport{
		DialTLSContext: i.dial, MaxIdleConnsPerHost: 16, IdleConnTimeout: 30 * time.Second, ResponseHeaderTimeout: time.Minute,
	}}
}

func (i *Identity) dial(ctx context.Context, network, address string) (net.Conn, error) {
	roots := i.roots.Load()
	if roots == nil {
		return nil, fmt.Errorf("dial %s: internal TLS is on, and there is no certificate yet", address)
	}
	ctx, cancel := context.WithTimeout(ctx, handshake)
	defer cancel()
	d := tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: Name}}
	return d.DialContext(ctx, network, address)
}

type transport struct {
	of            *Identity
	plain, secure http.RoundTripper
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !t.of.use.Load() {
		return t.plain.RoundTrip(r)
	}
	r = r.Clone(r.Context())
	if r.URL.Scheme == "http" && r.URL.Port() == "" {
		r.URL.Host = net.JoinHostPort(r.URL.Hostname(), "80")
	}
	r.URL.Scheme = "https"
	return t.secure.RoundTrip(r)
}
