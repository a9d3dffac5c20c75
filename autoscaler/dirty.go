package autoscaler

import (
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// dirtyQueue holds the functions that may have changed since the last plan, they or their instances, so that an event costs what
// it changes. The world reads the records where they are, and is told of these before it plans.
type dirtyQueue struct {
	names []api.FunctionName
	in    map[api.FunctionName]bool
}

func (q *dirtyQueue) add(name api.FunctionName) {
	if !q.in[name] {
		q.in[name] = true
		q.names = append(q.names, name)
	}
}

// allDirty says that every function has changed.
func (a *Autoscaler) allDirty() {
	for _, f := range a.order {
		a.dirty.add(f.Spec.Name)
	}
}

// prepare brings up to date what time changes, tells the world of all that is dirty, and
// says when the next time comes.
func (a *Autoscaler) prepare(now time.Time) time.Time {
	for f, found := a.due.Pop(now); found; f, found = a.due.Pop(now) {
		a.dirty.add(f.Spec.Name)
	}
	slices.Sort(a.dirty.names) // so that calls have the same numbers whatever made them dirty
	for _, name := range a.dirty.names {
		if f := a.functions[name]; f != nil {
			a.due.Set(&f.due, f, earlier(a.expire(f, now), a.probe(f, now)))
		}
	}
	a.tellWorld()
	for _, name := range a.dirty.names {
		a.holds(name)
	}
	clear(a.dirty.in)
	a.dirty.names = a.dirty.names[:0]
	return a.due.First()
}

// tellWorld puts what is dirty into the world.
func (a *Autoscaler) tellWorld() {
	for _, name := range a.dirty.names {
		f := a.functions[name]
		if f == nil {
			a.world.Remove(name)
			continue
		}
		f.Need, f.Certain = a.need(f)
		if a.stopping {
			f.Order = decide.OrderStop
		}
		a.world.Put(&f.Function)
	}
}

// need is what an awake instance of f takes, and whether that is certain.
func (a *Autoscaler) need(f *function) (api.Memory, bool) {
	return f.Past.Need(f.Spec, a.cfg.AssumedMemory, a.world.LargestHost())
}

// account is how the memory of each device is used. What is dirty stays so: the next
// plan has yet to see it.
func (a *Autoscaler) account(now time.Time) []decide.Line {
	a.tellWorld()
	return a.world.Account(now)
}

// setDevices takes over what there is.
func (a *Autoscaler) setDevices(devices []inventory.Device) {
	before := a.world.LargestHost()
	a.world.SetDevices(devices)
	a.usage.SetDevices(time.Now(), devices)
	a.history.SetDevices(time.Now(), devices)
	if a.world.LargestHost() != before {
		a.allDirty() // what is assumed of a function's need is bounded by it
	}
}
