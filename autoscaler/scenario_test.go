package autoscaler

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
)

func TestVictimMakesRoom(t *testing.T) {
	inWorld(t, 3*api.GiB/2, func(w *fleet) {
		a, b := w.add("a", api.GiB, nil), w.add("b", api.GiB, nil)
		w.request(a, 1, time.Second)
		pass(30 * time.Second) // a is awake and idle
		w.request(b, 1, time.Second)
		pass(10 * time.Second)
		if b.served != 1 || b.worst > 4*time.Second {
			t.Errorf("b was served %d times and waited %s, want 1 and at most a sleep and a load", b.served, b.worst)
		}
		if got := w.state("a-0001"); got != api.Asleep {
			t.Errorf("a is %s, want asleep", got)
		}
		// Back to a: b is the victim, and a wakes instead of starting.
		w.request(a, 1, time.Second)
		pass(10 * time.Second)
		if a.served != 2 || w.count("start a") != 1 || w.count("wake a") != 1 {
			t.Errorf("a was served %d times with %d starts and %d wakes, want 2, 1, 1", a.served, w.count("start a"), w.count("wake a"))
		}
	})
}

func TestWakeFails(t *testing.T) {
	for _, c := range []struct {
		name          string
		wakes, starts int // so many fail
		wantStarts    int
		wantRefused   int
	}{
		{"once", 1, 0, 1, 0},
		{"for ever, so a new one starts", 100, 0, 2, 0},
		{"and so does the start: refused after three", 100, 1, 2, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, 4*api.GiB, func(w *fleet) {
				f := w.add("a", api.GiB, nil)
				w.request(f, 1, time.Second)
				pass(2 * time.Minute)
				if got := w.state("a-0001"); got != api.Asleep {
					t.Fatalf("it is %s, want asleep", got)
				}
				w.mu.Lock()
				f.failWakes, f.failStarts, w.deaf = c.wakes, c.starts, true
				clear(f.grants)
				w.mu.Unlock()
				w.request(f, 1, time.Second)
				pass(30 * time.Second)
				if got := w.count("start"); got != c.wantStarts {
					t.Errorf("got %d starts, want %d", got, c.wantStarts)
				}
				if got := len(w.refused[f.spec.Name]); got != c.wantRefused {
					t.Errorf("refused %v, want %d", w.refused[f.spec.Name], c.wantRefused)
				}
				if got, want := f.served, 2-c.wantRefused; got != want {
					t.Errorf("served %d, want %d", got, want)
				}
			})
		})
	}
}

func TestStartFails(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		f := w.add("a", api.GiB, func(f *fakeFunction) { f.failStarts = 4 })
		w.request(f, 5, time.Second)
		pass(time.Minute)
		if got := w.count("start"); got != 3 {
			t.Errorf("got %d starts, want 3 and none after everybody was refused", got)
		}
		got := w.refused[f.spec.Name]
		if len(got) != 5 || !strings.HasPrefix(got[0], "503 start_failed: ") || strings.Contains(got[0], "the model file is broken") {
			t.Errorf("refused %q, want 5 with status 503, code start_failed and nothing of the instance's message", got)
		}
		if vs := w.a.List(); len(vs) != 1 || !strings.Contains(vs[0].LastError, "the model file is broken") {
			t.Errorf("got %+v, want a function that tells its operator the instance's message", vs)
		}
		// The next request causes another try: it fails, and the one after that works.
		w.request(f, 1, time.Second)
		pass(10 * time.Second)
		w.request(f, 1, time.Second)
		pass(10 * time.Second)
		if f.served != 1 || len(w.refused[f.spec.Name]) != 6 {
			t.Errorf("served %d and refused %d, want 1 and 6", f.served, len(w.refused[f.spec.Name]))
		}
	})
}

func TestSpawnFails(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		f := w.add("a", api.GiB, func(f *fakeFunction) { f.failStarts, f.load = 3, 0 })
		w.request(f, 1, time.Second)
		pass(time.Minute)
		if got := w.refused[f.spec.Name]; len(got) != 1 || !strings.HasPrefix(got[0], "503 start_failed: ") || strings.Contains(got[0], "exec: no such file") {
			t.Errorf("refused %q, want 1 with code start_failed and nothing of the spawner's message", got)
		}
		if vs := w.a.List(); len(vs) != 1 || len(vs[0].Instances) != 0 || vs[0].Failures != 3 || !strings.Contains(vs[0].LastError, "exec: no such file") {
			t.Errorf("got %+v, want a function without instances, 3 failures and the spawner's message", vs)
		}
	})
}

