package functions

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// Pod is a pod's knowledge of its place.
type Pod struct {
	// Namespace is the pod's; empty: not known.
	Namespace string
	// Name is the pod's; empty: this is no pod that knows its namespace.
	Name string
	// Domain is the cluster's, such as "cluster.local"; empty: not known.
	Domain string
}

// Files that every pod has by default.
const (
	namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
	resolverFile  = "/etc/resolv.conf"
)

// ThisPod returns this pod: the namespace of its service account, else the first one in its resolver's search list. Its name is its
// host's, and not $HOSTNAME, which the container's env may set.
func ThisPod() Pod {
	namespace, _ := os.ReadFile(namespaceFile) // a pod may have none
	resolver, _ := os.ReadFile(resolverFile)
	p := podOf(namespace, resolver)
	if p.Namespace != "" {
		p.Name, _ = os.Hostname()
	}
	return p
}

func podOf(namespace, resolver []byte) Pod {
	p := Pod{Namespace: string(bytes.TrimSpace(namespace))}
	lines := bufio.NewScanner(bytes.NewReader(resolver))
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || words[0] != "search" {
			continue
		}
		p.Domain = ""
		for _, domain := range words[1:] {
			domain = strings.TrimSuffix(domain, ".")
			if rest, found := strings.CutPrefix(domain, "svc."); found && p.Domain == "" {
				p.Domain = rest
			}
			if namespace, _, found := strings.Cut(domain, ".svc."); found && p.Namespace == "" && !strings.Contains(namespace, ".") {
				p.Namespace = namespace
			}
		}
	}
	return p
}

// VisibleDevices returns a container's GPUs from the value of NVIDIA_VISIBLE_DEVICES. Shares of one GPU (GPU-…::2) count as that GPU, once.
// Words that name no device, such as all and void, are skipped.
func VisibleDevices(visible string) []api.DeviceID {
	var ids []api.DeviceID
	for word := range strings.SplitSeq(visible, ",") {
		id, _, _ := strings.Cut(strings.TrimSpace(word), "::")
		switch id {
		case "", "all", "none", "void":
			continue
		}
		if !slices.Contains(ids, api.DeviceID(id)) {
			ids = append(ids, api.DeviceID(id))
		}
	}
	return ids
}

// newServiceTransport returns a transport for the cluster's services. It expands a host that ends in .svc with the cluster's domain, which
// needs one DNS query; the search list of a pod would need three, one after another. An empty domain: no expansion.
func newServiceTransport(domain string) *http.Transport {
	t := control.NewTransport(2)
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(address)
		if err != nil || domain == "" || !strings.HasSuffix(host, ".svc") {
			return dial(ctx, network, address)
		}
		conn, err := dial(ctx, network, net.JoinHostPort(host+"."+domain+".", port))
		if dns, isDNS := errors.AsType[*net.DNSError](err); isDNS && dns.IsNotFound {
			return dial(ctx, network, address)
		}
		return conn, err
	}
	t.ResponseHeaderTimeout = 5 * time.Second
	return t
}
