package activator

import (
	"maps"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Intervals of a usageCounter.
const (
	usageEvery  = 5 * time.Second
	usageAgain  = time.Minute
	usageUnused = time.Hour
)

// otherUses are the tenant and the key of uses beyond [api.MostUses] of a function.
const otherUses = "other"

// usageCounter counts clients' use of functions, and reports it to the autoscaler. It is safe for concurrent use.
//
// A report holds the total use since a time ([api.Usage]). Used functions are reported every usageEvery, and all
// functions every usageAgain, so that a restarted autoscaler knows the base of the counts. The use by one key
// is forgotten when it has not changed for usageUnused.
type usageCounter struct {
	activator string
	emitter   api.Emitter

	mu        sync.Mutex // guards the fields below
	functions map[api.FunctionName]*usedFunction
	told      time.Time // when all functions were last reported
}

type usedFunction struct {
	uses    map[usageKey]*countedUse
	changed bool
}

type usageKey struct{ tenant, name string }

type countedUse struct {
	api.Use
	last time.Time
}

// newUsageCounter returns a counter for the named activator that reports to e.
func newUsageCounter(activator string, e api.Emitter) *usageCounter {
	return &usageCounter{activator: activator, emitter: e, functions: map[api.FunctionName]*usedFunction{}}
}

// Add counts what requests have used; u.Begun is ignored.
func (c *usageCounter) Add(now time.Time, name api.FunctionName, u api.Use) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.functions[name]
	if f == nil {
		f = &usedFunction{uses: map[usageKey]*countedUse{}}
		c.functions[name] = f
	}
	k := usageKey{u.Tenant, u.Key}
	if f.uses[k] == nil && len(f.uses) >= api.MostUses-1 {
		k = usageKey{otherUses, otherUses}
	}
	all := f.uses[k]
	if all == nil {
		all = &countedUse{Use: api.Use{Begun: now, Tenant: k.tenant, Key: k.name}}
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
func (c *usageCounter) Tell(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := now.Sub(c.told) >= usageAgain
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
		maps.DeleteFunc(f.uses, func(_ usageKey, s *countedUse) bool { return now.Sub(s.last) >= usageUnused })
		if len(f.uses) == 0 {
			delete(c.functions, name)
		}
	}
}
