package autoscaler

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
)

// inWorld runs body in a bubble of virtual time, in a fleet with so much memory.
func inWorld(t *testing.T, capacity api.Bytes, body func(w *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := world(t, capacity, decide.Policy{})
		ctx, cancel := context.WithCancel(t.Context())
		w.repeat(ctx)
		w.run(func() { body(w); cancel() })
		w.wg.Wait()
		if t.Failed() {
			t.Logf("calls:\n%s", w.transcript())
		}
	})
}

// pass lets time pass, and what is due happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestManyWaitingMakeOneStart(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		f := w.add("a", api.GiB, nil)
		for range 200 {
			w.request(f, 1, 10*time.Millisecond)
		}
		pass(10 * time.Second)
		if got := w.count("start"); got != 1 {
			t.Errorf("got %d starts, want 1", got)
		}
		if f.served != 200 {
			t.Errorf("served %d, want 200", f.served)
		}
	})
}

func TestLadder(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		f := w.add("a", api.GiB, nil)
		w.request(f, 1, time.Second)
		pass(4*time.Second + time.Millisecond) // loaded and served
		if got := w.state("a-0001"); got != api.Awake {
			t.Errorf("after the request it is %s, want awake", got)
		}
		pass(time.Minute - 2*time.Millisecond)
		if got := w.state("a-0001"); got != api.Awake {
			t.Errorf("just before sleep-after it is %s, want awake", got)
		}
		pass(time.Second)
		if got := w.state("a-0001"); got != api.Asleep {
			t.Errorf("after sleep-after it is %s, want asleep", got)
		}
		if got := w.count("grant"); got != 1 {
			t.Errorf("got %d grants, want 1", got)
		}
		// Under the grant the activator wakes it; the autoscaler does not.
		w.request(f, 1, time.Second)
		pass(2 * time.Second)
		if got, want := f.worst, 3*time.Second; got != want {
			t.Errorf("the longest wait was %s, want %s", got, want)
		}
		if f.served != 2 || w.count("wake") != 0 || w.count("start") != 1 {
			t.Errorf("served %d, the autoscaler woke %d times and started %d, want 2, 0, 1", f.served, w.count("wake"), w.count("start"))
		}
		if got := w.told(f, "woken"); len(got) != 1 || got[0].Instance != "a-0001" {
			t.Errorf("of the wake under the grant it tells %+v, want one", got)
		}
		pass(17 * time.Minute)
		if got := w.state("a-0001"); got != api.Gone {
			t.Errorf("after gone-after it is %s, want gone", got)
		}
	})
}

// TestWhatNobodyOrderedIsTold: a wake of ours is told once, as one; that an awake instance fails is told with its reason.
func TestWhatNobodyOrderedIsTold(t *testing.T) {
	inWorld(t, 3*api.GiB/2, func(w *fleet) {
		a, b := w.add("a", api.GiB, nil), w.add("b", api.GiB, nil)
		for range 2 { // no grant can be out for either, as the other one is awake
			w.request(a, 1, time.Second)
			pass(10 * time.Second)
			w.request(b, 1, time.Second)
			pass(10 * time.Second)
		}
		if ours, woken := w.told(a, "wake"), w.told(a, "woken"); len(ours) != 1 || len(woken) != 0 {
			t.Errorf("it tells %+v and %+v, want one wake of ours", ours, woken)
		}
		w.mu.Lock()
		i := w.instances["b-0001"]
		i.s.Message = "the runtime ended: signal: killed; its last output:\nmany words"
		w.to(i, api.Unhealthy, 0)
		w.mu.Unlock()
		pass(time.Second)
		if got := w.told(b, "unhealthy"); len(got) != 1 || got[0].Reason != "the runtime ended: signal: killed" {
			t.Errorf("of its failure it tells %+v, want its reason", got)
		}
	})
}

func TestTurns(t *testing.T) {
	inWorld(t, 3*api.GiB/2, func(w *fleet) {
		a, b := w.add("a", api.GiB, nil), w.add("b", api.GiB, nil)
		for range 1200 { // two minutes of more work than either can do
			w.request(a, 1, 300*time.Millisecond)
			w.request(b, 1, 300*time.Millisecond)
			pass(100 * time.Millisecond)
		}
		pass(3 * time.Minute)
		if a.served != 1200 || b.served != 1200 {
			t.Errorf("served %d and %d, want 1200 each", a.served, b.served)
		}
		if n := w.count("sleep"); n < 10 || n > 50 {
			t.Errorf("got %d sleeps, want a turn every few seconds", n)
		}
		t.Logf("worst waits %s and %s, %d sleeps", a.worst, b.worst, w.count("sleep"))
	})
}
