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

// Pod says where a pod is. Empty fields are not known.
type Pod struct {
	Namespace string
	// Name is empty outside of pods, and where the namespace is not known.
	Name string
	// Domain is the cluster's, such as "cluster.local".
	Domain string
}

const (
	namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
	resolverFile  = "/etc/resolv.conf"
)

// ThisPod returns this pod. Its namespace is its service account's, else the first one in the resolver's search list. Its name
// is its host's, and not $HOSTNAME, which the container's env may set.
func ThisPod() Pod {
	namespace, _ := os.ReadFile(namespaceFile)
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

// VisibleDevices returns a container's GPUs from NVIDIA_VISIBLE_DEVICES. Shares of one GPU (GPU-…::2) count as that GPU, once; words such
// as all and void are skipped.
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

// newServiceTransport returns a transport for the cluster's services. It appends domain to a host that ends in .svc: one DNS query in
// place of the search list's three.
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
