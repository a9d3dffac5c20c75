package decide

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// TestOrderToSuspend: an order to suspend is followed where the host has memory for what is on the GPU, and where that is known and no try has failed. Else
// the instance sleeps as usual.
func TestOrderToSuspend(t *testing.T) {
	now := time.Unix(1e9, 0)
	for name, c := range map[string]struct {
		host api.Bytes
		edit func(f *Function, i *Instance)
		want api.Level // LevelAwake: nothing is done
	}{
		"awake, not measured yet": {64 * api.GiB, func(*Function, *Instance) {}, api.Level1},
		"awake, measured":         {64 * api.GiB, measured, api.Suspended},
		"asleep":                  {64 * api.GiB, asleep, api.Suspended},
		"asleep, no host memory":  {31 * api.GiB, asleep, api.LevelAwake},
		"asleep, a try failed": {64 * api.GiB, func(f *Function, i *Instance) {
			asleep(f, i)
			i.Status.NoSuspend = "managed memory"
		}, api.LevelAwake},
	} {
		f := &Function{Order: OrderSleep, OrderLevel: api.Suspended, Need: api.Memory{Host: 30 * api.GiB, Devices: 1, PerDevice: 40 * api.GiB}}
		f.Spec = api.Function{Name: "default/a"}.WithDefaults()
		i := &Instance{Status: api.InstanceStatus{Instance: "a-1", Function: "default/a", State: api.Awake, Devices: []api.DeviceID{"gpu-0"}, Memory: f.Need}}
		c.edit(f, i)
		f.Add(i)
		s := Snapshot{Functions: []*Function{f}, Topology: NewTopology([]inventory.Device{
			{ID: api.HostMemory, Capacity: c.host, Total: c.host}, {ID: "gpu-0", Capacity: 80 * api.GiB, Total: 80 * api.GiB}})}
		actions, _ := Plan(s, now)
		got := api.LevelAwake
		for _, a := range actions {
			if a.Kind == Sleep {
				got = a.Level
			}
		}
		if got != c.want {
			t.Errorf("%s: put to sleep at level %d, want %d: %v", name, got, c.want, actions)
		}
	}
}

func measured(f *Function, _ *Instance) {
	f.Past.Asleep[api.Level1] = api.Memory{Host: 30 * api.GiB, Devices: 1, PerDevice: 2 * api.GiB}
}

func asleep(f *Function, i *Instance) {
	measured(f, i)
	i.Status.State, i.Status.Level, i.Status.Memory = api.Asleep, api.Level1, f.Past.Asleep[api.Level1]
}

// TestTryOfSleeper: a sleeper is suspended for the first time while a request waits for another function, and not while one for its own is likely.
func TestTryOfSleeper(t *testing.T) {
	now := time.Unix(1e9, 0)
	for name, c := range map[string]struct {
		edit func(f *Function, i *Instance)
		want bool
	}{
		"contested":            {func(*Function, *Instance) {}, true},
		"a try failed":         {func(_ *Function, i *Instance) { i.Status.NoSuspend = "managed memory" }, false},
		"not allowed":          {func(f *Function, _ *Instance) { f.Spec.Suspend = api.SuspendOff }, false},
		"a request waits":      {func(f *Function, _ *Instance) { f.Waiting, f.WaitingSince = 1, now }, false},
		"a request is likely":  {func(f *Function, _ *Instance) { f.Past = often(f.Past, now) }, false},
		"little is kept there": {func(f *Function, i *Instance) { keep(f, i, api.GiB) }, false},
	} {
		f, g := &Function{Need: api.Memory{Host: 30 * api.GiB, Devices: 1, PerDevice: 40 * api.GiB}, LastRequest: now.Add(-time.Second)}, &Function{Need: api.Memory{Host: 30 * api.GiB, Devices: 1, PerDevice: 72 * api.GiB}, Waiting: 1, WaitingSince: now}
		f.Spec, g.Spec = api.Function{Name: "default/a"}.WithDefaults(), api.Function{Name: "default/b"}.WithDefaults()
		i := &Instance{Status: api.InstanceStatus{Instance: "a-1", Function: "default/a", State: api.Asleep, Level: api.Level1, Devices: []api.DeviceID{"gpu-0"}}}
		keep(f, i, 10*api.GiB)
		c.edit(f, i)
		f.Add(i)
		g.Add(&Instance{Doing: DoingStart, Since: now, Status: api.InstanceStatus{Instance: "b-1", Function: "default/b", State: api.Starting, Devices: []api.DeviceID{"gpu-1"}}})
		actions, _ := Plan(Snapshot{Functions: []*Function{f, g}, Topology: gpus(2, api.TiB)}, now)
		got := slices.ContainsFunc(actions, func(a Action) bool { return a.Kind == Sleep && a.Level == api.Suspended && a.Rehearsal })
		if got != c.want {
			t.Errorf("%s: tried is %v, want %v: %v", name, got, c.want, actions)
		}
	}
}

