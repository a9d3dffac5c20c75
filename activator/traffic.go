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
	a.mu.Lock()
	same := slices.Equal(a.cluster.traffic[t.Service], shares)
	a.cluster.traffic[t.Service] = shares
	a.mu.Unlock()
	if !same {
		a.index()
	}
}

// RemoveTraffic forgets a service: its functions are then reached by [Activator.ServeFunction] only.
func (a *Activator) RemoveTraffic(service api.FunctionName) {
	a.mu.Lock()
	_, known := a.cluster.traffic[service]
	delete(a.cluster.traffic, service)
	a.mu.Unlock()
	if known {
		a.index()
	}
}

// PutService says when a service was made. Of several that want one name the oldest has it; one of
// unknown age is younger than all others.
func (a *Activator) PutService(service api.FunctionName, created time.Time) {
	a.mu.Lock()
	same := a.cluster.created[service].Equal(created)
	a.cluster.created[service] = created
	a.mu.Unlock()
	if !same && a.names.Load().services[service] { // else it has no function, yet
		a.index()
	}
}

// RemoveService forgets the age of a service that is gone.
func (a *Activator) RemoveService(service api.FunctionName) {
	a.mu.Lock()
	_, known := a.cluster.created[service]
	delete(a.cluster.created, service)
	a.mu.Unlock()
	if known && a.names.Load().services[service] {
		a.index()
	}
}

// SetNamespace says whether there is a namespace of that name: models of others can't be called as
// if they were in it. Those of functions are known without.
func (a *Activator) SetNamespace(name string, there bool) {
	a.mu.Lock()
	same := a.cluster.namespaces[name] == there
	if there {
		a.cluster.namespaces[name] = true
	} else {
		delete(a.cluster.namespaces, name)
	}
	a.mu.Unlock()
	if !same && a.names.Load().prefixes[name] { // else nobody is called so, yet
		a.index()
	}
}
