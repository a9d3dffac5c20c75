package decide

import (
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// TestRetriesAreSeenByOthers checks that a request that waits for an instance of another function is served once that
// instance may be called again, and that plans say when.
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
		make func() (records, api.FunctionName)
	}{
		{"a grant is taken back for one that is likelier to be wanted", Revoke, func() (records, api.FunctionName) {
			held, wants := instance(&a, api.Asleep), instance(&b, api.Asleep)
			held.Grant, held.RetryAt = api.Grant{Instance: held.Status.Instance, Epoch: 1, Expires: now.Add(time.Hour)}, retry
			return records{Devices: []inventory.Device{{ID: api.HostMemory, Capacity: 3 * api.GiB}}, Functions: []Function{a, b}, Instances: []Instance{held, wants}}, a.Spec.Name
		}},
		{"who is idle sleeps where more is in use than there is", Sleep, func() (records, api.FunctionName) {
			idle, busy := instance(&a, api.Awake), instance(&b, api.Awake)
			idle.RetryAt = retry
			b := b
			b.Running, b.Load.Awake = 1, 1
			return records{Devices: []inventory.Device{{ID: api.HostMemory, Capacity: 3 * api.GiB}}, Functions: []Function{a, b}, Instances: []Instance{idle, busy}}, a.Spec.Name
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, who := c.make()
			if actions, next := s.plan(now); len(actions) > 0 || !next.Equal(retry) {
				t.Fatalf("want a look at %s and no action before: %v, %s", retry, actions, next)
			}
			if got, _ := s.plan(retry); len(got) != 1 || got[0].Kind != c.want || got[0].Function != who {
				t.Fatalf("want a %s of %s: %v", c.want, who, got)
			}
		})
	}
}
