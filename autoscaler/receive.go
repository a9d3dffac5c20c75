package autoscaler

import (
	"encoding/json"

	"github.com/rouse-dev/rouse/api"
)

// Receive takes in an event of any type that the autoscaler knows. Its errors are *[api.Error] with status 400. It does
// not block.
func (a *Autoscaler) Receive(e api.Event) error {
	switch e.Type {
	case api.EventDemand:
		return receive(e, a.ObserveDemand, func(d *api.Demand) error {
			if d.Function == "" || d.Waiting < 0 || d.Running < 0 {
				return api.BadRequest("data", "event %s: want a function and counts of at least 0", e.ID)
			}
			return nil
		})
	case api.EventInstanceState:
		return receive(e, a.ObserveInstance, func(s *api.InstanceStatus) error {
			if s.Function == "" || s.Instance == "" || !known(s.State) {
				return api.BadRequest("data", "event %s: want a function, an instance and one of the states of an instance (have %q)", e.ID, s.State)
			}
			return nil
		})
	case api.EventWoken:
		return receive(e, a.ObserveWoken, func(o *api.WakeTrace) error { return checkWake(e.ID, o) })
	case api.EventUsage:
		put := func(u api.Usage) { a.put(&used{Function: u.Function, Activator: u.Activator, usage: u}) }
		return receive(e, put, (*api.Usage).Check)
	case api.EventFunction:
		return receive(e, a.PutFunction, func(f *api.Function) error {
			if err := f.Name.Check(); err != nil {
				return api.BadRequest("data", "event %s: %v", e.ID, err)
			}
			if m := f.Memory; m.Host < 0 || m.Devices < 0 || m.PerDevice < 0 || f.MinScale < 0 || f.MaxScale < 0 || f.Concurrency < 0 {
				return api.BadRequest("data", "event %s: want memory, scales and concurrency of at least 0", e.ID)
			}
			*f = f.WithDefaults()
			return nil
		})
	case api.EventFunctionGone:
		return receive(e, func(f api.Function) { a.RemoveFunction(f.Name) }, func(*api.Function) error { return nil })
	}
	return api.BadRequest("type", "event %s has the type %q: want %s, %s, %s, %s, %s or %s", e.ID, e.Type,
		api.EventDemand, api.EventInstanceState, api.EventWoken, api.EventUsage, api.EventFunction, api.EventFunctionGone)
}

// receive calls put with the event's data, unless check, which may change them, refuses them.
func receive[T any](e api.Event, put func(T), check func(*T) error) error {
	var v T
	if err := json.Unmarshal(e.Data, &v); err != nil {
		return api.BadRequest("data", "event %s of type %s: %v", e.ID, e.Type, err)
	}
	if err := check(&v); err != nil {
		return err
	}
	put(v)
	return nil
}

func known(s api.State) bool {
	switch s {
	case api.Starting, api.Awake, api.Draining, api.Asleep, api.Unhealthy, api.Gone:
		return true
	}
	return false
}
