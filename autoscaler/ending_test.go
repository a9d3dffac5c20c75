package autoscaler

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// lasting is a fleet in which what is stopped goes on, and is gone a minute later.
type lasting struct{ *fleet }

func (w lasting) Stop(ctx context.Context, i api.InstanceStatus, drain api.Drain) error {
	w.wg.Go(func() {
		time.Sleep(time.Minute)
		_ = w.fleet.Stop(context.WithoutCancel(ctx), i, drain)
		w.a.ObserveInstance(api.InstanceStatus{Instance: i.Instance, Function: i.Function, State: api.Gone, Taken: true})
	})
	return errors.Join(errors.New("slow"), ErrEnding)
}

// TestWhatIsEndingHoldsWhatItHeld: nobody is started in the memory of a process that is not gone yet, and it is
// stopped once.
func TestWhatIsEndingHoldsWhatItHeld(t *testing.T) {
	inWorld(t, 1200*api.MiB, func(w *fleet) {
		w.a.calls.fx = lasting{w}
		a := w.add("a", api.GiB, func(f *fakeFunction) { f.asleep = api.GiB; f.spec.SleepAfter = time.Second }) // it gives nothing up
		b := w.add("b", api.GiB, nil)
		w.request(a, 1, time.Millisecond)
		pass(20 * time.Second)
		w.request(b, 1, time.Millisecond)
		pass(30 * time.Second)
		if d := w.a.Devices()[0]; w.count("start b") > 0 || d.Leaving != api.GiB || d.Free >= api.GiB {
			t.Errorf("while a ends: %d starts of b, %s leave, %s are free; want a to count", w.count("start b"), d.Leaving, d.Free)
		}
		pass(2 * time.Minute)
		w.mu.Lock()
		served, left := b.served, w.instances["a-0001"]
		w.mu.Unlock()
		if served != 1 || left != nil || w.count("stop a") != 1 {
			t.Errorf("b served %d, a is there: %t, stopped %d times; want 1, not, and once\n%s", served, left != nil, w.count("stop a"), w.transcript())
		}
	})
}
