package autoscaler

import (
	"context"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/ledger"
)

// View is all that the autoscaler knows of one function, for people.
type View struct {
	Function  api.Function         `json:"function"`
	Instances []api.InstanceStatus `json:"instances"`
	// Waiting and Running are the sums over all activators.
	Waiting int `json:"waiting"`
	Running int `json:"running"`
	// LastRequest is when the last request came, zero if none ever did.
	LastRequest time.Time `json:"lastRequest"`
	// Need is what one awake instance takes: declared, measured or assumed.
	Need api.Memory `json:"need"`
	// Learned is the experience with its instances.
	Learned ledger.Experience `json:"learned"`
	// Granted are the instances that activators may wake without asking.
	Granted []api.InstanceID `json:"granted,omitempty"`
	// Failures in a row, the last one's message, and when the next try may be.
	Failures  int       `json:"failures,omitempty"`
	LastError string    `json:"lastError,omitempty"`
	RetryAt   time.Time `json:"retryAt,omitzero"`
	// Waits says what the function waits for; empty if it does not.
	Waits string `json:"waits,omitempty"`
}

// List returns all declared functions, by name. Like all that ask the loop, it
// waits until [Autoscaler.Run] runs; after Run has ended it returns nothing.
func (a *Autoscaler) List() []View {
	vs, _ := ask(context.Background(), a, func() []View {
		var vs []View
		for _, f := range a.order {
			if f.declared {
				vs = append(vs, a.view(f))
			}
		}
		return vs
	})
	return vs
}

// Status returns one function, and whether there is one of that name. It waits like [Autoscaler.List].
func (a *Autoscaler) Status(name api.FunctionName) (View, bool) {
	v, _ := ask(context.Background(), a, func() *View {
		f := a.functions[name]
		if f == nil || !f.declared {
			return nil
		}
		v := a.view(f)
		return &v
	})
	if v == nil {
		return View{}, false
	}
	return *v, true
}

// Why returns the last decisions on a function, at most 100, the newest last.
// It waits like [Autoscaler.List].
func (a *Autoscaler) Why(name api.FunctionName) []api.Decision {
	ds, _ := ask(context.Background(), a, func() []api.Decision {
		if f := a.functions[name]; f != nil {
			return f.why.list()
		}
		return nil
	})
	return ds
}

// Devices returns the account of each device, the host first. It waits like [Autoscaler.List].
func (a *Autoscaler) Devices() []decide.Line {
	ls, _ := ask(context.Background(), a, func() []decide.Line {
		a.snapshot()
		return decide.Account(a.snap, time.Now())
	})
	return ls
}

func (a *Autoscaler) view(f *function) View {
	need, _ := f.Past.Need(f.Spec, a.cfg.AssumedMemory, a.cfg.Devices[0].Capacity)
	v := View{Function: f.Spec, Waiting: f.Waiting, Running: f.Running, LastRequest: f.LastRequest,
		Need: need, Learned: f.Past, Failures: f.Failures, LastError: f.LastError, RetryAt: f.RetryAt, Waits: f.lastWait}
	for _, i := range f.instances {
		s := i.Status
		s.Devices = slices.Clone(s.Devices)
		v.Instances = append(v.Instances, s)
		if i.Status.State == api.Asleep && i.Grant.Valid(time.Now()) {
			v.Granted = append(v.Granted, s.Instance)
		}
	}
	return v
}
