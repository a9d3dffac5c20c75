package autoscaler

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// taker is a fleet that takes the first instances that are started, each a moment after its start has
// returned, or before.
type taker struct {
	*fleet
	take  int
	early bool
}

func (w *taker) Start(ctx context.Context, spec api.Function, id api.InstanceID, g api.Grant) (api.InstanceID, error) {
	if w.take == 0 {
		return w.fleet.Start(ctx, spec, id, g)
	}
	w.take--
	id += "-pod"
	gone := func() {
		w.a.ObserveInstance(api.InstanceStatus{Instance: id, Function: spec.Name, State: api.Gone, Taken: true})
	}
	if w.early {
		gone()
		time.Sleep(time.Millisecond)
	} else {
		time.AfterFunc(10*time.Millisecond, gone)
	}
	return id, nil
}

// TestAPodThatIsTakenHasNotFailed: however many pods that start are taken away, nobody is refused, and nothing is waited for.
func TestAPodThatIsTakenHasNotFailed(t *testing.T) {
	for name, early := range map[string]bool{"while it starts": false, "before its name is known": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 4*api.GiB, func(w *fleet) {
				w.a.calls.fx = &taker{fleet: w, take: 10, early: early}
				a := w.add("a", api.GiB, nil)
				w.request(a, 1, time.Millisecond)
				pass(a.load + time.Second)
				w.mu.Lock()
				served, refused := a.served, w.refused[a.spec.Name]
				w.mu.Unlock()
				if served != 1 || len(refused) > 0 {
					t.Errorf("served %d, refused %q; want the one served and none refused\n%s", served, refused, w.transcript())
				}
				synctest.Wait()
				if f := w.a.functions[a.spec.Name]; f.Failures != 0 || f.LastError != "" {
					t.Errorf("%d failures, the last: %q; want none", f.Failures, f.LastError)
				}
			})
		})
	}
}
