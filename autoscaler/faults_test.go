package autoscaler

import (
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// TestASleepThatNeverEnds: the victim is stopped after its limit, and waiting requests are served.
func TestASleepThatNeverEnds(t *testing.T) {
	inWorld(t, 1200*api.MiB, func(w *fleet) {
		a := w.add("a", api.GiB, func(f *fakeFunction) { f.sleep = 24 * time.Hour; f.spec.WakeTimeout = 10 * time.Second })
		b := w.add("b", api.GiB, nil)
		w.request(a, 1, time.Millisecond)
		pass(10 * time.Second)
		w.request(b, 1, time.Millisecond)
		pass(4 * time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		if b.served != 1 || w.instances["a-0001"] != nil {
			t.Errorf("b served %d, want 1 and a-0001 stopped\n%s", b.served, strings.Join(w.calls, "\n"))
		}
	})
}

// TestAWakeThatHangs: it is given up after its limit, told, and a new instance serves.
func TestAWakeThatHangs(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		a := w.add("a", api.GiB, func(f *fakeFunction) { f.spec.WakeTimeout = 10 * time.Second; f.spec.SleepAfter = 5 * time.Second })
		w.request(a, 1, time.Millisecond)
		pass(20 * time.Second)
		if w.state("a-0001") != api.Asleep {
			t.Fatalf("a-0001 is %s", w.state("a-0001"))
		}
		w.mu.Lock()
		a.wake = 24 * time.Hour
		w.mu.Unlock()
		w.request(a, 1, time.Millisecond)
		pass(3 * time.Minute)
		told := false
		for _, d := range w.a.Why(a.spec.Name) {
			told = told || d.Action == "stop" && strings.Contains(d.Reason, "the wake takes longer than 10s")
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if a.served != 2 || w.instances["a-0001"] != nil || !told {
			t.Errorf("served %d, want 2, a-0001 stopped and why told (%t)\n%s", a.served, told, strings.Join(w.calls, "\n"))
		}
	})
}

// TestAWakeThatHasToLoad: the wake of a sleeper without a process may take as long as a start, by the activator too.
func TestAWakeThatHasToLoad(t *testing.T) {
	for _, byAutoscaler := range []bool{false, true} {
		inWorld(t, 4*api.GiB, func(w *fleet) {
			a := w.add("a", api.GiB, func(f *fakeFunction) {
				f.spec.WakeTimeout, f.spec.SleepAfter, f.spec.UnloadAfter = 10*time.Second, 5*time.Second, time.Hour
				f.unloads, f.wake = true, 5*time.Minute
			})
			w.request(a, 1, time.Millisecond)
			pass(20 * time.Second)
			if w.state("a-0001") != api.Asleep {
				t.Fatalf("a-0001 is %s", w.state("a-0001"))
			}
			if w.mu.Lock(); byAutoscaler {
				clear(a.grants)
			}
			w.mu.Unlock()
			w.request(a, 1, time.Millisecond)
			pass(6 * time.Minute)
			if got := w.count("wake a-0001") > 0; got != byAutoscaler {
				t.Errorf("woken by the autoscaler: %t, want %t", got, byAutoscaler)
			}
			if a.served != 2 || w.count("stop") > 0 {
				t.Errorf("served %d, %d stopped; want 2 and none\n%s", a.served, w.count("stop"), w.transcript())
			}
		})
	}
}

// TestMoreMemoryThanDeclared: what was measured counts from then on, so that the two are
// never promised to fit together again.
func TestMoreMemoryThanDeclared(t *testing.T) {
	inWorld(t, 3*api.GiB, func(w *fleet) {
		a := w.add("a", api.GiB, func(f *fakeFunction) { f.awake = 2500 * api.MiB }) // declares 1 GiB
		b := w.add("b", api.GiB, nil)
		w.request(a, 1, time.Millisecond)
		pass(10 * time.Second)
		for range 6 {
			w.request(b, 1, time.Millisecond) // that they are never awake together is checked by the world
			pass(10 * time.Second)
			w.request(a, 1, time.Millisecond)
			pass(10 * time.Second)
		}
		if v, _ := w.a.Status(a.spec.Name); v.Need.Host < 2400*api.MiB {
			t.Errorf("a needs %s, want what was measured, 2500 MiB", v.Need.Host)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if a.served != 7 || b.served != 6 {
			t.Errorf("served %d and %d, want 7 and 6\n%s", a.served, b.served, strings.Join(w.calls, "\n"))
		}
	})
}

// TestOvercommit: two that together use more than there is, measured after they were awake: it is
// told, and the idle one goes to sleep though nobody claims its memory.
func TestOvercommit(t *testing.T) {
	inWorld(t, 3*api.GiB, func(w *fleet) {
		a := w.add("a", api.GiB, nil)
		b := w.add("b", api.GiB, nil)
		w.request(a, 1, time.Millisecond)
		pass(10 * time.Second)
		w.request(b, 1, 20*time.Second)
		pass(5 * time.Second)
		w.mu.Lock()
		s := w.instances["b-0001"].s
		w.mu.Unlock()
		s.Seq += 100
		s.Memory.Host = 2500 * api.MiB // b declares 1 GiB
		w.a.ObserveInstance(s)
		pass(time.Second)
		if w.state("a-0001") != api.Asleep || w.state("b-0001") != api.Awake {
			t.Errorf("a is %s and b %s, want a asleep and b at work", w.state("a-0001"), w.state("b-0001"))
		}
		why := ""
		for _, d := range w.a.Why(a.spec.Name) {
			why = d.Reason
		}
		for _, d := range w.a.Why(b.spec.Name) {
			why += "; " + d.Action + " " + d.Reason
		}
		if !strings.Contains(why, "is in use than there is") || !strings.Contains(why, "exceed it uses 2.4 GiB of host memory and declares 1 GiB") {
			t.Errorf("why: %s", why)
		}
	})
}

// TestLies: whatever an instance says of itself spoils nobody else.
func TestLies(t *testing.T) {
	inWorld(t, 2*api.GiB, func(w *fleet) {
		a := w.add("a", api.GiB, nil)
		b := w.add("b", api.GiB, nil)
		w.request(a, 1, time.Millisecond)
		w.request(b, 1, time.Millisecond)
		pass(10 * time.Second)
		w.mu.Lock()
		lie := w.instances["a-0001"].s
		w.mu.Unlock()
		lie.Seq += 1000
		lie.Epoch = 1<<64 - 1
		lie.Memory = api.Memory{Host: 1 << 62, Devices: 1 << 30, PerDevice: -1 << 62}
		lie.Level, lie.Running, lie.Restarts, lie.LoadTime = 99, -5, -5, -time.Hour
		lie.Devices = []api.DeviceID{"gpu-that-is-not"}
		w.a.ObserveInstance(lie)
		for range 3 {
			w.request(b, 1, time.Millisecond)
			pass(20 * time.Second)
		}
		w.mu.Lock()
		served := b.served
		w.mu.Unlock()
		if served != 4 {
			t.Errorf("b was served %d times, want 4\n%s", served, w.transcript())
		}
		pass(time.Minute)
		if w.state("a-0001") != api.Gone {
			t.Errorf("an instance that obeys nobody we know is %s, want it stopped", w.state("a-0001"))
		}
		w.request(a, 1, time.Millisecond)
		pass(time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		if a.served != 2 {
			t.Errorf("a was served %d times, want 2\n%s", a.served, strings.Join(w.calls, "\n"))
		}
	})
}

// TestAnActivatorsClockIsSetBack: its demand counts again in a moment.
func TestAnActivatorsClockIsSetBack(t *testing.T) {
	inWorld(t, 2*api.GiB, func(w *fleet) {
		a := w.add("a", api.GiB, nil)
		say := func(at time.Time, waiting int) {
			w.a.ObserveDemand(api.Demand{Function: a.spec.Name, Activator: "other", Waiting: waiting, LastRequest: at, At: at})
		}
		say(time.Now().Add(time.Hour), 0) // it was an hour ahead
		pass(time.Second)
		for range 10 {
			say(time.Now(), 1)
			pass(time.Second)
		}
		if w.count("start") != 1 {
			t.Errorf("its request is not seen\n%s", w.transcript())
		}
	})
}

// TestADeviceIsLost: what was on it counts nowhere, nothing panics, and others go on.
func TestADeviceIsLost(t *testing.T) {
	inWorld(t, 2*api.GiB, func(w *fleet) {
		host := inventory.Device{ID: api.HostMemory, Capacity: 2 * api.GiB, Total: 2 * api.GiB}
		gpu := inventory.Device{ID: "gpu", Capacity: 16 * api.GiB, Total: 16 * api.GiB}
		w.a.SetDevices([]inventory.Device{host, gpu})
		g := w.add("g", 256*api.MiB, func(f *fakeFunction) {
			f.spec.Memory.Devices, f.spec.Memory.PerDevice = 1, 8*api.GiB
		})
		a := w.add("a", 256*api.MiB, nil)
		w.request(g, 1, time.Millisecond)
		pass(10 * time.Second)
		w.a.SetDevices([]inventory.Device{host})
		w.kill("g-0001") // its process ends with the device
		w.request(g, 1, time.Millisecond)
		w.request(a, 1, time.Millisecond)
		pass(10 * time.Second)
		w.mu.Lock()
		served, refused := a.served, strings.Join(w.refused[g.spec.Name], " ")
		w.mu.Unlock()
		if served != 1 || !strings.Contains(refused, api.CodeNoCapacity) {
			t.Errorf("a served %d, want 1; g was told %q, want that there is no GPU", served, refused)
		}
		w.a.SetDevices([]inventory.Device{host, gpu})
		w.request(g, 1, time.Millisecond)
		pass(10 * time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		if g.served != 2 {
			t.Errorf("with the device back g was served %d times, want 2\n%s", g.served, strings.Join(w.calls, "\n"))
		}
	})
}

// TestAnotherPlace: where a wake fails on one GPU, another one is tried before it is tried again.
func TestAnotherPlace(t *testing.T) {
	inWorld(t, 2*api.GiB, func(w *fleet) {
		gpu := func(id api.DeviceID) inventory.Device {
			return inventory.Device{ID: id, Capacity: 10 * api.GiB, Total: 10 * api.GiB}
		}
		w.a.SetDevices([]inventory.Device{{ID: api.HostMemory, Capacity: 2 * api.GiB, Total: 2 * api.GiB}, gpu("one"), gpu("two")})
		g := w.add("g", 64*api.MiB, func(f *fakeFunction) {
			f.spec.Memory.Devices, f.spec.Memory.PerDevice = 1, 8*api.GiB
			f.spec.SleepAfter = 5 * time.Second
		})
		w.request(g, 1, time.Millisecond)
		pass(20 * time.Second)
		w.mu.Lock()
		g.failWakes = 100 // somebody else fills that GPU
		first := w.instances["g-0001"]
		w.mu.Unlock()
		if first == nil || first.s.State != api.Asleep {
			t.Fatalf("g-0001 is %s", w.state("g-0001"))
		}
		w.request(g, 1, time.Millisecond)
		pass(10 * time.Second)
		v, _ := w.a.Status(g.spec.Name)
		var on []api.DeviceID
		for _, i := range v.Instances {
			on = append(on, i.Devices...)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		wakes := 0
		for _, c := range w.calls {
			if strings.Contains(c, " wake g-0001") {
				wakes++
			}
		}
		if g.served != 2 || wakes > 1 || len(on) == 2 && on[0] == on[1] {
			t.Errorf("served %d, %d wakes of g-0001, on %v; want 2, one at most, and another GPU\n%s", g.served, wakes, on, strings.Join(w.calls, "\n"))
		}
	})
}
