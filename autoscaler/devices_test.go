package autoscaler

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// gpuWorld is a fleet with a GPU of 24 GiB, 20 GiB of which an awake instance of m has.
func gpuWorld(t *testing.T) (w *fleet, devices []inventory.Device, i *fakeInstance) {
	w = world(t, 8*api.GiB, decide.Policy{})
	devices = []inventory.Device{
		{ID: api.HostMemory, Capacity: 8 * api.GiB},
		{ID: "GPU-1", Name: "L4", Total: 24*api.GiB + 256*api.MiB, Capacity: 24 * api.GiB},
		{ID: "GPU-2", Name: "L4", Total: 24*api.GiB + 256*api.MiB, Capacity: 24 * api.GiB},
	}
	w.a.SetDevices(devices)
	spec := api.Function{Name: "default/m", Memory: api.Memory{Host: api.GiB, Devices: 1, PerDevice: 20 * api.GiB}}.WithDefaults()
	f := &fakeFunction{spec: spec, grants: map[api.InstanceID]api.Grant{}}
	w.functions[spec.Name] = f
	i = &fakeInstance{f: f, s: api.InstanceStatus{Instance: "m-0001", Function: spec.Name, State: api.Awake, Seq: 1, Devices: []api.DeviceID{"GPU-1"}}}
	w.instances["m-0001"] = i
	w.a.PutFunction(spec)
	w.a.ObserveInstance(i.s)
	return w, devices, i
}

func (w *fleet) others() map[api.DeviceID]api.Bytes {
	got, err := ask(w.t.Context(), w.a, func() map[api.DeviceID]api.Bytes {
		m := map[api.DeviceID]api.Bytes{}
		for _, d := range w.a.topology.Devices() {
			m[d.ID] = d.Others
		}
		return m
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

func TestWhatOthersUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, devices, _ := gpuWorld(t)
		w.run(func() {
			synctest.Wait()
			see := func(what string, one, two api.Bytes, want1, want2 api.Bytes) {
				t.Helper()
				w.a.ObserveUsage([]inventory.Usage{{ID: "GPU-1", Used: one}, {ID: "GPU-2", Used: two}, {ID: "GPU-unknown", Used: api.GiB}})
				if got := w.others(); got["GPU-1"] != want1 || got["GPU-2"] != want2 || got[api.HostMemory] != 0 {
					t.Errorf("%s: others use %v, want %s and %s", what, got, want1, want2)
				}
			}
			see("only the instance", 21*api.GiB, 10*api.MiB, 0, 0)
			see("somebody on the other", 21*api.GiB, 6*api.GiB, 0, 6*api.GiB)
			see("a little more", 21*api.GiB, 6*api.GiB+100*api.MiB, 0, 6*api.GiB)
			w.a.SetDevices(devices[:2])
			w.a.SetDevices(devices)
			if got := w.others(); got["GPU-2"] != 0 {
				t.Errorf("a GPU that came back: others use %v, want that nothing is known", got)
			}
			see("both", 24*api.GiB, 4*api.GiB, 2*api.GiB, 4*api.GiB)
			w.a.SetDevices(devices)
			if got := w.others(); got["GPU-1"] != 2*api.GiB {
				t.Errorf("a new list of the same devices: others use %v, want what was measured", got)
			}
			see("they left", 20*api.GiB, 0, 0, 0)
		})
	})
}

func TestAGPUVanishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, devices, i := gpuWorld(t)
		w.run(func() {
			synctest.Wait()
			w.a.SetDevices([]inventory.Device{devices[0], devices[2]})
			time.Sleep(time.Second)
			w.mu.Lock()
			calls := slices.Clone(w.calls)
			w.mu.Unlock()
			if !slices.ContainsFunc(calls, func(c string) bool { return strings.HasSuffix(c, " stop m-0001") }) {
				t.Errorf("calls %q, want that %s is stopped", calls, i.s.Instance)
			}
			why := w.a.Why("default/m")
			if !slices.ContainsFunc(why, func(d api.Decision) bool {
				return d.Action == "stop" && strings.Contains(d.Reason, "it is lost: its GPU GPU-1 (L4) is no longer there")
			}) {
				t.Errorf("decisions %+v; want a stop that names the GPU", why)
			}
		})
	})
}

