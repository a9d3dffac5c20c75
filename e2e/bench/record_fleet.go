package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler"
)

// fleet simulates instances that follow every order, an activator, and the reports of both.
type fleet struct {
	load  recordLoad
	a     *autoscaler.Autoscaler
	names []api.FunctionName
	sent  atomic.Int64 // reports

	mu        sync.Mutex // guards what follows
	seq       uint64
	instances map[api.InstanceID]api.InstanceStatus
	of        map[api.FunctionName]api.InstanceID
}

// work has the busy functions asked for until ctx ends. Every ten seconds two others of them take turns.
func (f *fleet) work(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for k := range f.load.busy {
		all.Go(func() {
			for turn := 0; ctx.Err() == nil; turn++ {
				name := f.names[k]
				if k < 2 && f.load.busy < len(f.names) { // these change places with two that rest
					name = f.names[(k+2*turn)%4*len(f.names)/4]
				}
				f.ask(ctx, name, 10*time.Second)
			}
		})
	}
}

// ask reports demand for a function, as if it had requests for that length of time.
func (f *fleet) ask(ctx context.Context, name api.FunctionName, length time.Duration) {
	end := time.Now().Add(length)
	last, running := time.Time{}, 0
	demand := func() {
		f.sent.Add(1)
		d := api.Demand{Function: name, Activator: "activator-7f9c", Running: running, LastRequest: last, At: time.Now()}
		if !f.awake(name) {
			d.Running, d.Waiting, d.OldestAge = 0, running, time.Since(last)
		}
		f.a.ObserveDemand(d)
	}
	second := 0
	for next := time.Now(); time.Now().Before(end); second++ {
		if !time.Now().Before(next) {
			next = next.Add(f.load.every)
			last, running = time.Now(), running+1
			demand()
		}
		if sleep(ctx, time.Second/2+time.Duration(random()*float64(time.Second)/10)) != nil {
			return
		}
		if running = max(0, running-1); running == 0 {
			running = 1
		}
		demand()
		if second%4 == 0 {
			f.loaded(name)
		}
	}
	running = 0
	demand()
}

func (f *fleet) awake(name api.FunctionName) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.instances[f.of[name]].State == api.Awake
}

// loaded reports a load of a function's instance.
func (f *fleet) loaded(name api.FunctionName) {
	f.mu.Lock()
	s, found := f.instances[f.of[name]]
	f.mu.Unlock()
	if found && s.State == api.Awake {
		s.Load = &api.Load{Running: int(8 * random()), KVUsage: random(), TokensPerSecond: 900 * random(), PromptTokensPerSecond: 9000 * random(), TTFT: time.Duration(random() * float64(time.Second))}
		f.become(s, api.Awake, 0)
	}
}

func (f *fleet) become(s api.InstanceStatus, state api.State, level api.Level) api.InstanceStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seq++
	if s.State != state {
		s.Since = time.Now()
	}
	s.State, s.Level, s.Seq, s.PID = state, level, f.seq, 7
	s.Memory = api.Memory{Host: api.GiB, Devices: 1, PerDevice: 60 * api.GiB}
	if state == api.Asleep {
		s.Memory.PerDevice, s.Load = api.GiB, nil
	}
	f.instances[s.Instance], f.of[s.Function] = s, s.Instance
	f.sent.Add(1)
	f.a.ObserveInstance(s)
	return s
}

// Start is part of [autoscaler.Effects], as are the following methods.
func (f *fleet) Start(_ context.Context, spec api.Function, id api.InstanceID, g api.Grant) (api.InstanceID, error) {
	f.become(api.InstanceStatus{Instance: id, Function: spec.Name, Epoch: g.Epoch, Concurrency: spec.Concurrency, Devices: g.Devices, LoadTime: 20 * time.Second}, api.Awake, 0)
	return id, nil
}

// order does what an order says, where there is the instance.
func (f *fleet) order(id api.InstanceID, epoch uint64, do func(api.InstanceStatus) api.InstanceStatus) (api.InstanceStatus, error) {
	f.mu.Lock()
	s, found := f.instances[id]
	f.mu.Unlock()
	if !found {
		return s, errGone
	}
	s.Epoch = epoch
	return do(s), nil
}

func (f *fleet) Wake(_ context.Context, s api.InstanceStatus, g api.Grant) (api.InstanceStatus, error) {
	return f.order(s.Instance, g.Epoch, func(s api.InstanceStatus) api.InstanceStatus { return f.become(s, api.Awake, 0) })
}

func (f *fleet) Sleep(_ context.Context, s api.InstanceStatus, level api.Level, epoch uint64, _ api.Drain) (api.InstanceStatus, error) {
	return f.order(s.Instance, epoch, func(s api.InstanceStatus) api.InstanceStatus { return f.become(s, api.Asleep, level) })
}

func (f *fleet) Fence(_ context.Context, s api.InstanceStatus, epoch uint64) (api.InstanceStatus, error) {
	return f.order(s.Instance, epoch, func(s api.InstanceStatus) api.InstanceStatus { return f.become(s, s.State, s.Level) })
}

func (f *fleet) State(_ context.Context, s api.InstanceStatus) (api.InstanceStatus, error) {
	return f.order(s.Instance, s.Epoch, func(s api.InstanceStatus) api.InstanceStatus { return s })
}

func (f *fleet) Stop(_ context.Context, s api.InstanceStatus, _ api.Drain) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.instances, s.Instance)
	return nil
}

func (f *fleet) Adapt(context.Context, api.InstanceStatus, []api.Adapter) error { return nil }
func (f *fleet) Grant(context.Context, api.Grant) error                         { return nil }
func (f *fleet) Revoke(context.Context, api.Grant) error                        { return nil }
func (f *fleet) Fail(context.Context, api.FunctionName, *api.Error) error       { return nil }
