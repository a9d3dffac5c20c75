package knative

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
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

// TestAFunctionThatSomebodyKeepsAt0: a request that has waited too long is told what keeps the function at 0, from
// the autoscaler's answers to the demand, and no longer once that has ended.
func TestAFunctionThatSomebodyKeepsAt0(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const who = "kn rouse scale wants 0 until 15:04:05"
		var mu sync.Mutex // guards keeps
		keeps := true
		token, value := &clusterToken{}, "the cluster's"
		token.value.Store(&value)
		e, err := newEvents(Config{PodName: "p", PodIP: "1", Autoscaler: "http://autoscaler"}, withToken{transportFunc(func(r *http.Request) (*http.Response, error) {
			event, err := cloudevent.Receive(r)
			var d api.Demand
			if err != nil || json.Unmarshal(event.Data, &d) != nil {
				t.Errorf("got %+v and %v, want a demand", event, err)
			}
			a, err := answer(202, "")
			if d.Waiting > 0 {
				a.Header.Set(control.HeaderFunction, string(d.Function))
				mu.Lock()
				if keeps {
					a.Header.Set(control.HeaderScaled, who)
				}
				mu.Unlock()
			}
			return a, err
		}), token}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		known := newInstances()
		instance := transportFunc(host)
		core, err := activator.New(activator.Config{Name: "test", Domain: activator.NoDomain, PrivateMetrics: true},
			activator.Deps{Emitter: e, Waker: control.NewFor(instance, known.token), Transport: instance, Waits: e.scaled.why})
		if err != nil {
			t.Fatal(err)
		}
		g := &rig{core: core, watch: newWatch(core, known, slog.New(slog.DiscardHandler)), instances: known}
		g.watch.revision(revision("tiny-00001", config.Class, "rouse.dev/hold-timeout", "20s"))
		ctx, cancel := context.WithCancel(t.Context())
		var parts sync.WaitGroup
		parts.Go(func() { _ = e.run(ctx) })
		if status, body := g.serve("tiny-00001"); status != http.StatusServiceUnavailable || !strings.Contains(body, who) {
			t.Errorf("got %d %s, want 503 and who keeps it at 0", status, body)
		}
		mu.Lock()
		keeps = false
		mu.Unlock()
		if status, body := g.serve("tiny-00001"); status != http.StatusServiceUnavailable || strings.Contains(body, "wants 0") {
			t.Errorf("later: got %d %s, want 503 and nobody named", status, body)
		}
		e.scaled.note(function, who, time.Now())
		time.Sleep(scaledFor + time.Second)
		if why := e.scaled.why(function); why != "" {
			t.Errorf("long after the last answer it is still said that %s", why)
		}
		cancel()
		parts.Wait()
	})
}
