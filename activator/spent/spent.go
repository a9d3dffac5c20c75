// Package spent counts clients' use of instances, and reports it to the autoscaler, which shares GPU time by it.
//
// A report holds the total use since a time ([api.Usage]). Used functions are reported every [Every], and all
// functions every [Again], so that a restarted autoscaler knows the base of the counts. The use of one instance by
// one key is forgotten when it has not changed for [Unused].
//
// A Counter is safe for concurrent use.
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

// Bounds of the state of one function.
const (
	mostTenants = 200
	mostKeys    = 400
	others      = "other"
)

// Counter counts clients' use. See [New].
type Counter struct {
	activator string
	emitter   api.Emitter

	mu        sync.Mutex // guards the fields below
	functions map[api.FunctionName]*function
	told      time.Time // when all functions were last reported
}

type function struct {
	uses    map[key]*use
	tenants map[string]bool
	keys    map[string]bool
	changed bool
}

type key struct {
	instance     api.InstanceID
	tenant, name string
}

type use struct {
	api.Use
	last time.Time
}

// New returns a counter for the named activator that reports to e.
func New(activator string, e api.Emitter) *Counter {
	return &Counter{activator: activator, emitter: e, functions: map[api.FunctionName]*function{}}
}

// Add counts requests that an instance has answered; u.Since is ignored.
func (c *Counter) Add(now time.Time, name api.FunctionName, u api.Use) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.functions[name]
	if f == nil {
		f = &function{uses: map[key]*use{}, tenants: map[string]bool{"": true}, keys: map[string]bool{"": true}}
		c.functions[name] = f
	}
	bound(f.tenants, &u.Tenant, mostTenants)
	bound(f.keys, &u.Key, mostKeys)
	k := key{u.Instance, u.Tenant, u.Key}
	all := f.uses[k]
	if all == nil {
		if len(f.uses) >= api.MostUses {
			f.evict()
		}
		all = &use{Use: api.Use{Instance: u.Instance, Begun: now, Tenant: u.Tenant, Key: u.Key}}
		f.uses[k] = all
	}
	all.last = now
	all.Requests += u.Requests
	all.Input += u.Input
	all.Cached += u.Cached
	all.Output += u.Output
	all.Cost += u.Cost
	f.changed = true
}

// bound replaces a new name if there are too many.
func bound(known map[string]bool, name *string, most int) {
	if !known[*name] {
		if len(known) > most {
			*name = others
		}
		known[*name] = true
	}
}

// evict forgets the least recently used entry.
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

// Tell reports the changes, or all functions if that is due.
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
			return slices.Compare([]string{string(a.Instance), a.Tenant, a.Key}, []string{string(b.Instance), b.Tenant, b.Key})
		})
		c.emitter.Emit(api.NewEvent(api.EventUsage, "/activator/"+c.activator, name, u))
		maps.DeleteFunc(f.uses, func(_ key, s *use) bool { return now.Sub(s.last) >= Unused })
		if len(f.uses) == 0 {
			delete(c.functions, name)
		}
	}
}
