package autoscaler

import (
	"encoding/json"
	"reflect"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

type (
	functionPut struct {
		Spec     api.Function
		Recalled Times // filled in by the loop
	}
	functionRemoved struct{ Name api.FunctionName }
	devicesSet      struct{ Devices []inventory.Device }
	usageSeen       struct{ Seen []inventory.Usage }
	roomsSet        struct {
		Rooms     []inventory.Room
		Unmanaged []inventory.UnmanagedPod
	}
	elasticSet       struct{ On bool }
	instanceReported struct {
		Status api.InstanceStatus
		Hidden *hidden
	}
	demandReported struct{ Demand api.Demand }
	// used is recorded to tell what a day's requests were; no decision depends on it.
	used struct {
		Function  api.FunctionName
		Activator string
		Uses      []UsedBy // filled in for the record

		usage api.Usage
	}
	orderGiven struct {
		Name   api.FunctionName
		Order  decide.Order
		Level  api.Level
		Waiter uint64

		done  chan error // the waiter's
		given chan error // receives nil if the order was accepted
	}
	orderWithdrawn struct {
		Name   api.FunctionName
		Waiter uint64
	}
	scaleSet struct {
		Name     api.FunctionName
		Replicas int
		Life     time.Duration
		By       string

		refused chan error
	}
	allStopped struct {
		emptied chan struct{}
	}
)

func (p *functionPut) apply(a *loop) {
	spec := p.Spec
	f := a.record(spec.Name)
	if f.Undeclared && f.Past.Starts == 0 {
		f.Past = p.Recalled.experience()
	}
	if f.removed || !f.Undeclared && !f.Spec.Runtime.Adapts(spec.Runtime) {
		for _, i := range f.Instances {
			i.Outdated = true
		}
		f.OneFile = false
		arrivals := f.Past.Arrivals
		f.Past = p.Recalled.experience()
		f.Past.Arrivals = arrivals
	}
	if f.removed {
		f.removed, f.Order = false, decide.OrderNone
	}
	if reflect.DeepEqual(f.Spec, spec) || !reflect.DeepEqual(withoutBounds(f.Spec), withoutBounds(spec)) {
		f.Failures, f.Hopeless, f.RetryAt = 0, false, time.Time{} // what failed may be fixed
	}
	f.Spec, f.Undeclared = spec, false
	a.recallRhythm(f, p.Recalled)
	for _, i := range f.Instances {
		a.calls.adapt(a.instances[i.Status.Instance])
	}
}

func (p *functionRemoved) apply(a *loop) {
	f := a.functions[p.Name]
	if f == nil {
		return
	}
	f.answer(api.Errorf(404, api.CodeModelNotFound, "function %s was removed", p.Name))
	f.removed, f.Order = true, decide.OrderStop
	clear(f.demands)
	f.sum(a.now)
	a.finishRemoval(f)
}

func (p *devicesSet) apply(a *loop) {
	now := make(map[api.DeviceID]api.DeviceID)
	for _, d := range p.Devices {
		if d.Was != "" {
			now[d.Was] = d.ID
		}
	}
	devices := slices.Clone(p.Devices)
	a.forgive(devices)
	a.markLost(devices, now)
	for k := range devices {
		if d := &devices[k]; d.Others == 0 {
			d.Others = min(a.others[d.ID], d.Capacity)
		}
	}
	for _, f := range a.order {
		for _, i := range f.Instances {
			i.Status.Devices, i.Grant.Devices = renamed(i.Status.Devices, now), renamed(i.Grant.Devices, now)
		}
	}
	a.setDevices(devices)
}

func (p *usageSeen) apply(a *loop) { a.notice(p.Seen) }

func (p *roomsSet) apply(a *loop) {
	a.rooms, a.unmanaged = p.Rooms, p.Unmanaged
}

func (p *elasticSet) apply(a *loop) {
	a.elastic = p.On
}

func (p *instanceReported) apply(a *loop) {
	p.Hidden.restore(&p.Status)
	a.merge(p.Status, a.now)
}

func (p *demandReported) apply(a *loop) {
	d := p.Demand
	f := a.functions[d.Function]
	if f == nil || f.Undeclared {
		a.log.Debug("demand for a function that is not declared", "function", d.Function)
		return
	}
	old, known := f.demands[d.Activator]
	if behind := old.At.Sub(d.At); known && behind > 0 && behind < mostLate && a.now.Sub(old.heard) < mostLate {
		return // late; one further behind comes from a clock that was set back
	}
	f.demands[d.Activator] = demand{Demand: d, heard: a.now}
	judged, trusted := f.Rhythm.Judged(), f.Rhythm.Trusted()
	f.sum(a.now)
	if f.Rhythm.Judged() != judged && (trusted || f.Rhythm.Trusted()) {
		a.tell(api.Decision{At: a.now, Function: f.Spec.Name, Action: "forecast", Reason: judgement(f.Rhythm)})
	}
	a.wakes.Demand(d, f.Waiting, time.Now())
}

func (p *used) apply(a *loop) {
	if p.usage.Function != "" { // empty in a replay
		a.usage.Used(time.Now(), p.usage)
	}
}

func (p *allStopped) apply(a *loop) {
	a.stopping = true
	if p.emptied != nil {
		a.emptied = append(a.emptied, p.emptied)
	}
	for _, f := range a.order {
		if f.Order != decide.OrderStop {
			f.answer(errEnded)
		}
	}
}

// UsedBy is the usage by one client, known by a digest only, since Begun.
type UsedBy struct {
	Instance                api.InstanceID // in records of earlier versions only
	Who                     string
	Begun                   time.Time
	Requests, Input, Output int64
}

// Receive takes in an event. Its errors are *[api.Error] with status 400.
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
			if s.Function == "" || s.Instance == "" || !slices.Contains(api.States, s.State) {
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
