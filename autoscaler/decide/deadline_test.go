package decide

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// TestRetriesAreSeenByOthers checks that a world looks at whoever waits for an instance of another
// function once that may be called again, though nothing was put.
func TestRetriesAreSeenByOthers(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	retry := now.Add(3 * time.Second)
	function := func(name string, used time.Duration) Function {
		f := Function{Spec: api.Function{Name: api.NewFunctionName("", name), Memory: api.Memory{Host: 2 * api.GiB}}.WithDefaults(), LastRequest: now.Add(-used)}
		f.Need, f.Certain = f.Spec.Memory, true
		return f
	}
	instance := func(f *Function, state api.State) Instance {
		i := Instance{Since: now.Add(-time.Hour), From: inventory.Stopped, Status: api.InstanceStatus{
			Instance: api.InstanceID(f.Spec.Name.Name() + "-1"), Function: f.Spec.Name, State: state, Memory: api.Memory{Host: 2 * api.GiB}}}
		if state == api.Asleep {
			i.Status.Level, i.Status.Memory.Host = api.Level1, api.GiB/8
		}
		return i
	}
	a, b := function("a", time.Hour), function("b", time.Minute)
	for _, c := range []struct {
		name string
		want Kind
		make func() (Snapshot, api.FunctionName)
	}{
		{"a grant is taken back for one that is likelier to be wanted", Revoke, func() (Snapshot, api.FunctionName) {
			held, wants := instance(&a, api.Asleep), instance(&b, api.Asleep)
			held.Grant, held.RetryAt = api.Grant{Instance: held.Status.Instance, Epoch: 1, Expires: now.Add(time.Hour)}, retry
			return Snapshot{Devices: []inventory.Device{{ID: api.HostMemory, Capacity: 3 * api.GiB}}, Functions: []Function{a, b}, Instances: []Instance{held, wants}}, a.Spec.Name
		}},
		{"who is idle sleeps where more is in use than there is", Sleep, func() (Snapshot, api.FunctionName) {
			idle, busy := instance(&a, api.Awake), instance(&b, api.Awake)
			idle.RetryAt = retry
			b := b
			b.Running, b.Load.Awake = 1, 1
			return Snapshot{Devices: []inventory.Device{{ID: api.HostMemory, Capacity: 3 * api.GiB}}, Functions: []Function{a, b}, Instances: []Instance{idle, busy}}, a.Spec.Name
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, who := c.make()
			w := NewWorld(s.Policy, s.Devices)
			for k, f := range s.Functions {
				f.Instances = pointers(s.Instances[k : k+1])
				w.Put(&f)
			}
			for range 3 { // until it is at rest
				if actions, next := w.Plan(now); len(actions) > 0 || !next.Equal(retry) {
					t.Fatalf("want a look at %s and no action before: %v, %s", retry, actions, next)
				}
			}
			whole, _ := Plan(s, retry)
			if len(whole) != 1 || whole[0].Kind != c.want || whole[0].Function != who {
				t.Fatalf("want a %s of %s: %v", c.want, who, whole)
			}
			if got, _ := w.Plan(retry); cmp.Diff(whole, got) != "" {
				t.Errorf("the world plans something else (-whole +world):\n%s", cmp.Diff(whole, got))
			}
		})
	}
}
