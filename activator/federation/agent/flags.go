package agent

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/rouse-dev/rouse/internal/disk"
)

// Flags name the front doors that this cluster joins. Without Fronts it joins none.
type Flags struct {
	Fronts      []string `flag:"join" split:"" help:"<addresses> of front doors that this cluster serves, host:port, by commas or repeated"`
	Cluster     string   `flag:"cluster" help:"<name> of this cluster among the front door's (default: the host's name)"`
	TokenFile   string   `flag:"cluster-token-file" help:"<file> with the token that the front door declares for this cluster"`
	Authority   string   `flag:"front-ca" help:"<file> with the certificates that the front door's is checked against (default: the system's)"`
	Certificate string   `flag:"cluster-cert" help:"<file> with a certificate to show in place of a token"`
	Key         string   `flag:"cluster-key" help:"<file> with its key"`
}

// Config returns nil without front doors.
func (f *Flags) Config(version string) (*Config, error) {
	if len(f.Fronts) == 0 {
		return nil, nil
	}
	for _, at := range f.Fronts {
		if _, _, err := net.SplitHostPort(at); err != nil {
			return nil, fmt.Errorf("--join %s: want host:port, where the front door takes clusters: %w", at, err)
		}
	}
	host, err := os.Hostname()
	if err != nil && f.Cluster == "" {
		return nil, fmt.Errorf("--cluster: give this cluster a name: %w", err)
	}
	cfg := &Config{Fronts: f.Fronts, Cluster: cmp.Or(f.Cluster, host), Agent: fmt.Sprintf("%s-%d", cmp.Or(host, "agent"), os.Getpid()), Version: version, TLS: &tls.Config{MinVersion: tls.VersionTLS13}}
	if f.TokenFile == "" && f.Certificate == "" {
		return nil, errors.New("--join: say who this cluster is: give --cluster-token-file, or --cluster-cert and --cluster-key")
	}
	if f.TokenFile != "" {
		cfg.Token = func() (string, error) { return disk.ReadToken(f.TokenFile) }
		if _, err := cfg.Token(); err != nil {
			return nil, fmt.Errorf("--cluster-token-file: %w", err)
		}
	}
	if f.Authority != "" {
		if cfg.TLS.RootCAs, err = ReadAuthority(f.Authority); err != nil {
			return nil, fmt.Errorf("--front-ca: %w", err)
		}
	}
	if f.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(f.Certificate, f.Key)
		if err != nil {
			return nil, fmt.Errorf("--cluster-cert and --cluster-key: %w", err)
		}
		cfg.TLS.Certificates = []tls.Certificate{pair}
	}
	return cfg, cfg.Validate()
}

// ReadAuthority reads a pool of certificates that verify others.
func ReadAuthority(path string) (*x509.CertPool, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("%s has no certificate: want PEM", path)
	}
	return pool, nil
}
