package autoscaler

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
)

func TestMinScale(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		f := w.add("a", api.GiB, func(f *fakeFunction) { f.spec.MinScale, f.spec.MaxScale = 2, 2 })
		pass(time.Hour)
		if w.state("a-0001") != api.Awake || w.state("a-0002") != api.Awake || w.count("start") != 2 {
			t.Errorf("want two awake, have\n%s", w.transcript())
		}
		if err := w.a.Sleep(w.t.Context(), f.spec.Name, 0); err == nil || !strings.Contains(err.Error(), "min-scale") {
			t.Errorf("Sleep: got %v, want an error that names min-scale", err)
		}
		w.kill("a-0002")
		pass(10 * time.Second)
		if w.state("a-0003") != api.Awake {
			t.Errorf("the one that died was not replaced")
		}
	})
}

// TestSuspendByHand: an order to suspend is refused, with the reason, where that can't be.
func TestSuspendByHand(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		plain := w.add("a", api.GiB, nil)
		off := w.add("b", api.GiB, func(f *fakeFunction) { f.spec.Suspend = api.SuspendOff })
		for _, f := range []*fakeFunction{plain, off} {
			if err := w.a.Wake(w.t.Context(), f.spec.Name); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []struct {
			f     *fakeFunction
			level api.Level
			want  string
		}{{plain, 3, "it has no GPU"}, {off, 3, "set rouse.dev/suspend to auto or on"}, {plain, 4, "want 1, 2 or 3"}} {
			if err := w.a.Sleep(w.t.Context(), c.f.spec.Name, c.level); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Sleep at level %d: got %v, want %q", c.level, err, c.want)
			}
		}
	})
}

func TestWhyNotSuspended(t *testing.T) {
	f, i := &function{}, &decide.Instance{}
	f.Need.Devices = 1
	f.Instances = append(f.Instances, i)
	if err := f.whyNotSuspended(api.Suspended); err != nil {
		t.Errorf("of one that was not tried yet: %v", err)
	}
	i.Status.NoSuspend = "managed memory"
	if err := f.whyNotSuspended(api.Suspended); err == nil || !strings.Contains(err.Error(), "managed memory") {
		t.Errorf("of one whose try failed: got %v, want its reason", err)
	}
	if err := f.whyNotSuspended(api.Level2); err != nil {
		t.Errorf("level 2: %v", err)
	}
}

func TestByHand(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		f := w.add("a", api.GiB, nil)
		name := f.spec.Name
		began := time.Now()
		if err := w.a.Wake(w.t.Context(), name); err != nil || time.Since(began) != f.load {
			t.Errorf("Wake: %v after %s, want nil after %s", err, time.Since(began), f.load)
		}
		if err := w.a.Sleep(w.t.Context(), name, api.Level2); err != nil {
			t.Errorf("Sleep: %v", err)
		}
		if v, _ := w.a.Status(name); len(v.Instances) != 1 || v.Instances[0].State != api.Asleep || v.Instances[0].Level != api.Level2 {
			t.Errorf("got %+v, want it asleep at level 2", v.Instances)
		}
		began = time.Now()
		if err := w.a.Wake(w.t.Context(), name); err != nil || time.Since(began) != f.wake {
			t.Errorf("Wake: %v after %s, want nil after %s", err, time.Since(began), f.wake)
		}
		if err := w.a.Stop(w.t.Context(), name); err != nil || w.state("a-0001") != api.Gone {
			t.Errorf("Stop: %v, and it is %s", err, w.state("a-0001"))
		}
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		if err := w.a.Wake(ctx, name); err != context.DeadlineExceeded {
			t.Errorf("Wake: got %v, want the deadline", err)
		}
		if err := w.a.Wake(w.t.Context(), "default/none"); api.AsError(err).Status != 404 {
			t.Errorf("Wake of an unknown function: got %v, want 404", err)
		}
		pass(time.Minute)
		w.mu.Lock()
		f.load = time.Hour // so that requests wait
		w.mu.Unlock()
		if err := w.a.Stop(w.t.Context(), name); err != nil {
			t.Errorf("Stop: %v", err)
		}
		w.request(f, 3, time.Second)
		synctest.Wait()
		if err := w.a.Sleep(w.t.Context(), name, 0); err == nil || !strings.Contains(err.Error(), "3 waiting") {
			t.Errorf("Sleep: got %v, want an error that says that 3 wait", err)
		}
		if ds := w.a.Why(name); len(ds) < 6 || ds[0].Action != "start" || ds[0].Reason == "" || ds[len(ds)-1].Action != "start" {
			t.Errorf("Why: got %+v, want all decisions, the newest last", ds)
		}
	})
}