// TestNewsOfDevicesForgivesFailures: failed starts are forgotten where a device comes or goes, but not where one gets
// another name, nor where no device would help.
func TestNewsOfDevicesForgivesFailures(t *testing.T) {
	for name, tc := range map[string]struct {
		hopeless bool
		change   func([]inventory.Device) []inventory.Device
		failures int
	}{
		"one goes": {false, func(d []inventory.Device) []inventory.Device { return d[:2] }, 0},
		"one comes": {false, func(d []inventory.Device) []inventory.Device {
			return append(d, inventory.Device{ID: "GPU-3", Capacity: 1})
		}, 0},
		"one gets its name": {false, func(d []inventory.Device) []inventory.Device { d[2].ID, d[2].Was = "GPU-two", "GPU-2"; return d }, 2},
		"another order":     {false, func(d []inventory.Device) []inventory.Device { d[1], d[2] = d[2], d[1]; return d }, 2},
		"a node comes": {false, func(d []inventory.Device) []inventory.Device {
			return append(d, inventory.Device{ID: "n2/host", Node: "n2", Capacity: 1})
		}, 2},
		"no news":     {false, func(d []inventory.Device) []inventory.Device { return d }, 2},
		"a bad model": {true, func(d []inventory.Device) []inventory.Device { return d[:2] }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, devices, _ := gpuWorld(t)
				w.run(func() {
					synctest.Wait()
					w.a.do(func() {
						f := w.a.functions["default/m"]
						f.Failures, f.Hopeless, f.FailedOn = 2, tc.hopeless, []api.DeviceID{"GPU-1"}
					})
					w.a.SetDevices(tc.change(slices.Clone(devices)))
					synctest.Wait()
					if v, _ := w.a.Status("default/m"); v.Failures != tc.failures {
						t.Errorf("%d failures are on record, want %d", v.Failures, tc.failures)
					}
				})
			})
		})
	}
}

// TestGPUSeconds: what instances held, and what nobody did, is the time of the GPUs, shared by what activators say.
func TestGPUSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, i := gpuWorld(t)
		w.run(func() { gpuSeconds(t, w, i.s.Instance) })
	})
}

func gpuSeconds(t *testing.T, w *fleet, id api.InstanceID) {
	r := prometheus.NewRegistry()
	w.a.metrics.register(r)
	use := api.Use{Begun: time.Now(), Tenant: "acme", Requests: 1, Input: 10, Output: 5, GPUSeconds: 20}
	if err := w.a.Receive(api.NewEvent(api.EventUsage, "/activator/one", "default/m", api.Usage{Function: "default/m", Activator: "one", Uses: []api.Use{use}})); err != nil {
		t.Fatal(err)
	}
	pass(10 * time.Minute)
	all, acme := 0.0, 0.0
	u := w.a.Usage(admin.UsageQuery{})
	for _, row := range u.Rows {
		all += row.GPUSeconds
		if row.Tenant == "acme" {
			acme += row.GPUSeconds
		}
	}
	if want := 2 * time.Since(u.Since).Seconds(); all < want*0.999 || all > want*1.001 {
		t.Errorf("%g GPU-seconds in all, want %g", all, want)
	}
	if got := gather(t, r); got["rouse_autoscaler_gpu_seconds_total function=default/m state=awake tenant=acme"] != acme || acme < 1 || acme > 60 {
		t.Errorf("acme has %g GPU-seconds of one minute: %v", acme, got)
	}
	if got := gather(t, r)["rouse_autoscaler_tokens_total direction=output function=default/m tenant=acme"]; got != 5 {
		t.Errorf("%g tokens of output, want 5", got)
	}
	if err := w.a.Receive(api.NewEvent(api.EventUsage, "/activator/one", "default/m", api.Usage{Function: "default/m", Activator: "one", Uses: []api.Use{{Begun: time.Now(), Requests: -1}}})); err == nil {
		t.Error("a negative number is taken")
	}
}
