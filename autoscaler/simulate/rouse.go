package simulate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// rouse keeps the records of the autoscaler's owner loop, calls its decision code, and carries out the actions. It adds
// the delay of messages, and the activator's part, which wakes a sleeper at once under a grant. A start needs a pod, a
// wake none.
type rouse struct {
	w         *world
	index     map[api.DeviceID]int // of GPUs
	functions []*rouseFunction     // by name
	of        []*rouseFunction     // by the world's number
	instances map[api.InstanceID]*rouseInstance
	snapshot  decide.Snapshot
	ask       func() ([]decide.Action, time.Time)
	deadline  timer // for the next plan
	soon      timer // after an event
	aheads    int   // starts and wakes before a request came
}

type rouseFunction struct {
	decide.Function
	f      *function
	number int // of the last instance
}

type rouseInstance struct {
	decide.Instance
	f       *rouseFunction
	u       *unit
	granted bool // an activator holds the grant
}

// epoch is virtual time 0.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (p *rouse) now() time.Time { return epoch.Add(p.w.now) }

func newRouse(w *world, policy Policy) controller {
	p := &rouse{w: w, index: map[api.DeviceID]int{}, instances: map[api.InstanceID]*rouseInstance{}}
	p.deadline = timer{c: &w.clock, do: p.plan}
	p.soon = timer{c: &w.clock, do: p.plan}
	p.ask = p.decide
	p.findDevices()
	for _, f := range w.functions {
		rf := &rouseFunction{f: f}
		rf.Spec = specOf(w.cfg, f.m, policy)
		rf.Need, rf.Certain = rf.Past.Need(rf.Spec, 0, w.cfg.HostMemory)
		p.of = append(p.of, rf)
	}
	p.functions = slices.Clone(p.of)
	slices.SortFunc(p.functions, func(a, b *rouseFunction) int { return strings.Compare(string(a.Spec.Name), string(b.Spec.Name)) })
	for _, f := range p.functions {
		p.snapshot.Functions = append(p.snapshot.Functions, &f.Function)
	}
	return p
}

func specOf(c Config, m *Model, p Policy) api.Function {
	sleepAfter := p.keep(m)
	if sleepAfter == Forever {
		sleepAfter = 0
	}
	if d := m.Declared; d != nil && p.each {
		p.UnloadAfter, p.NoPrewake, p.Rehearse = d.UnloadAfter, d.NoPrewake, d.Rehearse
	}
	return api.Function{
		Name: api.NewFunctionName("", string(m.Name)), Concurrency: m.Concurrency, MaxScale: c.MaxScale,
		Memory:     api.Memory{Host: m.Host, Devices: m.GPUs, PerDevice: m.Device},
		SleepAfter: sleepAfter, UnloadAfter: p.UnloadAfter, NoPrewake: p.NoPrewake, Rehearse: p.Rehearse, Suspend: p.Suspend, Hold: api.Hold{Timeout: c.Hold},
	}.WithDefaults()
}

func (p *rouse) arrived(f *function) {
	rf := p.of[f.number]
	if rf.Waiting+rf.Running == 0 {
		rf.Arrived(p.now())
	}
	p.demand(rf)
	rf.LastRequest = p.now()
	p.rouse(rf)
}

func (p *rouse) changed(f *function) { p.demand(p.of[f.number]) }

// demand updates the reported demand, and plans unless the need is unchanged and no request waits.
func (p *rouse) demand(f *rouseFunction) {
	needed, _, _ := f.Wanted(f.Load.Awake)
	waited := f.Waiting > 0
	f.NoteNeed(p.now())
	f.Waiting, f.Running, f.WaitingSince = len(f.f.queue), f.f.running, time.Time{}
	if f.Waiting > 0 {
		f.WaitingSince = epoch.Add(f.f.queue[0].at)
	}
	f.NotePressure(p.now())
	if n, _, _ := f.Wanted(f.Load.Awake); waited || f.Waiting > 0 || n != needed {
		p.tell()
	}
}

func (p *rouse) tell() {
	if at := p.w.now + p.w.cfg.Hop; !p.soon.on() {
		p.soon.reset(at)
	}
}

// rouse wakes a sleeper under its grant, as an activator does.
func (p *rouse) rouse(f *rouseFunction) {
	if f.Waiting == 0 {
		return
	}
	var sleeper *rouseInstance
	for _, known := range f.Instances {
		i := p.instances[known.Status.Instance]
		if i.u.state == awake && !i.u.closed || i.u.state == rising {
			return
		}
		if i.granted && i.u.state == asleep && i.Doing == decide.Nothing && i.Grant.Valid(p.now()) && sleeper == nil {
			sleeper = i
		}
	}
	if sleeper == nil {
		return
	}
	sleeper.NoteWaking(true, p.now())
	p.restore(sleeper, sleeper.Grant.Devices)
	p.w.wake(sleeper.u, p.w.cfg.Hop, func() { p.report(sleeper, api.Awake, 0) })
	p.tell()
}

// plan decides and acts, twice if it acted, as the owner loop does.
func (p *rouse) plan() {
	var next time.Time
	for round, acted := 0, true; acted && round < 2; round++ {
		var actions []decide.Action
		actions, next = p.ask()
		acted = false
		for k := range actions {
			p.act(&actions[k])
			acted = acted || actions[k].Kind != decide.Wait
		}
	}
	p.deadline.stop()
	if !next.IsZero() {
		p.deadline.reset(next.Sub(epoch))
	}
}

