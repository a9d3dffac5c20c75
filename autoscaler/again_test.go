package autoscaler

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// watchPlans has see called with the actions of each plan.
func watchPlans(a *Autoscaler, see func(now time.Time, actions []decide.Action)) {
	plan := a.decide
	a.decide = func(s decide.Snapshot, now time.Time) ([]decide.Action, time.Time) {
		actions, next := plan(s, now)
		see(now, actions)
		return actions, next
	}
}

// expectRest has plans fail that go on acting though nothing changes.
func expectRest(a *Autoscaler) {
	var last time.Time
	rounds := 0
	watchPlans(a, func(now time.Time, actions []decide.Action) {
		acts := slices.ContainsFunc(actions, func(a decide.Action) bool { return a.Kind != decide.Wait })
		if rounds++; !acts || !now.Equal(last) {
			last, rounds = now, 0
		}
		if rounds > 100 {
			panic(fmt.Sprintf("plans go on acting though nothing changes: %v", actions))
		}
	})
}

// hanging is a world in which no start ends.
type hanging struct{ Effects }

func (hanging) Start(ctx context.Context, _ api.Function, _ api.InstanceID, _ api.Grant) (api.InstanceID, error) {
	<-ctx.Done()
	return "", context.Cause(ctx)
}

// TestWhatIsBegunIsNews checks that the loop plans once more after it has acted, be there
// no other news, and then rests.
func TestWhatIsBegunIsNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, err := New(Config{Devices: []inventory.Device{{ID: api.HostMemory, Capacity: 4 * api.GiB, Total: 4 * api.GiB}}},
			hanging{}, nil, slog.New(slog.NewTextHandler(io.Discard, nil)), nil)
		if err != nil {
			t.Fatal(err)
		}
		var plans [][]decide.Action
		watchPlans(a, func(_ time.Time, actions []decide.Action) { plans = append(plans, actions) })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		synctest.Wait()
		before := len(plans)
		a.PutFunction(api.Function{Name: "default/a", Memory: api.Memory{Host: api.GiB}, MinScale: 1}.WithDefaults())
		synctest.Wait()
		if plans := plans[before:]; len(plans) != 2 || len(plans[0]) != 1 || plans[0][0].Kind != decide.Start || len(plans[1]) != 0 {
			t.Errorf("want a plan that starts, and one that finds nothing more: %v", plans)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestWaitIsToldOnce checks that a function which goes on waiting for the same is told once.
func TestWaitIsToldOnce(t *testing.T) {
	a, err := New(Config{Devices: []inventory.Device{{ID: api.HostMemory, Capacity: 4 * api.GiB, Total: 4 * api.GiB}}},
		nil, nil, slog.New(slog.NewTextHandler(io.Discard, nil)), nil)
	if err != nil {
		t.Fatal(err)
	}
	f := a.record("default/a")
	for range 2 {
		a.calls.act(&decide.Action{Kind: decide.Wait, Function: f.Spec.Name, Reason: "lacks memory"}, time.Now())
	}
	if len(f.decisions) != 1 {
		t.Errorf("it was told %v, want one decision", f.decisions)
	}
}
