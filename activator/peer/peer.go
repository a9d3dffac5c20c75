// Package peer identifies the client of a request, and which of its claims to trust. Clients share resources by
// [Peer.Client]: without a key an address, which is a weak identity. It only limits what the owner of one
// connection can take.
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
	Client string
	// Its priority counts.
	Trusted bool
	// The users of this machine are one client.
	Local bool
	// Vouched: a server of ours has authenticated the client.
	Vouched bool
	// At the front door that forwards the request. Without a Client the request may not wait.
	Turn control.Turn
}

// Tenant returns the client's name for instances; a local one has none.
func (p Peer) Tenant() string {
	if p.Local {
		return ""
	}
	return p.Client
}

// Addresses identifies clients by addresses. Zero trusts none. It is safe for concurrent use.
type Addresses struct {
	// Their X-Forwarded-For is trusted.
	Proxies []netip.Prefix
	// They may set priorities and name clients ([control.HeaderTenant]).
	Trusted []netip.Prefix
}

// Without an address, as from a Unix socket.
const local = "local"

const maxTenant = 256

type known struct{}

// As returns r as from p: the caller vouches for it.
func As(r *http.Request, p Peer) *http.Request {
	p.Vouched = true
	return r.WithContext(context.WithValue(r.Context(), known{}, p))
}

// Peer returns the client of a request.
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

// Ours, the llm-d router's, and an earlier one of the Gateway API inference extension.
var headers = [...]string{control.HeaderTenant, "X-Llm-D-Inference-Fairness-Id", "X-Gateway-Inference-Fairness-Id"}

const named = "tenant "

// Named returns the [Peer.Client] of a tenant.
func Named(tenant string) string { return named + tenant }

// The same address may be another client at another front door.
const passed = "front "

// Tenant returns the tenant in a [Peer.Client], through any number of front doors.
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

// Passed returns the [Peer.Client] for a client of another front door. It is idempotent; a tenant is the same
// everywhere.
func Passed(client string) string {
	if tenant := Tenant(client); tenant != "" {
		return Named(tenant)
	}
	return passed + strings.TrimPrefix(client, passed)
}

// The nearest address that is no proxy. Those before an unreadable one are not trusted.
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

// A household has 2⁶⁴ IPv6 addresses.
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

// ParseList parses a comma-separated list of addresses and CIDRs.
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
