package autoscaler

import (
	"context"
	"slices"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// List returns all declared functions, by name; none after Run has ended.
func (a *Autoscaler) List() []admin.Function {
	vs, _ := ask(context.Background(), a, func() []admin.Function {
		var vs []admin.Function
		for _, f := range a.order {
			if !f.Undeclared {
				vs = append(vs, a.view(f))
			}
		}
		return vs
	})
	return vs
}

// Status returns a function, and whether it is declared.
func (a *Autoscaler) Status(name api.FunctionName) (admin.Function, bool) {
	v, _ := ask(context.Background(), a, func() *admin.Function {
		f := a.functions[name]
		if f == nil || f.Undeclared {
			return nil
		}
		v := a.view(f)
		return &v
	})
	if v == nil {
		return admin.Function{}, false
	}
	return *v, true
}

// Why returns the last decisions on a function, the newest last.
func (a *Autoscaler) Why(name api.FunctionName) []api.Decision {
	ds, _ := ask(context.Background(), a, func() []api.Decision {
		if f := a.functions[name]; f != nil {
			return slices.Clone(f.decisions)
		}
		return nil
	})
	return ds
}

// Devices returns the account of each device, the host first.
func (a *Autoscaler) Devices() []admin.Device {
	ds, _ := ask(context.Background(), a, a.account)
	return ds
}

func (a *loop) view(f *function) admin.Function {
	f.Need, f.Certain = a.need(f)
	impossible := ""
	if !a.elastic {
		impossible = a.topology.Impossible(&f.Function)
	}
	v := admin.Function{Function: f.Spec, Waiting: f.Waiting, Running: f.Running, LastRequest: f.LastRequest,
		Need: f.Need, Impossible: impossible, Learned: f.Past.Learned(), Failures: f.Failures, LastError: f.LastError, RetryAt: f.RetryAt, Waits: f.lastWait,
		Foreseen: a.foretold(f)}
	if v.Desired = a.desired(f, a.now); f.Function.Scale.On(a.now) {
		o := admin.Override(f.Function.Scale)
		v.Scale = &o
	}
	for _, i := range f.Instances {
		s := i.Status
		s.Devices = slices.Clone(s.Devices)
		v.Instances = append(v.Instances, s)
		if i.Status.State == api.Asleep && i.Grant.Valid(a.now) {
			v.Granted = append(v.Granted, s.Instance)
		}
	}
	return v
}
