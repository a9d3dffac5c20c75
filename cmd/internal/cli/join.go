package cli

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/rouse-dev/rouse/activator/clusteragent"
	"github.com/rouse-dev/rouse/activator/clusters"
	"github.com/rouse-dev/rouse/cmd/internal/local"
)

// clustersFile is the file that makes a server a front door of clusters.
type clustersFile struct {
	// Name is this front door's; default the host's name.
	Name string `json:"name,omitempty"`
	// Listen is where agents dial.
	Listen string `json:"listen"`
	// Certificate and Key are PEM files. ClientAuthority, if any, signs agents' certificates.
	Certificate     string `json:"certificate"`
	Key             string `json:"key"`
	ClientAuthority string `json:"clientAuthority,omitempty"`
	// Fronts are the addresses of all front doors, as agents reach them.
	Fronts   []string               `json:"fronts,omitempty"`
	Clusters []clusters.Declaration `json:"clusters"`
	// Peers says how this front door is a cluster of the others.
	Peers *peersFile `json:"peers,omitempty"`
}

// peersFile is how a front door reaches others.
type peersFile struct {
	// Addresses are those of the other front doors, host:port.
	Addresses []string `json:"addresses"`
	// TokenFile has the token that they declare for this one, under its name.
	TokenFile string `json:"tokenFile"`
	// Authority is a file of certificates that theirs are checked against; default: the system's.
	Authority string `json:"authority,omitempty"`
}

// readClusters reads a clustersFile.
func readClusters(path string) (*local.Clusters, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--clusters: %w", err)
	}
	file, err := parseClusters(raw)
	if err != nil {
		return nil, fmt.Errorf("--clusters %s: %w", path, err)
	}
	c := &local.Clusters{Name: file.Name, Listen: file.Listen, Declared: file.Clusters, Fronts: file.Fronts}
	if c.Name == "" {
		host, err := os.Hostname()
		c.Name = cmp.Or(host, "front")
		if err != nil {
			return nil, fmt.Errorf("--clusters %s: give the front door a name: %w", path, err)
		}
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return nil, fmt.Errorf("--clusters %s: listen %q: want host:port, where agents dial", path, c.Listen)
	}
	pair, err := tls.LoadX509KeyPair(file.Certificate, file.Key)
	if err != nil {
		return nil, fmt.Errorf("--clusters %s: certificate and key: %w", path, err)
	}
	c.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
	if file.ClientAuthority != "" {
		if c.TLS.ClientCAs, err = readAuthority(file.ClientAuthority); err != nil {
			return nil, fmt.Errorf("--clusters %s: clientAuthority: %w", path, err)
		}
	}
	for _, d := range c.Declared {
		if err := d.Validate(); err != nil {
			return nil, fmt.Errorf("--clusters %s: %w", path, err)
		}
	}
	if p := file.Peers; p != nil {
		f := joinFlags{fronts: p.Addresses, cluster: c.Name, token: p.TokenFile, authority: p.Authority}
		if c.Peers, err = f.config(); err != nil {
			return nil, fmt.Errorf("--clusters %s: peers: %w", path, err)
		}
	}
	return c, nil
}

// parseClusters reads YAML by the names that JSON has; a field that is not known is an error.
func parseClusters(raw []byte) (file clustersFile, err error) {
	var any map[string]any
	if err := yaml.Unmarshal(raw, &any); err != nil {
		return file, err //nolint:wrapcheck // it names the line
	}
	text, err := json.Marshal(any)
	if err != nil {
		return file, err //nolint:wrapcheck // as above
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err = d.Decode(&file)
	return file, err //nolint:wrapcheck // it names the field
}

// readAuthority reads certificates that others are checked against.
func readAuthority(path string) (*x509.CertPool, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the file
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("%s has no certificate: want PEM", path)
	}
	return pool, nil
}

// joinFlags say whose cluster this machine is.
type joinFlags struct {
	fronts                               []string
	cluster, token, authority, pair, key string
}

func (f *joinFlags) add(s *pflag.FlagSet) {
	s.StringArrayVar(&f.fronts, "join", nil, "`address` of a front door that this machine serves, host:port (repeatable)")
	s.StringVar(&f.cluster, "cluster", "", "`name` of this machine among the front door's clusters (default: the host's name)")
	s.StringVar(&f.token, "cluster-token-file", "", "`file` with the token that the front door declares for this cluster")
	s.StringVar(&f.authority, "front-ca", "", "`file` with the certificates that the front door's is checked against (default: the system's)")
	s.StringVar(&f.pair, "cluster-cert", "", "`file` with a certificate to show in place of a token")
	s.StringVar(&f.key, "cluster-key", "", "`file` with its key")
}

// config is the agent's; nil: none is wanted.
func (f *joinFlags) config() (*clusteragent.Config, error) {
	if len(f.fronts) == 0 {
		return nil, nil //nolint:nilnil // see above
	}
	host, err := os.Hostname()
	if err != nil && f.cluster == "" {
		return nil, fmt.Errorf("--cluster: give this machine a name: %w", err)
	}
	cfg := &clusteragent.Config{Fronts: f.fronts, Cluster: cmp.Or(f.cluster, host), Agent: fmt.Sprintf("%s-%d", cmp.Or(host, "agent"), os.Getpid()), Version: version(), TLS: &tls.Config{MinVersion: tls.VersionTLS13}}
	if f.token == "" && f.pair == "" {
		return nil, errors.New("--join: say who this machine is: give --cluster-token-file, or --cluster-cert and --cluster-key")
	}
	if f.token != "" {
		cfg.Token = func() (string, error) {
			raw, err := os.ReadFile(f.token)
			return strings.TrimSpace(string(raw)), err
		}
		if _, err := cfg.Token(); err != nil {
			return nil, fmt.Errorf("--cluster-token-file: %w", err)
		}
	}
	if f.authority != "" {
		if cfg.TLS.RootCAs, err = readAuthority(f.authority); err != nil {
			return nil, fmt.Errorf("--front-ca: %w", err)
		}
	}
	if f.pair != "" {
		pair, err := tls.LoadX509KeyPair(f.pair, f.key)
		if err != nil {
			return nil, fmt.Errorf("--cluster-cert and --cluster-key: %w", err)
		}
		cfg.TLS.Certificates = []tls.Certificate{pair}
	}
	return cfg, cfg.Validate()
}
