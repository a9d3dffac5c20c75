package joining

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

	"go.yaml.in/yaml/v3"

	"github.com/rouse-dev/rouse/activator/clusteragent"
	"github.com/rouse-dev/rouse/activator/clusters"
)

// Front says of a server that it is a front door of clusters.
type Front struct {
	// Listen is where agents dial, host:port.
	Listen string
	// TLS has the certificate of that port, and may say who signs those of agents.
	TLS *tls.Config
	// Declared are the clusters that may come.
	Declared []clusters.Declaration
	// Fronts are the addresses of all front doors, as agents reach them; empty: only those that agents were given.
	Fronts []string
	// Name is this front door's among them, and Owner the one that the file gives it; empty: none.
	Name, Owner string
	// File is where all of it was read.
	File string
	// Peers, if not nil, says how this front door is an agent of the others: they get what its agents and this machine have.
	Peers *clusteragent.Config
}

// file is the file that makes a server a front door of clusters.
type file struct {
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
	Addresses []string `json:"addresses,omitempty"`
	// Service is a name of DNS that stands for all front doors, each at an address of its own, and their port: a headless
	// Service. Their certificates have that name.
	Service string `json:"service,omitempty"`
	// Cluster is the name under which the others declare this one; default its name.
	Cluster string `json:"cluster,omitempty"`
	// TokenFile has the token that they declare for it.
	TokenFile string `json:"tokenFile"`
	// Authority is a file of certificates that theirs are checked against; default: the system's.
	Authority string `json:"authority,omitempty"`
}

// Read reads the file of a front door. version is what its peers are told that it is.
func Read(path, version string) (*Front, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--clusters: %w", err)
	}
	file, err := parse(raw)
	if err != nil {
		return nil, fmt.Errorf("--clusters %s: %w", path, err)
	}
	c := &Front{File: path, Name: file.Name, Owner: file.Name, Listen: file.Listen, Declared: file.Clusters, Fronts: file.Fronts}
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
	if file.Peers != nil {
		if c.Peers, err = file.Peers.config(c.Name, version); err != nil {
			return nil, fmt.Errorf("--clusters %s: peers: %w", path, err)
		}
	}
	return c, nil
}

// config is that of the agent by which the others have a front door of that name.
func (p peersFile) config(name, version string) (*clusteragent.Config, error) {
	f := Flags{Fronts: p.Addresses, Cluster: cmp.Or(p.Cluster, name), TokenFile: p.TokenFile, Authority: p.Authority}
	if p.Service != "" {
		f.Fronts = append(f.Fronts, p.Service)
	}
	cfg, err := f.Config(version)
	if err != nil || cfg == nil {
		return nil, cmp.Or(err, errors.New("give addresses, or a service"))
	}
	cfg.Self = name
	if p.Service == "" {
		return cfg, nil
	}
	host, port, err := net.SplitHostPort(p.Service)
	if err != nil {
		return nil, fmt.Errorf("service %q: want a name of DNS and a port", p.Service)
	}
	cfg.Fronts, cfg.Find, cfg.TLS.ServerName = p.Addresses, clusteragent.Lookup(host, port), host
	return cfg, nil
}

// parse reads YAML by the names that JSON has; a field that is not known is an error.
func parse(raw []byte) (f file, err error) {
	var any map[string]any
	if err := yaml.Unmarshal(raw, &any); err != nil {
		return f, err
	}
	text, err := json.Marshal(any)
	if err != nil {
		return f, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err = d.Decode(&f); err != nil {
		err = errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return f, err
}

// readAuthority reads certificates that others are checked against.
func readAuthority(path string) (*x509.CertPool, error) {
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
