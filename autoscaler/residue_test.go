package autoscaler

import (
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// TestASleeperThatIsNotMeasured: it is taken to keep what one of its function was measured to keep last, also one that is
// new here, and what is assumed where none was.
func TestASleeperThatIsNotMeasured(t *testing.T) {
	inWorld(t, 200*api.GiB, func(w *fleet) {
		asleep := func(id api.InstanceID, f api.FunctionName, seq uint64, perDevice api.Bytes) {
			w.a.ObserveInstance(api.InstanceStatus{Instance: id, Function: f, State: api.Asleep, Level: api.Level1, PID: 7, Seq: seq,
				Devices: []api.DeviceID{"gpu0"}, Memory: api.Memory{Host: api.Bytes(seq) * api.GiB, Devices: 1, PerDevice: perDevice}})
			pass(time.Second)
		}
		asleep("big-1", "default/big", 1, 0)
		asleep("big-1", "default/big", 2, 40*api.GiB)
		asleep("big-1", "default/big", 3, 0)
		asleep("big-2", "default/big", 1, 0)
		asleep("small-1", "default/small", 1, 0)
		got := make(map[api.InstanceID]api.Bytes)
		done := make(chan struct{})
		w.a.box.post(func() {
			for id, i := range w.a.instances {
				got[id] = i.Status.Memory.PerDevice
			}
			close(done)
		})
		<-done
		if got["big-1"] != 40*api.GiB || got["big-2"] != 40*api.GiB || got["small-1"] != api.GiB {
			t.Errorf("they count %v; want 40 GiB each where that was measured, and 1 GiB assumed", got)
		}
	})
}
