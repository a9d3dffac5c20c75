package autoscaler

import (
	"encoding/json"
	"errors"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/wakes"
)

// Receive takes in an event of any type that the autoscaler knows. Its errors are *[api.Error] with status 400. It does
// not block.
func (a *Autoscaler) Receive(e api.Event) error {
	switch e.Type {
	case api.EventDemand:
		return a.receiveDemand(e)
	case api.EventInstanceState:
		return a.receiveState(e)
	case api.EventWoken:
		o, err := payload[api.WakeTrace](e)
		if err == nil {
			err = wakes.Check(e.ID, &o)
		}
		if err != nil {
			return err
		}
		a.ObserveWoken(o)
	case api.EventUsage:
		u, err := payload[api.Usage](e)
		if err == nil {
			err = u.Check()
		}
		if err != nil {
			return err
		}
		a.put(&used{Function: u.Function, Activator: u.Activator, usage: u})
	case api.EventFunction:
		return a.receiveFunction(e)
	case api.EventFunctionGone:
		f, err := payload[api.Function](e)
		if err != nil {
			return err
		}
		a.RemoveFunction(f.Name)
	default:
		return api.BadRequest("type", "event %s has the type %q: want %s, %s, %s, %s, %s or %s", e.ID, e.Type,
			api.EventDemand, api.EventInstanceState, api.EventWoken, api.EventUsage, api.EventFunction, api.EventFunctionGone)
	}
	return nil
}

func (a *Autoscaler) receiveDemand(e api.Event) error {
	d, err := payload[api.Demand](e)
	if err != nil {
		return err
	}
	if d.Function == "" || d.Waiting < 0 || d.Running < 0 {
		return api.BadRequest("data", "event %s: want a function and counts of at least 0", e.ID)
	}
	a.ObserveDemand(d)
	return nil
}

func (a *Autoscaler) receiveState(e api.Event) error {
	s, err := payload[api.InstanceStatus](e)
	if err != nil {
		return err
	}
	if s.Function == "" || s.Instance == "" || !known(s.State) {
		return api.BadRequest("data", "event %s: want a function, an instance and one of the states of an instance (have %q)", e.ID, s.State)
	}
	a.ObserveInstance(s)
	return nil
}

func (a *Autoscaler) receiveFunction(e api.Event) error {
	f, err := payload[api.Function](e)
	if err != nil {
		return err
	}
	if err := errors.Join(api.CheckName(f.Name.Namespace()), api.CheckName(f.Name.Name())); err != nil {
		return api.BadRequest("data", "event %s: %v", e.ID, err)
	}
	if m := f.Memory; m.Host < 0 || m.Devices < 0 || m.PerDevice < 0 || f.MinScale < 0 || f.MaxScale < 0 || f.Concurrency < 0 {
		return api.BadRequest("data", "event %s: want memory, scales and concurrency of at least 0", e.ID)
	}
	a.PutFunction(f.WithDefaults())
	return nil
}

func payload[T any](e api.Event) (T, error) {
	var v T
	if err := json.Unmarshal(e.Data, &v); err != nil {
		return v, api.BadRequest("data", "event %s of type %s: %v", e.ID, e.Type, err)
	}
	return v, nil
}

func known(s api.State) bool {
	switch s {
	case api.Starting, api.Awake, api.Draining, api.Asleep, api.Unhealthy, api.Gone:
		return true
	}
	return false
}
