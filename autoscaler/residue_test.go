package autoscaler

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// sleeper returns the status of a test's instance.
func sleeper(id api.InstanceID, seq uint64, perDevice api.Bytes) api.InstanceStatus {
	name, _, _ := strings.Cut(string(id), "-")
	return api.InstanceStatus{Instance: id, Function: api.NewFunctionName("", name), State: api.Asleep, Level: api.Level1, PID: 7, Seq: seq,
		Devices: []api.DeviceID{"gpu0"}, Memory: api.Memory{Host: api.Bytes(seq) * api.GiB, Devices: 1, PerDevice: perDevice}}
}

// counted returns the ledger's memory of each instance's GPU.
func (w *fleet) counted() map[api.InstanceID]api.Bytes {
	w.t.Helper()
	got, err := ask(w.t.Context(), w.a, func() map[api.InstanceID]api.Bytes {
		m := make(map[api.InstanceID]api.Bytes)
		for id, i := range w.a.instances {
			m[id] = i.Status.Memory.PerDevice
		}
		return m
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

// TestASleeperThatIsNotMeasured: it is taken to keep what one of its function was measured to keep last, also one that is
// new here, and what is assumed where none was.
func TestASleeperThatIsNotMeasured(t *testing.T) {
	inWorld(t, 200*api.GiB, func(w *fleet) {
		asleep := func(id api.InstanceID, seq uint64, perDevice api.Bytes) {
			w.a.ObserveInstance(sleeper(id, seq, perDevice))
			pass(time.Second)
		}
		asleep("big-1", 1, 0)
		asleep("big-1", 2, 40*api.GiB)
		asleep("big-1", 3, 0)
		asleep("big-2", 1, 0)
		asleep("small-1", 1, 0)
		if got := w.counted(); got["big-1"] != 40*api.GiB || got["big-2"] != 40*api.GiB || got["small-1"] != api.GiB {
			t.Errorf("they count %v; want 40 GiB each where that was measured, and 1 GiB assumed", got)
		}
	})
}

// oneGPU gives the fleet a GPU of 80 GiB.
func (w *fleet) oneGPU() {
	w.a.SetDevices([]inventory.Device{{ID: api.HostMemory, Capacity: 200 * api.GiB},
		{ID: "gpu0", Total: 80 * api.GiB, Capacity: 80*api.GiB - 256*api.MiB}})
}

// with declares the function of an instance that needs 60 GiB awake, and has the instance say s.
func (w *fleet) with(s api.InstanceStatus) {
	spec := api.Function{Name: s.Function, Memory: api.Memory{Devices: 1, PerDevice: 60 * api.GiB}}.WithDefaults()
	f := &fakeFunction{spec: spec, grants: map[api.InstanceID]api.Grant{}}
	w.mu.Lock()
	w.functions[spec.Name], w.instances[s.Instance] = f, &fakeInstance{f: f, s: s}
	w.mu.Unlock()
	w.a.PutFunction(spec)
	w.a.ObserveInstance(s)
}

// TestNoMeasurement: what can't be is not believed.
func TestNoMeasurement(t *testing.T) {
	for name, held := range map[string]api.Bytes{"below nothing": -api.GiB, "more than there is": 81 * api.GiB, "beyond numbers": 1<<63 - 1} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 200*api.GiB, func(w *fleet) {
				w.oneGPU()
				w.a.ObserveInstance(sleeper("a-1", 1, held))
				s := sleeper("b-1", 1, 0)
				s.State = api.Draining
				w.a.ObserveInstance(s)
				s.State, s.Seq, s.DeviceUse = api.Asleep, 2, held
				w.a.ObserveInstance(s)
				if got := w.counted(); got["a-1"] != api.GiB || got["b-1"] != api.GiB {
					t.Errorf("they count %v, want what is assumed", got)
				}
			})
		})
	}
}