// TestBoundsThatChangeForgiveNothing changes how many instances are kept, as Knative
// has it while starts fail: that mends none, and does not have them tried for ever.
func TestBoundsThatChangeForgiveNothing(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		f := w.add("a", api.GiB, func(f *fakeFunction) { f.failStarts, f.load = 100, 0 })
		w.request(f, 1, time.Second)
		for k := range 300 {
			spec := f.spec
			if k%2 == 0 {
				spec.UnloadAfter = time.Second
			}
			w.a.PutFunction(spec)
			pass(50 * time.Millisecond)
		}
		if got := len(w.refused[f.spec.Name]); got != 1 {
			t.Errorf("refused %d requests, want the one", got)
		}
		if got := w.count("start"); got != 3 {
			t.Errorf("got %d starts, want 3", got)
		}
		// Declaring the same again, or something else, resets the failures.
		for k := range 2 {
			spec := f.spec
			spec.Priority = k
			w.a.PutFunction(spec)
			w.a.PutFunction(spec)
			if vs := w.a.List(); vs[0].Failures != 0 {
				t.Errorf("priority %d: %d failures are remembered, want none", k, vs[0].Failures)
			}
		}
	})
}

func TestSleepFails(t *testing.T) {
	inWorld(t, 3*api.GiB/2, func(w *fleet) {
		a := w.add("a", api.GiB, func(f *fakeFunction) { f.failSleeps = 100 })
		b := w.add("b", api.GiB, nil)
		w.request(a, 1, time.Second)
		pass(10 * time.Second)
		w.request(b, 1, time.Second)
		pass(10 * time.Second)
		if b.served != 1 {
			t.Errorf("b was not served")
		}
		if got := w.state("a-0001"); got != api.Gone {
			t.Errorf("a, which refuses to sleep, is %s, want gone", got)
		}
	})
}

// kill ends an instance without anybody having asked for it.
func (w *fleet) kill(id api.InstanceID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to(w.instances[id], api.Gone, 0)
}

func TestDeath(t *testing.T) {
	for _, c := range []struct {
		name  string
		after time.Duration
	}{{"while starting", time.Second}, {"while awake", 3500 * time.Millisecond}} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, 4*api.GiB, func(w *fleet) {
				f := w.add("a", api.GiB, nil)
				w.request(f, 3, 10*time.Second)
				pass(c.after)
				w.kill("a-0001")
				pass(time.Minute)
				if got := w.count("start"); got != 2 {
					t.Errorf("got %d starts, want 2", got)
				}
				if len(f.queue) != 0 || len(w.refused) != 0 {
					t.Errorf("%d wait and %v were refused, want none", len(f.queue), w.refused)
				}
			})
		})
	}
}

func TestLostReports(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		f := w.add("a", api.GiB, nil)
		w.request(f, 1, time.Second)
		pass(2 * time.Second)
		w.mu.Lock()
		w.mute = true // "awake" is lost
		w.mu.Unlock()
		pass(10 * time.Second)
		v, _ := w.a.Status(f.spec.Name)
		if len(v.Instances) != 1 || v.Instances[0].State != api.Awake {
			t.Errorf("got %+v, want the awake instance: it is asked when it is silent", v.Instances)
		}
		// Its death is lost as well. A waiting request has it polled, and replaced.
		w.mu.Lock()
		w.to(w.instances["a-0001"], api.Gone, 0)
		w.mute = false
		w.mu.Unlock()
		w.request(f, 1, time.Second)
		pass(time.Minute)
		if f.served != 2 || w.count("start") != 2 {
			t.Errorf("served %d with %d starts, want 2 and 2", f.served, w.count("start"))
		}
	})
}

func TestLateAndRepeatedReports(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		f := w.add("a", api.GiB, nil)
		w.request(f, 1, time.Second)
		pass(10 * time.Second)
		v, _ := w.a.Status(f.spec.Name)
		now := v.Instances[0]
		old := now
		old.Seq, old.State = 1, api.Starting
		for range 10 {
			w.a.ObserveInstance(old)
			w.a.ObserveInstance(now)
			w.a.ObserveDemand(api.Demand{Function: f.spec.Name, Activator: "door", Waiting: 9, At: w.from})
		}
		pass(time.Second)
		v, _ = w.a.Status(f.spec.Name)
		if len(v.Instances) != 1 || v.Instances[0].State != api.Awake || v.Waiting != 0 {
			t.Errorf("got %+v, want it awake and nobody waiting", v)
		}
		w.kill("a-0001")
		w.a.ObserveInstance(now)
		pass(time.Second)
		if v, _ = w.a.Status(f.spec.Name); len(v.Instances) != 0 {
			t.Errorf("got %+v: a late report brought it back", v.Instances)
		}
	})
}

