package door

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"

	"go.yaml.in/yaml/v3"

	"github.com/rouse-dev/rouse/activator/federation/agent"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/disk"
)

// File is the configuration of a server as a front door of clusters.
type File struct {
	// Listen is the address that agents dial, host:port.
	Listen string
	// TLS may hold the authority for agents' certificates.
	TLS      *tls.Config
	Declared []Declaration
	// Fronts are the addresses of all front doors, as agents reach them; may be empty.
	Fronts []string
	// Name defaults to the host's name; Owner is empty without a name in the file.
	Name, Owner string
	File        string
	// Peers, if not nil, makes this front door an agent of the others.
	Peers *agent.Config
}

type fileFormat struct {
	// Name defaults to the host's name.
	Name   string `json:"name,omitempty"`
	Listen string `json:"listen"`
	// These are PEM files. ClientAuthority, if set, verifies agents' certificates.
	Certificate     string        `json:"certificate"`
	Key             string        `json:"key"`
	ClientAuthority string        `json:"clientAuthority,omitempty"`
	Fronts          []string      `json:"fronts,omitempty"`
	Clusters        []Declaration `json:"clusters"`
	Peers           *peersFile    `json:"peers,omitempty"`
}

type peersFile struct {
	Addresses []string `json:"addresses,omitempty"`
	// Service is host:port of a headless Service, whose name is in the certificates.
	Service string `json:"service,omitempty"`
	// Cluster is the name by which the others declare this one; default: its name.
	Cluster   string `json:"cluster,omitempty"`
	TokenFile string `json:"tokenFile"`
	// Authority is a file of certificates that verify theirs; default: the system's.
	Authority string `json:"authority,omitempty"`
}

// Read reads the file of a front door. version is reported to its peers.
func Read(path, version string) (_ *File, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("--clusters %s: %w", path, err)
		}
	}()
	raw, err := disk.ReadText(path)
	if err != nil {
		return nil, err
	}
	file, err := parse(raw)
	if err != nil {
		return nil, err
	}
	c := &File{File: path, Name: file.Name, Owner: file.Name, Listen: file.Listen, Declared: file.Clusters, Fronts: file.Fronts}
	if c.Name == "" {
		host, err := os.Hostname()
		c.Name = cmp.Or(host, "front")
		if err != nil {
			return nil, fmt.Errorf("give the front door a name: %w", err)
		}
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return nil, fmt.Errorf("listen %q: want host:port, where agents dial", c.Listen)
	}
	pair, err := tls.LoadX509KeyPair(file.Certificate, file.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate and key: %w", err)
	}
	c.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
	if file.ClientAuthority != "" {
		if c.TLS.ClientCAs, err = agent.ReadAuthority(file.ClientAuthority); err != nil {
			return nil, fmt.Errorf("clientAuthority: %w", err)
		}
	}
	for _, d := range c.Declared {
		if err := d.Validate(); err != nil {
			return nil, err
		}
	}
	if file.Peers != nil {
		if c.Peers, err = file.Peers.config(c.Name, version); err != nil {
			return nil, fmt.Errorf("peers: %w", err)
		}
	}
	return c, nil
}

func (p peersFile) config(name, version string) (*agent.Config, error) {
	f := agent.Flags{Fronts: p.Addresses, Cluster: cmp.Or(p.Cluster, name), TokenFile: p.TokenFile, Authority: p.Authority}
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
	cfg.Fronts, cfg.Find, cfg.TLS.ServerName = p.Addresses, agent.Lookup(host, port), host
	return cfg, nil
}

// An unknown field is an error.
func parse(raw []byte) (f fileFormat, err error) {
	var any map[string]any
	if err := yaml.Unmarshal(raw, &any); err != nil {
		return f, api.Explain(err)
	}
	text, err := json.Marshal(any)
	if err != nil {
		return f, err
	}
	return f, api.Decode(bytes.NewReader(text), &f)
}
