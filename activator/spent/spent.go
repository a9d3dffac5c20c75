// Package spent counts clients' use of functions, and reports it to the autoscaler.
//
// A report holds the total use since a time ([api.Usage]). Used functions are reported every [Every], and all
// functions every [Again], so that a restarted autoscaler knows the base of the counts. The use by one key
// is forgotten when it has not changed for [Unused].
//
// A Counter is safe for concurrent use.
package spent

import (
	"maps"
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

// others are the tenant and the key of uses beyond [api.MostUses] of a function.
const others = "other"

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
	changed bool
}

type key struct{ tenant, name string }

type use struct {
	api.Use
	last time.Time
}

// New returns a counter for the named activator that reports to e.
func New(activator string, e api.Emitter) *Counter {
	return &Counter{activator: activator, emitter: e, functions: map[api.FunctionName]*function{}}
}

// Add counts what requests have used; u.Begun is ignored.
func (c *Counter) Add(now time.Time, name api.FunctionName, u api.Use) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.functions[name]
	if f == nil {
		f = &function{uses: map[key]*use{}}
		c.functions[name] = f
	}
	k := key{u.Tenant, u.Key}
	if f.uses[k] == nil && len(f.uses) >= api.MostUses-1 {
		k = key{others, others}
	}
	all := f.uses[k]
	if all == nil {
		all = &use{Use: api.Use{Begun: now, Tenant: k.tenant, Key: k.name}}
		f.uses[k] = all
	}
	all.last = now
	all.Requests += u.Requests
	all.Input += u.Input
	all.Cached += u.Cached
	all.Output += u.Output
	all.GPUSeconds += u.GPUSeconds
	f.changed = true
}

// Tell reports the changes, or all functions if that is due.
func (c *Counter) Tell(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := now.Sub(c.told) >= Again
	if all {
		c.told = now
	}
	for name, f := range c.functions {
		if !all && !f.changed {
			continue
		}
		f.changed = false
		u := api.Usage{Function: name, Activator: c.activator}
		for _, s := range f.uses {
			u.Uses = append(u.Uses, s.Use)
		}
		c.emitter.Emit(api.NewEvent(api.EventUsage, "/activator/"+c.activator, name, u))
		maps.DeleteFunc(f.uses, func(_ key, s *use) bool { return now.Sub(s.last) >= Unused })
		if len(f.uses) == 0 {
			delete(c.functions, name)
		}
	}
}
