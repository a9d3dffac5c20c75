package knative

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	kubetesting "k8s.io/client-go/testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// TestTheAPIServerIsAway for minutes: what exists is woken, put to sleep and fenced, for that
// needs nobody else; what needs the API server fails, is said to, and works when it is back.
func TestTheAPIServerIsAway(t *testing.T) {
	inCluster(t, 0, nil, func(t *testing.T, c *cluster) {
		c.declare(scaling{initialized: true})
		id, err := c.begin("tiny-00001-0001", api.Grant{Epoch: 7})()
		if err != nil {
			t.Fatal(err)
		}
		c.addressed(string(id), "10.0.0.1")
		if _, err := c.join(string(id), "10.0.0.1"); err != nil {
			t.Fatal(err)
		}
		if err := c.report(string(id), "10.0.0.1", api.Awake, 10); err != nil {
			t.Fatal(err)
		}
		c.mu.Lock()
		seq := uint64(10)
		c.instances["10.0.0.1:8080"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seq++
			s := api.InstanceStatus{Instance: id, Function: tiny, Seq: seq, State: api.Awake}
			if r.URL.Path != control.PathWake {
				s.State, s.Level = api.Asleep, api.Level1
			}
			_ = json.NewEncoder(w).Encode(s)
		})
		c.mu.Unlock()
		var away atomic.Bool
		away.Store(true)
		gone := func(kubetesting.Action) (bool, runtime.Object, error) {
			return away.Load(), nil, errors.New("dial tcp 10.96.0.1:443: connect: connection refused")
		}
		c.kube.PrependReactor("*", "*", gone)
		c.serving.PrependReactor("*", "*", gone)
		c.network.PrependReactor("*", "*", gone)

		s := api.InstanceStatus{Instance: id, Function: tiny}
		for minute := range 5 {
			time.Sleep(time.Minute)
			synctest.Wait()
			epoch := uint64(10 * (minute + 1))
			if got, err := c.fleet.Sleep(t.Context(), s, api.Level1, epoch, api.Drain{Limit: time.Second}); err != nil || got.State != api.Asleep {
				t.Errorf("minute %d: sleep: %s, %v", minute, got.State, err)
			}
			if _, err := c.fleet.Fence(t.Context(), s, epoch+1); err != nil {
				t.Errorf("minute %d: fence: %v", minute, err)
			}
			if err := c.fleet.Grant(t.Context(), api.Grant{Instance: id, Function: tiny, Epoch: epoch + 2}); err != nil {
				t.Errorf("minute %d: grant: %v", minute, err)
			}
			if got, err := c.fleet.Wake(t.Context(), s, api.Grant{Instance: id, Epoch: epoch + 3}); err != nil || got.State != api.Awake {
				t.Errorf("minute %d: wake: %s, %v", minute, got.State, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			if _, err := c.fleet.Start(ctx, api.Function{Name: tiny}, "tiny-00001-0002", api.Grant{Epoch: epoch}); err == nil {
				t.Errorf("minute %d: a start without the API server succeeded", minute)
			}
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), 30*time.Second)
			if err := c.fleet.Stop(ctx, s, api.Drain{}); err == nil {
				t.Errorf("minute %d: a stop without the API server succeeded", minute)
			}
			cancel()
			if c.last(string(id)).State == api.Gone {
				t.Fatalf("minute %d: the core was told that %s is gone", minute, id)
			}
		}
		away.Store(false)
		time.Sleep(10 * time.Second)
		if err := c.fleet.Stop(t.Context(), s, api.Drain{}); err != nil {
			t.Errorf("stop, with the API server back: %v", err)
		}
		if id, err := c.begin("tiny-00001-0003", api.Grant{Epoch: 99})(); err != nil || id == "" {
			t.Errorf("start, with the API server back: %s, %v", id, err)
		}
	})
}