// TestSpareSleeperGoesFirst: of two sleepers of a function that never needed both, one gives way before the sleeper of a function that was used longer ago.
func TestSpareSleeperGoesFirst(t *testing.T) {
	now := time.Unix(1e9, 0)
	for name, c := range map[string]struct {
		needed []time.Time // see [Function.NeededAt]
		want   api.InstanceID
	}{
		"never both":       {[]time.Time{now.Add(-time.Minute)}, "a-2"},
		"both an hour ago": {[]time.Time{now.Add(-time.Minute), now.Add(-time.Hour)}, "a-2"},
		"both just now":    {[]time.Time{now.Add(-time.Minute), now.Add(-time.Minute)}, "b-1"},
	} {
		s := Snapshot{Topology: gpus(0, 100*api.GiB)}
		for _, n := range []api.ModelName{"a", "b", "c"} {
			f := &Function{Need: api.Memory{Host: 40 * api.GiB}, LastRequest: now.Add(-10 * time.Minute)}
			f.Spec = api.Function{Name: api.NewFunctionName("default", string(n)), MaxScale: 2}.WithDefaults()
			f.NeededAt = []time.Time{f.LastRequest}
			s.Functions = append(s.Functions, f)
		}
		s.Functions[0].LastRequest, s.Functions[0].NeededAt = c.needed[0], c.needed
		s.Functions[2].Waiting, s.Functions[2].WaitingSince = 1, now
		for k, id := range []api.InstanceID{"a-1", "a-2", "b-1"} {
			f := s.Functions[k/2]
			f.Past.Asleep[api.Level2] = api.Memory{Host: 30 * api.GiB}
			f.Add(&Instance{Since: f.LastRequest, Status: api.InstanceStatus{Instance: id, Function: f.Spec.Name, State: api.Asleep, Level: api.Level2, Memory: f.Past.Asleep[api.Level2]}})
		}
		actions, _ := Plan(s, now)
		var got []api.InstanceID
		for _, a := range actions {
			if a.Kind == Stop {
				got = append(got, a.Instance)
			}
		}
		if !slices.Equal(got, []api.InstanceID{c.want}) {
			t.Errorf("%s: stops %v, want %s: %v", name, got, c.want, actions)
		}
	}
}

// TestKeepsWeights: of three functions with 40 GiB of weights each, one keeps them in a host of 90 GiB beside another one awake: that with the next request.
func TestKeepsWeights(t *testing.T) {
	now := time.Unix(1e9, 0)
	for name, c := range map[string]struct {
		idle [3]time.Duration // 0: busy
		host api.Bytes
		gpus int
		want string
	}{
		"by idle time":                {[3]time.Duration{time.Second, time.Minute, time.Hour}, 90 * api.GiB, 1, "a"},
		"in another order":            {[3]time.Duration{time.Hour, time.Minute, time.Second}, 90 * api.GiB, 1, "c"},
		"the busy one":                {[3]time.Duration{time.Second, 0, time.Hour}, 90 * api.GiB, 1, "b"},
		"two awake beside it":         {[3]time.Duration{time.Second, time.Minute, time.Hour}, 90 * api.GiB, 2, ""},
		"all of them, nothing beside": {[3]time.Duration{time.Second, time.Minute, time.Hour}, 120 * api.GiB, 2, "abc"},
	} {
		s := Snapshot{Topology: gpus(c.gpus, c.host)}
		for k, n := range []string{"a", "b", "c"} {
			f := &Function{Need: api.Memory{Host: 40 * api.GiB, Devices: 1, PerDevice: 70 * api.GiB}, LastRequest: now.Add(-c.idle[k])}
			f.Spec = api.Function{Name: api.NewFunctionName("default", n)}.WithDefaults()
			f.Past.Starts, f.Past.Asleep[api.Level1], f.Past.Asleep[api.Level2] = 1, api.Memory{Host: 40 * api.GiB}, api.Memory{Host: 4 * api.GiB}
			if c.idle[k] == 0 {
				f.Running = 1
			}
			f.Add(&Instance{Status: api.InstanceStatus{Instance: api.InstanceID(n), Function: f.Spec.Name, State: api.Asleep, Level: api.Level1, Devices: []api.DeviceID{"gpu-0"}}})
			s.Functions = append(s.Functions, f)
		}
		p, got := newPlan(&s, now), ""
		for _, f := range p.fs {
			if p.keepsWeights(f.instances[0]) {
				got += f.Spec.Name.Name()
			}
		}
		if got != c.want {
			t.Errorf("%s: %q keep their weights, want %q", name, got, c.want)
		}
	}
}

// gpus is a machine with n GPUs of 80 GiB.
func gpus(n int, host api.Bytes) *Topology {
	devices := []inventory.Device{{ID: api.HostMemory, Capacity: host, Total: host}}
	for k := range n {
		devices = append(devices, inventory.Device{ID: api.DeviceID(fmt.Sprintf("gpu-%d", k)), Capacity: 80 * api.GiB, Total: 80 * api.GiB})
	}
	return NewTopology(devices)
}

// keep sets what f's sleeper i has on its GPU.
func keep(f *Function, i *Instance, n api.Bytes) {
	f.Past.Asleep[api.Level1] = api.Memory{Host: 30 * api.GiB, Devices: 1, PerDevice: n}
	i.Status.Memory = f.Past.Asleep[api.Level1]
}

// often returns e with requests every three seconds.
func often(e inventory.Experience, now time.Time) inventory.Experience {
	for k := range 20 {
		e = e.Arrived(3*time.Second, now.Add(time.Duration(k-20)*3*time.Second))
	}
	return e
}