func TestSilentActivator(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		f := w.add("a", api.GiB, nil)
		w.a.ObserveDemand(api.Demand{Function: f.spec.Name, Activator: "other", Waiting: 1, Running: 2, At: time.Now()})
		pass(10 * time.Second)
		if v, _ := w.a.Status(f.spec.Name); v.Running != 2 {
			t.Errorf("got %d running, want 2", v.Running)
		}
		pass(10 * time.Second)
		if v, _ := w.a.Status(f.spec.Name); v.Running != 0 || v.Waiting != 0 {
			t.Errorf("got %+v, want no demand of an activator that went silent", v)
		}
		pass(2 * time.Minute)
		if got := w.state("a-0001"); got != api.Asleep {
			t.Errorf("it is %s, want asleep", got)
		}
	})
}

func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := world(t, 5*api.GiB/2, decide.Policy{})
		ctx, cancel := context.WithCancel(t.Context())
		w.repeat(ctx)
		var a, b, c *fakeFunction
		w.run(func() {
			a, b, c = w.add("a", api.GiB, nil), w.add("b", api.GiB, nil), w.add("c", 2*api.GiB, nil)
			w.request(a, 1, time.Second)
			pass(90 * time.Second) // a sleeps, with a grant
			w.request(b, 1, 200*time.Second)
			pass(10 * time.Second) // b works
		})
		calls := len(w.calls)
		w.restart(decide.Policy{})
		w.run(func() {
			for _, f := range []*fakeFunction{a, b, c} {
				w.a.PutFunction(f.spec)
			}
			w.mu.Lock()
			for _, i := range w.instances {
				w.a.ObserveInstance(i.s)
			}
			w.mu.Unlock()
			pass(time.Second)
			if got := w.calls[calls:]; len(got) != 0 {
				t.Errorf("after the restart it did %q, want nothing", got)
			}
			// The grant of before is still out, and used: the ledger knows.
			w.request(a, 1, time.Second)
			pass(time.Second)
			if got := w.state("a-0001"); got != api.Awake {
				t.Errorf("a is %s, want awake", got)
			}
			w.request(c, 1, time.Second)
			pass(4 * time.Minute)
			if a.served != 2 || b.served != 1 || c.served != 1 {
				t.Errorf("served %d, %d, %d, want 2, 1, 1", a.served, b.served, c.served)
			}
			cancel()
		})
		w.wg.Wait()
		if w.count("start a") != 1 || w.count("start b") != 1 {
			t.Errorf("instances were started anew:\n%s", w.transcript())
		}
	})
}

func TestDeafActivator(t *testing.T) {
	inWorld(t, 3*api.GiB/2, func(w *fleet) {
		a, b := w.add("a", api.GiB, nil), w.add("b", api.GiB, nil)
		w.request(a, 1, time.Second)
		pass(2 * time.Minute) // a sleeps and has the grant
		w.mu.Lock()
		w.deaf = true
		w.mu.Unlock()
		w.request(b, 1, time.Second)
		pass(20 * time.Second)
		if b.served != 1 {
			t.Errorf("b was not served though the instance itself can be told that its grant is void")
		}
	})
}

func TestNeverFits(t *testing.T) {
	inWorld(t, api.GiB, func(w *fleet) {
		f := w.add("big", 4*api.GiB, nil)
		w.request(f, 2, time.Second)
		pass(time.Second)
		got := w.refused[f.spec.Name]
		if len(got) != 2 || !strings.HasPrefix(got[0], "503 no_capacity: ") ||
			!strings.Contains(got[0], "4 GiB") || !strings.Contains(got[0], "1 GiB") || !strings.Contains(got[0], "--memory") {
			t.Errorf("refused %q, want 2 with both numbers and what to change", got)
		}
		pass(time.Minute)
		w.request(f, 1, time.Second)
		pass(time.Second)
		if got := w.refused[f.spec.Name]; len(got) != 3 {
			t.Errorf("refused %d, want the third too", len(got))
		}
		if err := w.a.Wake(w.t.Context(), f.spec.Name); err == nil || api.AsError(err).Code != api.CodeNoCapacity {
			t.Errorf("Wake: got %v, want no_capacity", err)
		}
	})
}

func TestScaleUpAndDown(t *testing.T) {
	inWorld(t, 8*api.GiB, func(w *fleet) {
		f := w.add("a", api.GiB, func(f *fakeFunction) { f.spec.MaxScale = 3; f.spec.Concurrency = 2 })
		for range 60 { // six at once for half a minute
			w.request(f, 3, time.Second)
			pass(500 * time.Millisecond)
		}
		if got := w.count("start"); got != 3 {
			t.Errorf("got %d starts, want 3", got)
		}
		for range 360 { // one at once for three minutes
			w.request(f, 1, 400*time.Millisecond)
			pass(500 * time.Millisecond)
		}
		awake := 0
		for _, i := range w.instances {
			if i.s.State == api.Awake {
				awake++
			}
		}
		if awake != 1 {
			t.Errorf("%d are awake, want 1", awake)
		}
		if f.served != 540 {
			t.Errorf("served %d, want 540", f.served)
		}
	})
}
