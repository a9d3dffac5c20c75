package autoscaler

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// namer is a fleet in which somebody else names instances: the nth is pod-n.
type namer struct {
	*fleet
	early bool // its report comes before the start is over
	dead  bool // it is gone by then
}

func (w *namer) Start(ctx context.Context, spec api.Function, _ api.InstanceID, g api.Grant) (api.InstanceID, error) {
	w.mu.Lock()
	id := api.InstanceID("pod-" + string(rune('1'+len(w.instances))))
	w.mu.Unlock()
	if w.early || w.dead {
		w.a.ObserveInstance(api.InstanceStatus{Instance: id, Function: spec.Name, State: api.Starting, Seq: 1})
		if w.dead {
			w.a.ObserveInstance(api.InstanceStatus{Instance: id, Function: spec.Name, State: api.Gone})
		}
		time.Sleep(10 * time.Millisecond)
		if w.dead {
			return id, nil
		}
	}
	return w.fleet.Start(ctx, spec, id, g)
}

func TestAnInstanceGetsItsOwnName(t *testing.T) {
	for name, early := range map[string]bool{"the start first": false, "its report first": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := world(t, 4*api.GiB, decide.Policy{})
				n := &namer{fleet: w, early: early}
				w.a.calls.fx = n
				w.run(func() {
					w.request(w.add("tiny", api.GiB, nil), 1, time.Second)
					time.Sleep(2 * time.Second) // it loads
					v, _ := w.a.Status("default/tiny")
					if len(v.Instances) != 1 || v.Instances[0].Instance != "pod-1" {
						t.Fatalf("while it starts: got %+v, want pod-1 alone", v.Instances)
					}
					if d := w.a.Devices()[0]; d.Rising != api.GiB || d.Free != 3*api.GiB {
						t.Errorf("got %s rising and %s free, want it counted once", d.Rising, d.Free)
					}
					time.Sleep(3 * time.Second)
					if v, _ := w.a.Status("default/tiny"); len(v.Instances) != 1 || v.Instances[0].State != api.Awake {
						t.Errorf("then: got %+v, want it awake", v.Instances)
					}
					if n := w.count("start"); n != 1 {
						t.Errorf("got %d starts, want 1", n)
					}
					time.Sleep(2 * time.Hour)
				})
				w.wg.Wait()
			})
		})
	}
}

func TestAnInstanceThatDiesBeforeItsNameIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := world(t, 4*api.GiB, decide.Policy{})
		n := &namer{fleet: w, dead: true}
		w.a.calls.fx = n
		w.run(func() {
			w.add("tiny", api.GiB, nil)
			_ = w.a.Sleep(t.Context(), "default/tiny", 0)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_ = w.a.Wake(ctx, "default/tiny")
			if v, _ := w.a.Status("default/tiny"); len(v.Instances) != 0 {
				t.Errorf("got %+v, want none", v.Instances)
			}
		})
		w.wg.Wait()
	})
}

// late is a fleet whose starts fail after a second.
type late struct{ *fleet }

func (late) Start(context.Context, api.Function, api.InstanceID, api.Grant) (api.InstanceID, error) {
	time.Sleep(time.Second)
	return "", errors.New("the revision was deleted")
}

// TestAStartThatFailsAfterItsFunctionWasRemoved: the function is gone once its last start is.
func TestAStartThatFailsAfterItsFunctionWasRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := world(t, 4*api.GiB, decide.Policy{})
		w.a.calls.fx = late{w}
		w.run(func() {
			w.add("tiny", api.GiB, func(f *fakeFunction) { f.spec.MinScale = 1 })
			time.Sleep(500 * time.Millisecond) // its start is on its way
			if v, found := w.a.Status("default/tiny"); !found || len(v.Instances) != 1 {
				t.Fatalf("got %+v, want one that starts", v.Instances)
			}
			w.a.RemoveFunction("default/tiny")
			time.Sleep(time.Second)
			if v, found := w.a.Status("default/tiny"); found {
				t.Errorf("it is still there: %+v", v)
			}
		})
		w.wg.Wait()
	})
}

func TestDevicesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := world(t, 4*api.GiB, decide.Policy{})
		w.run(func() {
			host := inventory.Device{ID: api.HostMemory, Capacity: 4 * api.GiB, Total: 4 * api.GiB}
			gpu := inventory.Device{ID: "node1/gpu-0", Capacity: 8 * api.GiB, Total: 8 * api.GiB}
			w.a.SetDevices([]inventory.Device{host, gpu})
			w.a.ObserveInstance(api.InstanceStatus{Instance: "pod-1", Function: "default/other", State: api.Awake, Seq: 1,
				Memory: api.Memory{Devices: 1, PerDevice: 6 * api.GiB}, Devices: []api.DeviceID{"node1/gpu-0"}})
			free := func() map[api.DeviceID]api.Bytes {
				m := map[api.DeviceID]api.Bytes{}
				for _, l := range w.a.Devices() {
					m[l.ID] = l.Free
				}
				return m
			}
			if f := free(); f["node1/gpu-0"] != 2*api.GiB {
				t.Errorf("got %v, want 2 GiB free", f)
			}
			gpu.ID, gpu.Was = "GPU-aa", "node1/gpu-0"
			w.a.SetDevices([]inventory.Device{host, gpu})
			if f := free(); f["GPU-aa"] != 2*api.GiB || len(f) != 2 {
				t.Errorf("under its own name: got %v, want 2 GiB free", f)
			}
			w.a.SetDevices([]inventory.Device{gpu}) // no host: refused
			w.a.SetDevices([]inventory.Device{host})
			if f := free(); len(f) != 1 || f[api.HostMemory] != 4*api.GiB {
				t.Errorf("without a GPU: got %v", f)
			}
			other := inventory.Device{ID: "GPU-bb", Capacity: 8 * api.GiB, Total: 8 * api.GiB}
			w.a.SetDevices([]inventory.Device{host, gpu, other})
			w.a.ObserveInstance(api.InstanceStatus{Instance: "pod-1", Function: "default/other", State: api.Awake, Seq: 2,
				Memory: api.Memory{Devices: 1, PerDevice: 6 * api.GiB}, Devices: []api.DeviceID{"GPU-bb"}})
			if f := free(); f["GPU-aa"] != 8*api.GiB || f["GPU-bb"] != 2*api.GiB {
				t.Errorf("where it really is: got %v", f)
			}
		})
		w.wg.Wait()
	})
}

func TestRenamedLeavesOthersAlone(t *testing.T) {
	ids := []api.DeviceID{"a", "b", "a"}
	got := renamed(ids, map[api.DeviceID]api.DeviceID{"a": "c"})
	if !slices.Equal(got, []api.DeviceID{"c", "b", "c"}) || ids[0] != "a" {
		t.Errorf("got %v from %v", got, ids)
	}
	if got := renamed(ids, nil); &got[0] != &ids[0] {
		t.Error("nothing to rename: want the same list")
	}
}
