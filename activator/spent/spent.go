// Package spent counts what clients use of instances, and tells the autoscaler, which shares GPUs' time by it.
//
// What is told is what was used since a time ([api.Usage]): every [Every] of functions that were used, and of all each
// [Again], so that an autoscaler that has begun anew knows from where on to count. What one instance gave to one tenant is
// forgotten when it is not used for [Unused].
//
// A Counter is safe for many goroutines.
package spent

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Intervals of a counter.
const (
	Every  = 5 * time.Second
	Again  = time.Minute
	Unused = time.Hour
)

// Bounds of what is kept of one function.
const (
	mostTenants = 200
	otherTenant = "other"
)

// Counter counts. See [New].
type Counter struct {
	activator string
	emitter   api.Emitter

	mu        sync.Mutex // guards what follows
	functions map[api.FunctionName]*function
	told      time.Time // when all were told last
}

type function struct {
	uses    map[key]*use
	tenants map[string]bool
	changed bool
}

type key struct {
	instance api.InstanceID
	tenant   string
}

type use struct {
	api.Use
	last time.Time
}

// New makes a counter of the activator of that name, which tells what it counts to e.
func New(activator string, e api.Emitter) *Counter {
	return &Counter{activator: activator, emitter: e, functions: map[api.FunctionName]*function{}}
}

// Add counts a request that an instance has answered. cost is by what the instance's time is shared.
func (c *Counter) Add(now time.Time, name api.FunctionName, id api.InstanceID, tenant string, input, output api.Tokens, cost float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.functions[name]
	if f == nil {
		f = &function{uses: map[key]*use{}, tenants: map[string]bool{"": true}}
		c.functions[name] = f
	}
	if !f.tenants[tenant] {
		if len(f.tenants) > mostTenants {
			tenant = otherTenant
		}
		f.tenants[tenant] = true
	}
	k := key{id, tenant}
	u := f.uses[k]
	if u == nil {
		if len(f.uses) >= api.MostUses {
			f.evict()
		}
		u = &use{Use: api.Use{Instance: id, Begun: now, Tenant: tenant}}
		f.uses[k] = u
	}
	u.last = now
	u.Requests++
	u.Input += input
	u.Output += output
	u.Cost += cost
	f.changed = true
}

// evict forgets what was used longest ago.
func (f *function) evict() {
	var oldest key
	var at time.Time
	for k, u := range f.uses {
		if at.IsZero() || u.last.Before(at) {
			oldest, at = k, u.last
		}
	}
	delete(f.uses, oldest)
}

// Tell tells what has changed, or where that is due all.
func (c *Counter) Tell(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := now.Sub(c.told) >= Again
	if all {
		c.told = now
	}
	for _, name := range slices.Sorted(maps.Keys(c.functions)) {
		f := c.functions[name]
		if !all && !f.changed {
			continue
		}
		f.changed = false
		u := api.Usage{Function: name, Activator: c.activator}
		for _, s := range f.uses {
			u.Uses = append(u.Uses, s.Use)
		}
		slices.SortFunc(u.Uses, func(a, b api.Use) int {
			return slices.Compare([]string{string(a.Instance), a.Tenant}, []string{string(b.Instance), b.Tenant})
		})
		c.emitter.Emit(api.NewEvent(api.EventUsage, "/activator/"+c.activator, name, u))
		maps.DeleteFunc(f.uses, func(_ key, s *use) bool { return now.Sub(s.last) >= Unused })
		if len(f.uses) == 0 {
			delete(c.functions, name)
		}
	}
}
