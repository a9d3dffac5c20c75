package autoscaler

import (
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// TestLinesKeepAwake: what runs in the background is no demand, and is not cut off from what comes after it by an idle sleep.
func TestLinesKeepAwake(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		a := w.add("a", api.GiB, nil)
		w.request(a, 1, time.Second)
		pass(10 * time.Second)
		w.line(a, 5*time.Minute, true)
		pass(4 * time.Minute)
		if got := w.state("a-0001"); got != api.Awake || w.count("sleep a") != 0 {
			t.Errorf("while a line runs it is %s, want awake and never told to sleep:\n%s", got, w.transcript())
		}
		w.request(a, 1, time.Second)
		pass(3 * time.Minute)
		if got := w.state("a-0001"); got != api.Asleep || a.served != 2 || a.worst > 5*time.Second {
			t.Errorf("after the line it is %s, and %d were served, the last after %s; want asleep and 2, at once", got, a.served, a.worst)
		}
	})
}

// TestDemandEndsADrain: a request that comes while an instance that nobody needed drains does not wait for what runs there.
func TestDemandEndsADrain(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		a := w.add("a", api.GiB, nil)
		w.request(a, 1, time.Second)
		pass(10 * time.Second)
		w.line(a, 90*time.Second, false)
		pass(time.Minute)
		if got := w.state("a-0001"); got != api.Draining {
			t.Errorf("it is %s, want draining", got)
		}
		a.worst = 0
		w.request(a, 1, time.Second)
		pass(2 * time.Second)
		if got := w.state("a-0001"); got != api.Awake || a.served != 2 || a.worst > 100*time.Millisecond || len(w.told(a, "keep")) != 1 {
			t.Errorf("it is %s, %d were served after %s, told %v; want awake, 2 at once, told once\n%s", got, a.served, a.worst, w.told(a, "keep"), w.transcript())
		}
		pass(3 * time.Minute)
		if got := w.state("a-0001"); got != api.Asleep || w.count("stop") != 0 || w.count("start a") != 1 {
			t.Errorf("when all has ended it is %s, want asleep: nothing has failed\n%s", got, w.transcript())
		}
	})
}

// TestDemandIsTooLate: where the runtime sleeps before it is called off, it is woken.
func TestDemandIsTooLate(t *testing.T) {
	for ms := 0; ms <= 300; ms += 10 {
		inWorld(t, 4*api.GiB, func(w *fleet) {
			a := w.add("a", api.GiB, nil)
			w.request(a, 1, time.Second)
			pass(63900*time.Millisecond + time.Duration(ms)*time.Millisecond)
			a.worst = 0
			w.request(a, 1, time.Second)
			pass(10 * time.Second)
			if a.served != 2 || a.worst > time.Second || w.count("start a") != 1 || w.count("stop") != 0 {
				t.Errorf("at %d ms: %d were served, the last after %s\n%s", ms, a.served, a.worst, w.transcript())
			}
		})
	}
}

// TestBusyIsNoFailure: an instance to which work came when it was to sleep is not ended for that.
func TestBusyIsNoFailure(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		a := w.add("a", api.GiB, func(f *fakeFunction) { f.busySleeps = 5 })
		w.request(a, 1, time.Second)
		pass(5 * time.Minute)
		if got := w.state("a-0001"); got != api.Asleep || w.count("sleep a") != 6 || w.count("stop") != 0 {
			t.Errorf("after five sleeps that were refused it is %s, want asleep by the sixth and not stopped\n%s", got, w.transcript())
		}
	})
}
