package activator

import (
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// PutTraffic says how the requests that name a service, a model of it or an
// adapter are divided among its functions: by the shares of those that have the
// name. It replaces what was said before. Functions that are not declared (yet)
// get nothing. What waits already stays with its function.
//
// It matters only to functions with an [api.Function.Service]: one without is
// its own service and needs none.
func (a *Activator) PutTraffic(t api.Traffic) {
	var shares []api.Share
	for _, s := range t.Shares {
		at := slices.IndexFunc(shares, func(o api.Share) bool { return o.Function == s.Function })
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

// RemoveTraffic forgets a service: its functions are then reached by [Activator.ServeFunction] only.
func (a *Activator) RemoveTraffic(service api.FunctionName) {
	if remove(a, a.cluster.traffic, service) {
		a.index()
	}
}

// PutService says when a service was made. Of several that want one name the oldest has it; one of
// unknown age is younger than all others.
func (a *Activator) PutService(service api.FunctionName, created time.Time) {
	if put(a, a.cluster.created, service, created, time.Time.Equal) && a.names.Load().services[service] { // else it has no function, yet
		a.index()
	}
}

// RemoveService forgets the age of a service that is gone.
func (a *Activator) RemoveService(service api.FunctionName) {
	if remove(a, a.cluster.created, service) && a.names.Load().services[service] {
		a.index()
	}
}

// SetNamespace says whether there is a namespace of that name: models of others can't be called as
// if they were in it. Those of functions are known without.
func (a *Activator) SetNamespace(name string, there bool) {
	changed := !there && remove(a, a.cluster.namespaces, name)
	if there {
		changed = put(a, a.cluster.namespaces, name, true, func(x, y bool) bool { return x == y })
	}
	if changed && a.names.Load().prefixes[name] { // else no name has that prefix yet
		a.index()
	}
}

// put sets a key of a map of the cluster, and says whether that changes it.
func put[K comparable, V any](a *Activator, m map[K]V, key K, value V, same func(V, V) bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := m[key]
	m[key] = value
	return !same(old, value)
}

// remove deletes a key of a map of the cluster, and says whether it was there.
func remove[K comparable, V any](a *Activator, m map[K]V, key K) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, was := m[key]
	delete(m, key)
	return was
}
