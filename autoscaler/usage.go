package autoscaler

import (
	"cmp"
	"context"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/usage"
)

func (a *loop) holds(f *function) {
	now := time.Now()
	for _, i := range f.Instances {
		s := &i.Status
		h := usage.Holder{Instance: s.Instance, Function: f.Spec.Name, Devices: s.Devices, Bytes: f.Need.PerDevice}
		asleep := s.State == api.Asleep && !i.BeingWoken()
		if !asleep {
			h.Bytes = max(h.Bytes, s.Memory.PerDevice)
		}
		a.tellShare(h.Function, h.Instance, a.usage.Share(h))
		if h.Asleep = asleep; asleep {
			h.Bytes = s.Memory.PerDevice
		}
		a.usage.Set(now, h)
		a.history.Set(held(f, i, now))
	}
}

// held counts the need of an instance until it is measured, and at least the need while it starts.
func held(f *function, i *decide.Instance, now time.Time) admin.Held {
	s := &i.Status
	h := admin.Held{At: now, Instance: s.Instance, Function: f.Spec.Name, Node: s.Node, Devices: s.Devices, State: s.State, Host: s.Memory.Host, PerDevice: s.Memory.PerDevice}
	switch {
	case i.Doing == decide.DoingSleep || i.Doing == decide.DoingStop:
		h.State = api.Draining
	case i.BeingWoken() || s.State == api.Starting:
		h.State, h.Host, h.PerDevice = api.Starting, max(h.Host, f.Need.Host), max(h.PerDevice, f.Need.PerDevice)
	}
	if s.State != api.Asleep {
		h.Host, h.PerDevice = cmp.Or(h.Host, f.Need.Host), cmp.Or(h.PerDevice, f.Need.PerDevice)
	}
	if len(h.Devices) == 0 {
		h.PerDevice = 0
	}
	return h
}

// History returns the last day. It does not wait for the loop.
func (a *Autoscaler) History(after uint64) admin.History { return a.history.After(after) }

// SaveUsage returns what [Config.Usage] of a later process begins with; nil: nothing has changed since the last call.
// After Run has ended it returns the last state.
func (a *Autoscaler) SaveUsage() *usage.Saved {
	save := func() *usage.Saved { return a.usage.Save(time.Now()) }
	s, err := ask(context.Background(), a, save)
	if err != nil {
		s = save() // safe: the loop has ended
	}
	return s
}

// Usage returns the usage by client.
func (a *Autoscaler) Usage(q admin.UsageQuery) admin.Usage {
	u, _ := ask(context.Background(), a, func() admin.Usage { return a.usage.Report(time.Now(), q) })
	return u
}
