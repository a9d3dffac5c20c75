package knative

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/config"
	"github.com/rouse-dev/rouse/internal/cloudevent"
)

// TestTheAutoscalerIsAway: there is no autoscaler for minutes. Requests are held, not refused. When it returns it
// learns of them at once, with their true age, and no old event comes after a newer one.
func TestTheAutoscalerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards the fields below
		away := true
		var levels []api.Demand
		token, value := &clusterToken{}, "the cluster's"
		token.value.Store(&value)
		e, err := newEvents(Config{PodName: "p", PodIP: "1", Autoscaler: "http://autoscaler"}, withToken{transportFunc(func(r *http.Request) (*http.Response, error) {
			event, err := cloudevent.Receive(r)
			mu.Lock()
			defer mu.Unlock()
			if away {
				return nil, errors.New("connection refused")
			}
			var d api.Demand
			if err != nil || json.Unmarshal(event.Data, &d) != nil {
				t.Errorf("got %+v and %v, want a demand", event, err)
			}
			levels = append(levels, d)
			return answer(202, "")
		}), token}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		known := newInstances()
		instance := transportFunc(host)
		core, err := activator.New(activator.Config{Name: "test", Domain: activator.NoDomain, PrivateMetrics: true},
			activator.Deps{Emitter: e, Waker: control.NewFor(instance, known.token), Transport: instance})
		if err != nil {
			t.Fatal(err)
		}
		g := &rig{core: core, watch: newWatch(core, known, slog.New(slog.DiscardHandler)), instances: known}
		g.watch.revision(revision("tiny-00001", config.Class, "rouse.dev/hold-timeout", "10m"))
		ctx, cancel := context.WithCancel(t.Context())
		var parts sync.WaitGroup
		parts.Go(func() { _ = e.run(ctx) })
		const requests = 3
		answers := make(chan int, requests) // one each
		for range requests {
			go func() {
				status, _ := g.serve("tiny-00001")
				answers <- status
			}()
		}
		time.Sleep(5 * time.Minute)
		if s, _ := core.Stats(function); s.Waiting != requests || len(answers) != 0 {
			t.Fatalf("%d wait and %d are answered, want all held", s.Waiting, len(answers))
		}
		mu.Lock()
		away = false
		mu.Unlock()
		time.Sleep(5 * time.Second)
		mu.Lock()
		if len(levels) == 0 || levels[len(levels)-1].Waiting != requests || levels[len(levels)-1].OldestAge < 5*time.Minute {
			t.Errorf("it heard %+v, want the %d that wait since 5 minutes", levels, requests)
		}
		for k := 1; k < len(levels); k++ {
			if levels[k].OldestAge < levels[k-1].OldestAge {
				t.Errorf("an older level came after a newer one: %+v", levels)
			}
		}
		mu.Unlock()
		core.ObserveInstance(awake("tiny-00001", "a", "10.0.0.1"))
		for range requests {
			if status := <-answers; status != 200 {
				t.Errorf("got %d", status)
			}
		}
		time.Sleep(2 * time.Second)
		mu.Lock()
		if last := levels[len(levels)-1]; last.Waiting != 0 || last.Running != 0 {
			t.Errorf("the last level is %+v, want none", last)
		}
		mu.Unlock()
		cancel()
		parts.Wait()
		_ = core.Run(ctx)
	})
}
