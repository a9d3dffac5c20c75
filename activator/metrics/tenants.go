package metrics

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/api"
)

// maxTenants bounds the values of the label "tenant". Further tenants count as [OtherTenants].
const maxTenants = 200

// OtherTenants is the label of the tenants beyond maxTenants.
const OtherTenants = "other"

type tenants struct {
	requests, tokens *prometheus.CounterVec

	mu    *sync.Mutex // guards known
	known map[string]bool
}

func newTenants(reg prometheus.Registerer, counter func(name, help string, labels ...string) *prometheus.CounterVec) (tenants, error) {
	t := tenants{
		requests: counter("tenant_requests_total", "Requests with a key that were answered or refused, by tenant and HTTP status.", "tenant", "code"),
		tokens:   counter("tenant_tokens_total", "Tokens of answered requests with a key, by tenant and direction (input, output).", "tenant", "direction"),
		mu:       &sync.Mutex{}, known: map[string]bool{},
	}
	if err := reg.Register(t.requests); err != nil {
		return t, err // the caller adds context
	}
	return t, reg.Register(t.tokens)
}

// label returns the value of the label "tenant".
func (t *tenants) label(tenant string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.known[tenant]:
	case len(t.known) >= maxTenants:
		return OtherTenants
	default:
		t.known[tenant] = true
	}
	return tenant
}

// Tenant counts a tenant's request, and its tokens.
func (m *Metrics) Tenant(tenant string, status int, input, output api.Tokens) {
	label := m.tenants.label(tenant)
	m.tenants.requests.WithLabelValues(label, strconv.Itoa(status)).Inc()
	if input+output > 0 {
		m.tenants.tokens.WithLabelValues(label, "input").Add(float64(input))
		m.tenants.tokens.WithLabelValues(label, "output").Add(float64(output))
	}
}
