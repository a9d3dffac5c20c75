package autoscaler

import (
	"container/heap"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// agenda is what the loop has to look at, so that an event costs what it changes: the
// records that were touched since the last plan, and those whose time comes.
type agenda struct {
	touched []*function
	looks   byLook
	// host is the largest host memory of a node.
	host api.Bytes
}

// touch has the loop look at f before the next plan, and tell the world of it. Whatever
// changes a record, or what is known of its instances, touches it.
func (f *function) touch() {
	if !f.touched {
		f.touched = true
		f.agenda.touched = append(f.agenda.touched, f)
	}
}

// touchAll touches every record.
func (a *Autoscaler) touchAll() {
	for _, f := range a.order {
		f.touch()
	}
}

// attend brings up to date what time changes, tells the world of all that was touched, and
// says when to look again.
func (a *Autoscaler) attend(now time.Time) time.Time {
	for len(a.looks) > 0 && !a.looks[0].look.After(now) {
		f := a.looks[0]
		a.looks.set(f, time.Time{})
		f.touch()
	}
	for k := 0; k < len(a.touched); k++ { // what it calls may touch others
		f := a.touched[k]
		if a.functions[f.name] == f {
			a.looks.set(f, earlier(a.expire(f, now), a.probe(f, now)))
		}
	}
	a.report()
	if len(a.looks) == 0 {
		return time.Time{}
	}
	return a.looks[0].look
}

// report puts what was touched into the world.
func (a *Autoscaler) report() {
	for _, f := range a.touched {
		f.touched = false
		a.put(f)
	}
	clear(a.touched)
	a.touched = a.touched[:0]
}

// put puts f into the world as it is.
func (a *Autoscaler) put(f *function) {
	if a.functions[f.name] != f {
		a.looks.set(f, time.Time{})
		if a.functions[f.name] == nil {
			a.world.Remove(f.name)
		}
		return
	}
	if spec, declared := a.planned(f); declared {
		a.world.Put(&spec, f.plain())
	} else {
		a.world.PutStray(f.name, f.plain())
	}
}

// planned is f as plans see it; false says that they see only its instances.
func (a *Autoscaler) planned(f *function) (decide.Function, bool) {
	if !f.declared && !a.stopping {
		return decide.Function{}, false
	}
	f.Need, f.Certain = f.Past.Need(f.Spec, a.cfg.AssumedMemory, a.host)
	spec := f.Function
	if a.stopping {
		spec.Order = decide.OrderStop
	}
	return spec, true
}

// plain is f's instances as plans see them.
func (f *function) plain() []*decide.Instance {
	is := make([]*decide.Instance, len(f.instances))
	for k, i := range f.instances {
		is[k] = &i.Instance
	}
	return is
}

// account is who has what of each device. What was touched stays so: the loop has yet to
// look at it.
func (a *Autoscaler) account(now time.Time) []decide.Line {
	for _, f := range a.touched {
		a.put(f)
	}
	return a.world.Account(now)
}

// setDevices takes over what there is. all says that instances hold something else now.
func (a *Autoscaler) setDevices(devices []inventory.Device, all bool) {
	a.cfg.Devices = devices
	var host api.Bytes
	for _, d := range devices {
		if d.IsHost() {
			host = max(host, d.Capacity)
		}
	}
	if all || host != a.host {
		a.touchAll() // what is assumed of a function's need is bounded by it
	}
	a.host = host
	a.world.SetDevices(devices)
}

// byLook is a heap of functions by the time at which the loop has to look at them.
type byLook []*function

// set moves f to t; zero takes it out.
func (h *byLook) set(f *function, t time.Time) {
	switch {
	case f.slot == 0 && t.IsZero():
	case f.slot == 0:
		f.look = t
		heap.Push(h, f)
	case t.IsZero():
		heap.Remove(h, f.slot-1)
	default:
		f.look = t
		heap.Fix(h, f.slot-1)
	}
}

func (h byLook) Len() int           { return len(h) }
func (h byLook) Less(a, b int) bool { return h[a].look.Before(h[b].look) }
func (h byLook) Swap(a, b int) {
	h[a], h[b] = h[b], h[a]
	h[a].slot, h[b].slot = a+1, b+1
}

// Push is part of [heap.Interface].
func (h *byLook) Push(x any) {
	f := x.(*function)
	*h = append(*h, f)
	f.slot = len(*h)
}

// Pop is part of [heap.Interface].
func (h *byLook) Pop() any {
	last := len(*h) - 1
	f := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	f.slot, f.look = 0, time.Time{}
	return f
}