func (p *rouse) decide() ([]decide.Action, time.Time) { return decide.Plan(p.snapshot, p.now()) }

func (p *rouse) act(a *decide.Action) {
	if a.For != "" && (a.Kind == decide.Sleep || a.Kind == decide.Stop) {
		p.w.swaps++
	}
	if a.Kind == decide.Wait {
		return
	}
	if a.Ahead {
		p.aheads++
	}
	i := p.instances[a.Instance]
	hop := p.w.cfg.Hop
	switch a.Kind {
	case decide.Start:
		p.start(a)
	case decide.Wake:
		i.Doing, i.Since, i.Ahead = decide.DoingWake, p.now(), a.Ahead
		i.Rehearsing, i.Rehearsed = false, a.Rehearsal
		p.restore(i, a.Devices)
		p.w.wake(i.u, hop, func() { p.report(i, api.Awake, 0) })
	case decide.Sleep:
		i.Doing, i.Level, i.granted, i.Rehearsing = decide.DoingSleep, a.Level, false, a.Rehearsal
		i.f.Observe(p.now())
		p.w.after(hop, func() {
			p.w.sleep(i.u, a.Level, func() {
				i.Grant = api.Grant{}
				p.report(i, api.Asleep, a.Level)
			})
		})
	case decide.Stop:
		i.Doing, i.granted = decide.DoingStop, false
		i.f.Observe(p.now())
		p.w.after(hop, func() { p.w.stop(i.u, func() { p.drop(i) }) })
	case decide.Grant:
		i.Doing, i.GrantedAt = decide.DoingGrant, p.now()
		i.Grant = api.Grant{Instance: a.Instance, Function: a.Function, Devices: a.Devices, Memory: a.Memory, Expires: a.Expires}
		p.w.after(hop, func() {
			i.Doing, i.granted = decide.Nothing, true
			p.rouse(i.f)
			p.tell()
		})
	case decide.Revoke:
		i.Doing, i.granted = decide.DoingRevoke, false
		p.w.after(hop, func() {
			i.Doing, i.Grant = decide.Nothing, api.Grant{}
			p.tell()
		})
	case decide.Fail:
		f := p.find(a.Function)
		f.RefusedAt = p.now()
		p.w.refuse(f.f, len(f.f.queue))
		p.demand(f)
	}
}

func (p *rouse) find(name api.FunctionName) *rouseFunction {
	k, found := slices.BinarySearchFunc(p.functions, name, func(f *rouseFunction, n api.FunctionName) int {
		return strings.Compare(string(f.Spec.Name), string(n))
	})
	if !found {
		panic("simulate: the plan acts on a function that does not exist: " + string(name))
	}
	return p.functions[k]
}

func (p *rouse) start(a *decide.Action) {
	f := p.find(a.Function)
	f.number++
	i := &rouseInstance{f: f}
	i.Status = api.InstanceStatus{Instance: api.InstanceID(fmt.Sprintf("%s-%06d", a.Function.Name(), f.number)),
		Function: a.Function, State: api.Starting, Devices: a.Devices, Concurrency: f.Spec.Concurrency}
	i.Status.Node = p.nodeName(p.w.devices[p.index[a.Devices[0]]].node)
	i.Since, i.From, i.Ahead = p.now(), inventory.Stopped, a.Ahead
	devices := p.indices(a.Devices)
	f.Add(&i.Instance)
	p.instances[i.Status.Instance] = i
	i.u = p.w.start(f.f, devices, p.w.cfg.Pod+p.w.cfg.Hop, func() { p.report(i, api.Awake, 0) })
}

func (p *rouse) indices(ids []api.DeviceID) []int {
	devices := make([]int, len(ids))
	for k, id := range ids {
		devices[k] = p.index[id]
	}
	return devices
}

func (p *rouse) restore(i *rouseInstance, ids []api.DeviceID) {
	if i.u.level == api.Suspended {
		i.Status.Devices, i.u.devices = ids, p.indices(ids)
	}
}

func (p *rouse) report(i *rouseInstance, s api.State, level api.Level) {
	old := i.Status
	m := i.f.f.m
	i.Doing, i.Waking = decide.Nothing, false
	i.Status.State, i.Status.Level = s, level
	i.Status.Memory = api.Memory{Host: i.u.host, Devices: m.GPUs, PerDevice: i.u.dev}
	if s == api.Awake {
		// The world books its memory before it calls.
		i.Status.Memory = api.Memory{Host: m.Host, Devices: m.GPUs, PerDevice: m.Device}
		i.Status.LoadTime = p.w.cfg.Pod + i.u.loaded
		if i.u.level != api.LevelAwake {
			i.Status.WakeTime = i.u.wakeTime()
		}
		i.Status.Suspends = i.Status.Suspends || i.u.level == api.Suspended
		i.u.level = api.LevelAwake
	}
	if level == api.Suspended {
		i.Status.Devices = nil
	}
	i.Status.SleepTime = i.u.rest
	i.f.Changed(&i.Instance, old, p.now())
	i.f.Past = i.f.Past.Measured(i.Status)
	i.f.Need, i.f.Certain = i.f.Past.Need(i.f.Spec, 0, p.w.cfg.HostMemory)
	i.f.Observe(p.now())
	p.tell()
}

func (p *rouse) drop(i *rouseInstance) {
	delete(p.instances, i.Status.Instance)
	i.f.Drop(&i.Instance)
	i.f.Observe(p.now())
	p.tell()
}
