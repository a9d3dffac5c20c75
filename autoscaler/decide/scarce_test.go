package decide

import (
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
