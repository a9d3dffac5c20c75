package engine_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/worker"
)

// TestStorm starts and cancels requests while workers die at any time. Every completed request gets the same text as
// alone, and nothing is left at the end.
func TestStorm(t *testing.T) {
	t.Run("inside", func(t *testing.T) { storm(t, nil) })
	t.Run("process", func(t *testing.T) { storm(t, worker.Process{}.Launch) })
}

func storm(t *testing.T, launch worker.Launch) {
	alone := open(t, setup{engine: engine.Config{Sync: true, NoPrefix: true}})
	kinds := requests()
	want := make([][][]engine.Event, len(kinds))
	for i := range kinds {
		want[i] = all(t, alone, kinds[i:i+1])
	}
	var current atomic.Pointer[faulty]
	e := open(t, setup{
		sim: infer.SimulatedConfig{Blocks: 40, Step: 200 * time.Microsecond}, engine: engine.Config{Budget: 40, Seats: 12, Draft: 3},
		worker: worker.Config{Launch: launch, Backoff: time.Millisecond},
		launch: func(launch worker.Launch) worker.Launch {
			return func(ctx context.Context) (worker.Running, error) {
				r, err := launch(ctx)
				if err != nil {
					return nil, err
				}
				f := &faulty{Running: r}
				current.Store(f)
				return f, nil
			}
		},
	})
	stop := make(chan struct{})
	var killer, clients sync.WaitGroup
	killer.Go(func() {
		next := uint64(20)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				if steps := e.Stats().Steps; steps >= next {
					next = steps + 20 + rand.Uint64N(60) // enough that every running request made a token
					current.Load().Kill()
				}
			}
		}
	})
	killer.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				if err := e.Check(); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for c := range 8 {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(c)))
			for range 25 {
				i := random.IntN(len(kinds))
				if random.IntN(3) > 0 {
					if diff := cmp.Diff(want[i], all(t, e, kinds[i:i+1]), cmpopts.IgnoreFields(engine.Event{}, "Cached")); diff != "" {
						t.Errorf("request %d (-alone +now):\n%s", i, diff)
					}
					continue
				}
				ctx, cancel := context.WithCancel(t.Context())
				s, err := e.Add(ctx, kinds[i])
				if err != nil {
					t.Error(err)
				}
				for range random.IntN(4) {
					if _, err := s.Next(); err != nil {
						break
					}
				}
				cancel()
			}
		})
	}
	clients.Wait()
	close(stop)
	killer.Wait()
	got := idle(t, e)
	if got.Restarts == 0 {
		t.Error("nobody died: the test does not test what it says")
	}
	if got.Open != 0 || got.BlocksUsed != 0 || got.Running != 0 || got.Waiting != 0 {
		t.Errorf("afterwards: %+v", got)
	}
}
