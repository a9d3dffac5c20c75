package activator

import (
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Traffic says how the requests for a service are divided among its functions. In a cluster a service is a Knative
// Service, and each of its revisions is a function. On one machine every function is its own service.
type Traffic struct {
	// Service is the Knative Service, "namespace/name".
	Service api.FunctionName
	// Shares lists the revisions that receive requests; empty: none is ready yet.
	Shares []Share
}

// Share is one revision's part of the traffic.
type Share struct {
	Function api.FunctionName
	// Percent is above zero; the shares of one service add up to 100.
	Percent int
}

// PutTraffic sets how the functions of a service share the requests that name it, one of its models or an adapter.
// Each request is divided among the functions that have the name, by their shares. It replaces the previous traffic.
// Undeclared functions get nothing. Waiting requests stay with their function.
//
// It matters only for functions with an [api.Function.Service]: one without is its own service.
func (a *Activator) PutTraffic(t Traffic) {
	var shares []Share
	for _, s := range t.Shares {
		at := slices.IndexFunc(shares, func(o Share) bool { return o.Function == s.Function })
		switch {
		case s.Percent <= 0:
		case at >= 0:
			shares[at].Percent += s.Percent
		default:
			shares = append(shares, s)
		}
	}
	if put(a, a.cluster.traffic, t.Service, shares, slices.Equal) {
		a.index()
	}
}

// RemoveTraffic removes a service: its functions are then reached by [Activator.ServeFunction] only.
func (a *Activator) RemoveTraffic(service api.FunctionName) {
	if remove(a, a.cluster.traffic, service) {
		a.index()
	}
}

// PutService sets when a service was created. If several want a name, the oldest gets it; one of unknown age counts
// as the youngest.
func (a *Activator) PutService(service api.FunctionName, created time.Time) {
	if put(a, a.cluster.created, service, created, time.Time.Equal) && a.names.Load().services[service] { // otherwise it has no functions yet
		a.index()
	}
}

// RemoveService removes the age of a deleted service.
func (a *Activator) RemoveService(service api.FunctionName) {
	if remove(a, a.cluster.created, service) && a.names.Load().services[service] {
		a.index()
	}
}

// SetNamespace sets whether a namespace exists: models can be named by namespace only if it does. The namespaces of
// functions are known anyway.
func (a *Activator) SetNamespace(name string, there bool) {
	changed := !there && remove(a, a.cluster.namespaces, name)
	if there {
		changed = put(a, a.cluster.namespaces, name, true, func(x, y bool) bool { return x == y })
	}
	if changed && a.names.Load().prefixes[name] { // otherwise no name has that prefix yet
		a.index()
	}
}

// put sets a key of a map of the cluster, and reports whether its value changed.
func put[K comparable, V any](a *Activator, m map[K]V, key K, value V, same func(V, V) bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := m[key]
	m[key] = value
	return !same(old, value)
}

// remove deletes a key of a map of the cluster, and reports whether it existed.
func remove[K comparable, V any](a *Activator, m map[K]V, key K) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, was := m[key]
	delete(m, key)
	return was
}