// TestARuntimeTellsOfTheWholeGPU: what others hold of it is not the sleeper's, and where it is not known what they hold,
// nothing follows.
func TestARuntimeTellsOfTheWholeGPU(t *testing.T) {
	inWorld(t, 200*api.GiB, func(w *fleet) {
		w.oneGPU()
		seq := uint64(0)
		fall := func(id api.InstanceID, use api.Bytes) {
			for _, state := range []api.State{api.Awake, api.Draining, api.Asleep, api.Asleep} { // the last one has measured the host
				seq++
				s := sleeper(id, seq, 0)
				s.State, s.Memory.Host = state, api.GiB+api.Bytes(seq/4)
				if state == api.Asleep {
					s.DeviceUse = use
				} else {
					s.Level = api.LevelAwake
				}
				w.a.ObserveInstance(s)
			}
		}
		want := func(what string, want map[api.InstanceID]api.Bytes) {
			t.Helper()
			if got := w.counted(); !maps.Equal(got, want) {
				t.Errorf("%s: they count %v, want %v", what, got, want)
			}
		}
		fall("a-1", 40*api.GiB)
		want("alone", map[api.InstanceID]api.Bytes{"a-1": 40 * api.GiB})
		fall("b-1", 42*api.GiB)
		want("beside a sleeper", map[api.InstanceID]api.Bytes{"a-1": 40 * api.GiB, "b-1": 2 * api.GiB})
		s := sleeper("c-1", 1, 0)
		s.State, s.Level = api.Awake, api.LevelAwake
		w.a.ObserveInstance(s)
		fall("d-1", 60*api.GiB)
		want("beside one that is awake", map[api.InstanceID]api.Bytes{"a-1": 40 * api.GiB, "b-1": 2 * api.GiB, "c-1": 0, "d-1": api.GiB})
	})
}

// TestASleeperThatIsBeingMeasured: where nothing is known of its function it is taken to have freed nothing, until it
// says what it keeps, or that it can't.
func TestASleeperThatIsBeingMeasured(t *testing.T) {
	for name, tt := range map[string]struct{ says, want api.Bytes }{"it is": {40 * api.GiB, 40 * api.GiB}, "it can't be": {0, api.GiB}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 200*api.GiB, func(w *fleet) {
				w.oneGPU()
				s := sleeper("a-1", 1, 0)
				s.Measuring = true
				w.with(s)
				if got := w.counted()["a-1"]; got != 60*api.GiB {
					t.Errorf("at first it counts %s, want what it has awake", got)
				}
				w.a.ObserveInstance(sleeper("a-1", 2, tt.says))
				if got := w.counted()["a-1"]; got != tt.want {
					t.Errorf("then it counts %s, want %s", got, tt.want)
				}
			})
		})
	}
}

// TestAStartThatFindsNoRoom: the sleepers beside it of which it is only assumed what they keep end, and nobody else does;
// and nobody for another failure.
func TestAStartThatFindsNoRoom(t *testing.T) {
	for name, noRoom := range map[string]bool{"no room": true, "another failure": false} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 200*api.GiB, func(w *fleet) {
				w.oneGPU()
				s := sleeper("c-1", 1, 0)
				s.State, s.Level, s.Memory = api.Starting, api.LevelAwake, api.Memory{}
				w.with(s) // so that nobody is given the memory to wake
				w.with(sleeper("a-1", 1, 0))
				w.with(sleeper("b-1", 1, 2*api.GiB))
				pass(time.Second)
				s.State, s.Seq, s.NoRoom, s.Message = api.Unhealthy, 2, noRoom, "CUDA out of memory"
				w.a.ObserveInstance(s)
				pass(100 * time.Millisecond)
				if a, b := w.count("stop a-1"), w.count("stop b-1"); a != map[bool]int{true: 1}[noRoom] || b != 0 {
					t.Errorf("stopped %d times what was assumed and %d times what was measured:\n%s", a, b, w.transcript())
				}
			})
		})
	}
}
