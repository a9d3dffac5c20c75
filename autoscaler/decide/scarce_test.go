package decide

import (
	"fmt"
	"math/rand/v2"
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

// TestNeighbours compares what a plan keeps of all functions with what is said of them one by one, on one machine.
func TestNeighbours(t *testing.T) {
	now, r := time.Unix(1e9, 0), rand.New(rand.NewPCG(1, 2))
	contested, kept := 0, 0
	for range 300 {
		s := Snapshot{Topology: gpus(2, api.Bytes(60+r.IntN(200))*api.GiB)}
		for k := range 2 + r.IntN(6) {
			gib := func(n int) api.Bytes { return api.Bytes(r.IntN(n)) * api.GiB }
			f := &Function{Undeclared: r.IntN(8) == 0, Running: r.IntN(2) * r.IntN(2), LastRequest: now.Add(-time.Duration(r.IntN(4)) * time.Minute)}
			f.Need = api.Memory{Host: gib(60), Devices: min(1, r.IntN(5)), PerDevice: gib(100)}
			f.Spec = api.Function{Name: api.NewFunctionName("default", fmt.Sprint(k))}.WithDefaults()
			f.Past.Starts = r.IntN(3)
			f.Past.Asleep[api.Level1] = api.Memory{Host: gib(50), Devices: 1, PerDevice: gib(30)}
			f.Past.Asleep[api.Level2] = api.Memory{Host: gib(8)}
			for range r.IntN(3) {
				f.Add(&Instance{Status: api.InstanceStatus{Instance: api.InstanceID(fmt.Sprintf("%d-%d", k, len(f.Instances))), Function: f.Spec.Name, State: api.Asleep, Level: api.Level1,
					Devices: []api.DeviceID{api.DeviceID(fmt.Sprintf("gpu-%d", r.IntN(2)))}}})
			}
			s.Functions = append(s.Functions, f)
		}
		p := newPlan(&s, now)
		for _, f := range p.fs {
			for _, i := range f.instances {
				if f.Undeclared {
					continue
				}
				if _, yes := p.contested(i); yes != contestedAlone(p, i) {
					t.Fatalf("%s is contested: %v, by all functions %v", i.Status.Instance, yes, !yes)
				} else if yes {
					contested++
				}
				if yes := p.keepsWeights(i); yes != keepsWeightsAlone(p, i) {
					t.Fatalf("%s keeps its weights: %v, by all functions %v", i.Status.Instance, yes, !yes)
				} else if yes {
					kept++
				}
			}
		}
	}
	if contested == 0 || kept == 0 {
		t.Fatalf("%d contested, %d keep their weights", contested, kept)
	}
}

func contestedAlone(p *plan, i *instance) bool {
	for _, d := range i.at[1:] {
		var all, most, of api.Bytes
		for _, g := range p.fs {
			if g.Undeclared || g.Need.Devices == 0 {
				continue
			}
			keeps := g.Past.Asleep[api.Level1].PerDevice
			all += keeps
			if need := p.claim(d, whole(g.Need)); g != i.f && need > most && need <= p.facts[d].capacity {
				most, of = need, keeps
			}
		}
		if most > 0 && all-of+most > p.facts[d].capacity {
			return true
		}
	}
	return false
}

func keepsWeightsAlone(p *plan, i *instance) bool {
	if i.f.Past.Asleep[api.Level1].Host == 0 {
		return true
	}
	left := p.facts[i.at[0]].capacity
	until, _ := p.untilRequest(i.f)
	var most, rest api.Bytes
	for _, g := range p.fs {
		if g.Undeclared {
			continue
		}
		if other, _ := p.untilRequest(g); g.Past.Starts > 0 && (other < until || other == until && g.Spec.Name <= i.f.Spec.Name) {
			left -= max(g.Need.Host, g.Past.Asleep[api.Level1].Host)
		} else {
			grows := max(0, g.Need.Host-g.Past.Asleep[api.Level2].Host)
			left, most, rest = left-g.Past.Asleep[api.Level2].Host, max(most, grows), rest+grows
		}
	}
	return left >= min(rest, most*api.Bytes(len(p.nodes[i.node].gpus)))
}

// TestNeighboursOfOtherNodes: a device is contested by what sleeps on its node, and by a node's part of what sleeps nowhere.
func TestNeighboursOfOtherNodes(t *testing.T) {
	now := time.Unix(1e9, 0)
	for name, c := range map[string]struct {
		at   []string // the nodes of the functions after the first, which is on m; empty: nowhere
		want bool
	}{
		"all on its node":          {[]string{"m", "m"}, true},
		"on the other node":        {[]string{"n", "n"}, false},
		"one on each":              {[]string{"m", "n"}, false},
		"one here, others nowhere": {[]string{"m", "", ""}, true},
		"nowhere":                  {[]string{"", ""}, false},
	} {
		var devices []inventory.Device
		for _, node := range []string{"m", "n"} {
			devices = append(devices, inventory.Device{ID: api.DeviceID(node + "/host"), Node: node, Capacity: api.TiB, Total: api.TiB},
				inventory.Device{ID: api.DeviceID(node + "/gpu"), Node: node, Capacity: 80 * api.GiB, Total: 80 * api.GiB})
		}
		s := Snapshot{Topology: NewTopology(devices)}
		for k, node := range append([]string{"m"}, c.at...) {
			f := &Function{Need: api.Memory{Host: 30 * api.GiB, Devices: 1, PerDevice: 50 * api.GiB}}
			f.Spec = api.Function{Name: api.NewFunctionName("default", fmt.Sprint(k))}.WithDefaults()
			f.Past.Asleep[api.Level1] = api.Memory{Host: 30 * api.GiB, Devices: 1, PerDevice: 16 * api.GiB}
			if node != "" {
				f.Add(&Instance{Status: api.InstanceStatus{Instance: api.InstanceID(fmt.Sprint(k)), Function: f.Spec.Name, Node: node, State: api.Asleep, Level: api.Level1,
					Devices: []api.DeviceID{api.DeviceID(node + "/gpu")}}})
			}
			s.Functions = append(s.Functions, f)
		}
		p := newPlan(&s, now)
		if _, got := p.contested(p.fs[0].instances[0]); got != c.want {
			t.Errorf("%s: contested is %v, want %v", name, got, c.want)
		}
	}
}
