package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The host reaches every pod and service through one pair of links.
const (
	HostIP      = "10.250.0.1"
	NodeIP      = "10.250.0.2"
	PodCIDR     = "10.244.0.0/16"
	ServiceCIDR = "10.96.0.0/16"

	// Domain ends services' hosts in Knative: NAME.NAMESPACE.Domain.
	Domain   = "example.com"
	NodeName = "node1"

	hostLink = "rouse0"
	linkCIDR = "10.250.0.0/30"
	firstIP  = "10.96.0.1" // the API server's own service
)

const module = "github.com/rouse-dev/rouse"

// Places holds the folders of a cluster.
type Places struct {
	Checkout string // the root of the module
	Cache    string // programs, images and manifests by the hash of their inputs
	Node     string // the node's own files
}

// FindPlaces finds the checkout around the working directory, and the cache.
func FindPlaces(ctx context.Context) (Places, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	root := strings.TrimSpace(string(out))
	if err != nil || root == "" {
		return Places{}, fmt.Errorf("find the module %s: run this in its checkout (go list -m: %w)", module, errors.Join(err, said(err)))
	}
	base := os.Getenv("XDG_CACHE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return Places{}, fmt.Errorf("find the cache: set XDG_CACHE_HOME or HOME: %w", err)
		}
		base = filepath.Join(home, ".cache")
	}
	cache := filepath.Join(base, "rouse", "cluster")
	return Places{Checkout: root, Cache: cache, Node: filepath.Join(cache, "node")}, nil
}

func (p Places) build(dir string) string { return filepath.Join(p.Checkout, "e2e/cluster/build", dir) }
func (p Places) node(path string) string { return filepath.Join(p.Node, path) }
func (p Places) pki(name string) string  { return p.node("pki/" + name) }
func (p Places) log(name string) string  { return p.node("log/" + name + ".log") }

// Kubeconfig is the administrator's file.
func (p Places) Kubeconfig() string { return p.node("kubeconfig") }

func said(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return errors.New(strings.TrimSpace(string(exit.Stderr)))
	}
	return nil
}
