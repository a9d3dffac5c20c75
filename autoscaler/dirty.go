package autoscaler

import (
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// dirtyQueue holds the functions that may have changed, themselves or their instances, since the last plan. The world is told
// only of these before it plans, so that the cost of an event depends on what it changes.
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

func (a *Autoscaler) allDirty() {
	for _, f := range a.order {
		a.dirty.add(f.Spec.Name)
	}
}

// prepare applies what depends on time alone and puts all dirty functions into the world. It returns the time when it is next
// due.
func (a *Autoscaler) prepare(now time.Time) time.Time {
	for f, found := a.due.Pop(now); found; f, found = a.due.Pop(now) {
		a.dirty.add(f.Spec.Name)
	}
	slices.Sort(a.dirty.names) // so that the numbers of calls don't depend on the order of events
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

// tellWorld puts the dirty functions into the world. They stay dirty.
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

// need returns the memory that an awake instance of f takes, and whether that is certain.
func (a *Autoscaler) need(f *function) (api.Memory, bool) {
	return f.Past.Need(f.Spec, a.cfg.AssumedMemory, a.world.LargestHost())
}

// account returns how the memory of each device is used. Dirty functions stay dirty: the next plan has yet to see them.
func (a *Autoscaler) account(now time.Time) []decide.Line {
	a.tellWorld()
	return a.world.Account(now)
}

func (a *Autoscaler) setDevices(devices []inventory.Device) {
	before := a.world.LargestHost()
	a.world.SetDevices(devices)
	a.usage.SetDevices(time.Now(), devices)
	a.history.SetDevices(time.Now(), devices)
	if a.world.LargestHost() != before {
		a.allDirty() // the assumed need of a function is bounded by it
	}
}
