package autoscaler

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

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
		a.planner = spy{a.planner, func(_ time.Time, actions []decide.Action) { plans = append(plans, actions) }}
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