// TestSnapshot: what an instance has reported of its snapshot is known after its end, and explains the next start.
func TestSnapshot(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		f := w.add("a", api.GiB, nil)
		name := f.spec.Name
		for _, c := range []struct {
			snapshot *api.Snapshot // as reported while the instance runs
			want     string        // in the reason of the next start
		}{
			{&api.Snapshot{Made: time.Now(), Size: 370 * api.MiB}, "; its snapshot has 370 MiB and is "},
			{nil, "; its snapshot has 370 MiB and is "},
			{&api.Snapshot{Missing: "no criu"}, "; no snapshot: no criu"},
		} {
			if err := w.a.Wake(w.t.Context(), name); err != nil {
				t.Fatal(err)
			}
			v, _ := w.a.Status(name)
			s := v.Instances[0]
			s.Snapshot = c.snapshot
			s.Seq++
			w.a.ObserveInstance(s)
			if err := w.a.Stop(w.t.Context(), name); err != nil {
				t.Fatal(err)
			}
			if v, _ := w.a.Status(name); len(v.Instances) > 0 || v.Learned.Snapshot == nil {
				t.Errorf("after the end of %+v it is known as %+v", c.snapshot, v.Learned.Snapshot)
			}
			if err := w.a.Wake(w.t.Context(), name); err != nil {
				t.Fatal(err)
			}
			if ds := w.a.Why(name); ds[len(ds)-1].Action != "start" || !strings.Contains(ds[len(ds)-1].Reason, c.want) {
				t.Errorf("after %+v the last decision is %+v, want %q", c.snapshot, ds[len(ds)-1], c.want)
			}
			if err := w.a.Stop(w.t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestByHandJustAfter: a request that has just been answered may be one that waits by what was heard last. Nobody is refused because of it.
func TestByHandJustAfter(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		f := w.add("a", api.GiB, nil)
		demand := func(waiting int) {
			w.a.ObserveDemand(api.Demand{Function: f.spec.Name, Activator: "far", Waiting: waiting, LastRequest: time.Now(), At: time.Now()})
		}
		for name, order := range map[string]func() error{
			"sleep": func() error { return w.a.Sleep(w.t.Context(), f.spec.Name, 0) },
			"stop":  func() error { return w.a.Stop(w.t.Context(), f.spec.Name) },
		} {
			if err := w.a.Wake(w.t.Context(), f.spec.Name); err != nil {
				t.Fatal(err)
			}
			demand(1)
			time.AfterFunc(120*time.Millisecond, func() { demand(0) })
			if err := order(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestStopAll(t *testing.T) {
	inWorld(t, 8*api.GiB, func(w *fleet) {
		a, b := w.add("a", api.GiB, nil), w.add("b", api.GiB, nil)
		w.request(a, 1, 5*time.Second)
		w.request(b, 1, time.Second)
		pass(4 * time.Second)
		c := w.add("c", api.GiB, nil)
		wake := make(chan error)
		go func() { wake <- w.a.Wake(w.t.Context(), c.spec.Name) }()
		pass(time.Millisecond)
		began := time.Now()
		if err := w.a.StopAll(w.t.Context()); err != nil {
			t.Errorf("StopAll: %v", err)
		}
		if err := <-wake; api.AsError(err).Code != api.CodeShutdown {
			t.Errorf("a wake under way ends with %v, want that the autoscaler shuts down", err)
		}
		if len(w.instances) != 0 || a.served != 1 || b.served != 1 {
			t.Errorf("%d instances are left, served %d and %d, want none, 1, 1", len(w.instances), a.served, b.served)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %s, want as long as the running request", took)
		}
		w.request(a, 1, time.Second)
		pass(time.Minute)
		if w.count("start a") != 1 {
			t.Errorf("after StopAll something was started:\n%s", w.transcript())
		}
		if err := w.a.Wake(w.t.Context(), a.spec.Name); err == nil {
			t.Error("Wake after StopAll succeeded")
		}
	})
}

func TestRemove(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		f := w.add("a", api.GiB, nil)
		w.request(f, 1, time.Second)
		pass(10 * time.Second)
		w.a.RemoveFunction(f.spec.Name)
		pass(10 * time.Second)
		if vs := w.a.List(); len(vs) != 0 || len(w.instances) != 0 {
			t.Errorf("got %+v and %d instances, want none", vs, len(w.instances))
		}
		w.a.PutFunction(f.spec)
		w.request(f, 1, time.Second)
		pass(10 * time.Second)
		if f.served != 2 {
			t.Errorf("served %d, want 2: it was declared again", f.served)
		}
		// Removed and declared again at once: the old instance does not stay.
		w.a.RemoveFunction(f.spec.Name)
		w.a.PutFunction(f.spec)
		pass(time.Second)
		w.request(f, 1, time.Second)
		pass(10 * time.Second)
		if f.served != 3 || w.state("a-0002") != api.Gone || w.state("a-0003") != api.Awake {
			t.Errorf("served %d, want 3 and a third instance:\n%s", f.served, w.transcript())
		}
		// Another runtime: the same.
		f.spec.Runtime.Args = []string{"--other"}
		w.a.PutFunction(f.spec)
		pass(time.Second)
		if w.state("a-0003") != api.Gone {
			t.Errorf("an instance with the old runtime stays")
		}
	})
}

func TestIdleCostsNothing(t *testing.T) {
	inWorld(t, 8*api.GiB, func(w *fleet) {
		for _, name := range []string{"a", "b", "c"} {
			f := w.add(name, api.GiB, func(f *fakeFunction) { f.spec.SleepAfter, f.spec.UnloadAfter = 0, 0 })
			w.request(f, 1, time.Second)
		}
		pass(time.Minute)
		before := w.plans()
		pass(24 * time.Hour)
		if got := w.plans() - before; got > 2 {
			t.Errorf("got %d plans in an idle day, want none but those that this test causes", got)
		}
	})
}

// plans is how many plans there were.
func (w *fleet) plans() uint64 {
	r := prometheus.NewRegistry()
	r.MustRegister(w.a.metrics.plan)
	return uint64(gather(w.t, r)["rouse_autoscaler_plan_seconds"])
}
