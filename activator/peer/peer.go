// Package peer identifies the client of a request, and decides which of its claims to trust.
//
// Clients share memory, places in a queue, turns and cached prompts by [Peer.Client], whatever identifies a client:
// without a key it is an address.
//
// An address is a weak identity. One client may have many, many clients behind one router share one, and a household
// has 2⁶⁴ IPv6 addresses, of which only the first 64 bits count. It does not authenticate; it limits how much of the
// others' resources the owner of one connection can take.
package peer

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/rouse-dev/rouse/api/control"
)

type Peer struct {
	// Client is the name by which resources are shared: an address, or a trusted peer's name for the client.
	Client string
	// Trusted means that the priority in the request counts.
	Trusted bool
	// Local means that it is on this machine, whose users are one client: they share cached prompts, as they share
	// the machine.
	Local bool
	// Vouched means that another server of ours forwards the request, and has authenticated its client.
	Vouched bool
	// Turn is the request's place at the front door that forwards it. Without a Source it comes directly, and without a
	// Client it may not wait here.
	Turn control.Turn
}

// Tenant returns the client's name for instances; empty for a local client.
func (p Peer) Tenant() string {
	if p.Local {
		return ""
	}
	return p.Client
}

// Addresses identifies clients by their addresses. It is safe for concurrent use. The zero value trusts none.
type Addresses struct {
	// Proxies are peers whose X-Forwarded-For is trusted: an ingress.
	Proxies []netip.Prefix
	// Trusted are peers that may set a request's priority, and name its client (control.HeaderTenant):
	// a gateway that knows its users.
	Trusted []netip.Prefix
}

// local is the client of requests without an address, as from a Unix socket.
const local = "local"

// maxTenant bounds a trusted peer's name for a client, in bytes.
const maxTenant = 256

type known struct{}

// As returns r as a request from p, whatever its address: the caller vouches for it.
func As(r *http.Request, p Peer) *http.Request {
	p.Vouched = true
	return r.WithContext(context.WithValue(r.Context(), known{}, p))
}

// Peer returns the client of a request. It never fails: all requests without an address are one client.
func (a *Addresses) Peer(r *http.Request) Peer {
	if p, ok := r.Context().Value(known{}).(Peer); ok {
		return p
	}
	addr, ok := parse(r.RemoteAddr)
	if !ok {
		return Peer{Client: local, Local: true}
	}
	if contains(a.Proxies, addr) {
		addr = a.behind(addr, r.Header["X-Forwarded-For"])
	}
	p := Peer{Client: name(addr), Trusted: contains(a.Trusted, addr), Local: addr.IsLoopback()}
	if !p.Trusted {
		return p
	}
	for _, name := range headers {
		if tenant := r.Header.Get(name); tenant != "" && len(tenant) <= maxTenant {
			p.Client, p.Local = Named(tenant), false
			break
		}
	}
	return p
}

// headers are the headers in which a trusted peer names its client: ours, the llm-d router's, and the earlier one of
// the Gateway API inference extension.
var headers = [...]string{control.HeaderTenant, "X-Llm-D-Inference-Fairness-Id", "X-Gateway-Inference-Fairness-Id"}

// named is the prefix of a tenant's [Peer.Client].
const named = "tenant "

// Named returns the [Peer.Client] of a tenant.
func Named(tenant string) string { return named + tenant }

// passed is the prefix of the [Peer.Client] of an address at another front door, which may differ from the same
// address here.
const passed = "front "

// Tenant returns the tenant in a [Peer.Client], through any number of front doors; empty: none.
func Tenant(client string) string {
	tenant, is := strings.CutPrefix(client, named)
	for more := is; more; {
		tenant, more = strings.CutPrefix(tenant, named)
	}
	if !is {
		return ""
	}
	return tenant
}

// Passed returns the [Peer.Client] here for a client at a front door that forwards its request. A tenant is the same
// everywhere. Passing further front doors does not change the result.
func Passed(client string) string {
	if tenant := Tenant(client); tenant != "" {
		return Named(tenant)
	}
	return passed + strings.TrimPrefix(client, passed)
}

// behind returns the client's address from the proxies' list: the nearest address that is no proxy. An entry that
// can't be parsed ends the list: entries before it are not trusted.
func (a *Addresses) behind(addr netip.Addr, forwarded []string) netip.Addr {
	list := strings.Split(strings.Join(forwarded, ","), ",")
	for i := len(list) - 1; i >= 0 && contains(a.Proxies, addr); i-- {
		next, ok := parse(strings.TrimSpace(list[i]))
		if !ok {
			break
		}
		addr = next
	}
	return addr
}

func parse(s string) (netip.Addr, bool) {
	if at, err := netip.ParseAddrPort(s); err == nil {
		return at.Addr().Unmap().WithZone(""), true
	}
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	return addr.Unmap().WithZone(""), err == nil
}

// name returns the client's name for an address.
func name(addr netip.Addr) string {
	if addr.Is6() {
		network, _ := addr.Prefix(64) // never fails for an IPv6 address
		return network.String()
	}
	return addr.String()
}

func contains(list []netip.Prefix, addr netip.Addr) bool {
	for _, p := range list {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// ParseList parses a comma-separated list of addresses and CIDRs, such as 10.0.0.0/8,192.0.2.7. Empty: none.
func ParseList(s string) ([]netip.Prefix, error) {
	var list []netip.Prefix
	for item := range strings.SplitSeq(s, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		p, err := netip.ParsePrefix(item)
		if addr, alone := netip.ParseAddr(item); alone == nil {
			p, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("%q is no address and no CIDR: want a list such as 10.0.0.0/8,192.0.2.7", item)
		}
		list = append(list, p.Masked())
	}
	return list, nil
}
