package knative

import (
	"encoding/json"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler/apitest"
)

func TestEffects(t *testing.T) {
	apitest.Run(t, func(t *testing.T, test func(*testing.T, apitest.World)) {
		inCluster(t, 0, nil, func(t *testing.T, c *cluster) {
			c.declare(scaling{initialized: true})
			const ip = "10.0.0.1"
			await := func(id api.InstanceID, want api.State) api.InstanceStatus {
				t.Helper()
				synctest.Wait()
				if want == api.Awake {
					c.runs(string(id), ip)
					if _, err := c.join(string(id), ip); err != nil {
						t.Fatal(err)
					}
					if err := c.report(string(id), ip, api.Awake, 5); err != nil {
						t.Fatal(err)
					}
					c.mu.Lock()
					c.instances[ip+":8080"] = &function{s: api.InstanceStatus{Instance: id, Function: tiny, State: api.Awake, Seq: 5}}
					c.mu.Unlock()
					synctest.Wait()
				}
				s := c.last(string(id))
				if s.State != want {
					t.Fatalf("the last report of %s is %s, want %s", id, s.State, want)
				}
				return s
			}
			test(t, apitest.World{Effects: c.fleet, Function: api.Function{Name: tiny}, Await: await,
				Kill: func(id api.InstanceID) { c.deletePod(string(id)) }})
		})
	})
}

// function obeys orders as a function's process does.
type function struct {
	mu sync.Mutex
	s  api.InstanceStatus
}

func (f *function) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var order struct {
		Epoch uint64
		Level api.Level
	}
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
			api.WriteError(w, err)
			return
		}
		if api.StaleEpoch(order.Epoch, f.s.Epoch) {
			api.WriteError(w, api.Errorf(http.StatusConflict, api.CodeStaleEpoch, "epoch %d is older than %d", order.Epoch, f.s.Epoch))
			return
		}
		f.s.Epoch = order.Epoch
		f.s.Seq++
	}
	switch r.URL.Path {
	case control.PathSleep:
		f.s.State, f.s.Level = api.Asleep, max(f.s.Level, order.Level)
	case control.PathWake:
		f.s.State, f.s.Level = api.Awake, 0
	}
	api.WriteJSON(w, http.StatusOK, f.s)
}
