// Package peer identifies the client of a request, and says which of the client's statements
// count.
//
// Whatever is shared among clients (memory, places in a queue, turns, cached prompts) is shared by
// [Peer.Client], whatever makes a client: today it is an address.
//
// An address is a weak identity: one client may have many, many clients behind one router share
// one, and a household has 2⁶⁴ of IPv6, of which the first 64 bits count. It does not
// authenticate anybody; it bounds what the owner of one connection can take from others.
package peer

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/rouse-dev/rouse/api/control"
)

// Peer is the client of a request.
type Peer struct {
	// Client is its name, among which resources are shared: an address, or what a trusted peer says.
	Client string
	// Trusted says that the priority in the request counts.
	Trusted bool
	// Local says that it is on this machine, whose users are one client: they share cached
	// prompts, as they share the machine.
	Local bool
	// Vouched says that another server of ours passes the request on: it has asked its client who it is.
	Vouched bool
}

// Tenant is the name that instances get; empty for a local client.
func (p Peer) Tenant() string {
	if p.Local {
		return ""
	}
	return p.Client
}

// Addresses identifies clients by their addresses. It is safe for concurrent use. The zero value trusts none.
type Addresses struct {
	// Proxies are peers whose X-Forwarded-For counts: an ingress.
	Proxies []netip.Prefix
	// Trusted are peers that may set a request's priority, and name its client (control.HeaderTenant):
	// a gateway that knows its users.
	Trusted []netip.Prefix
}

// local is the client of requests without an address, as on a Unix socket.
const local = "local"

// maxTenant bounds what a trusted peer may call a client.
const maxTenant = 256

type known struct{}

// As is r as from p, whatever its address is: the caller knows, and vouches for it.
func As(r *http.Request, p Peer) *http.Request {
	p.Vouched = true
	return r.WithContext(context.WithValue(r.Context(), known{}, p))
}

// Peer identifies the client of a request. It never fails: all requests without an address are one client.
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

// headers are by what a trusted peer names its client: ours, the llm-d router's, and what the Gateway API inference
// extension called that.
var headers = [...]string{control.HeaderTenant, "X-Llm-D-Inference-Fairness-Id", "X-Gateway-Inference-Fairness-Id"}

// named begins the [Peer.Client] of a tenant.
const named = "tenant "

// Named is the [Peer.Client] of a tenant.
func Named(tenant string) string { return named + tenant }

// passed begins the [Peer.Client] of an address that another front door has seen: it may be somebody else's here.
const passed = "front "

// Tenant is the tenant that a [Peer.Client] names, through however many front doors it came; empty: it is none.
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

// Passed is the [Peer.Client] here of one at a front door, which passes its request on: a tenant is the same everywhere. However many
// front doors a request passes, it is as after the first.
func Passed(client string) string {
	if tenant := Tenant(client); tenant != "" {
		return Named(tenant)
	}
	return passed + strings.TrimPrefix(client, passed)
}

// behind is the address that the proxies at addr say, the nearest that is no proxy itself.
// An entry that can't be parsed ends the list: entries before it are not trusted.
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

// parse reads an address, with a port or without.
func parse(s string) (netip.Addr, bool) {
	if at, err := netip.ParseAddrPort(s); err == nil {
		return at.Addr().Unmap().WithZone(""), true
	}
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	return addr.Unmap().WithZone(""), err == nil
}

// name is the client's name for an address.
func name(addr netip.Addr) string {
	if addr.Is6() {
		network, _ := addr.Prefix(64) // fails for no IPv6 address
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

// ParseList reads addresses and CIDRs that commas separate, as 10.0.0.0/8,192.0.2.7. Empty: none.
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
