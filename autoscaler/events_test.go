package autoscaler

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
)

func TestReceive(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		f := w.add("a", api.GiB, nil)
		demand := api.Demand{Function: f.spec.Name, Activator: "x", Waiting: 1, LastRequest: time.Now(), At: time.Now()}
		if err := w.a.Receive(api.NewEvent(api.EventDemand, "/test", f.spec.Name, demand)); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if w.count("start a-0001") != 1 {
			t.Errorf("the demand started nothing")
		}
		for _, c := range []struct {
			name string
			e    api.Event
			want string
		}{
			{"a foreign type", api.NewEvent("dev.other.v1", "/test", "x/y", 1), "dev.other.v1"},
			{"the wrong shape", api.NewEvent(api.EventDemand, "/test", "x/y", []int{1}), "cannot unmarshal"},
			{"no function", api.NewEvent(api.EventDemand, "/test", "x/y", api.Demand{}), "want a function"},
			{"a negative count", api.NewEvent(api.EventDemand, "/test", "x/y", api.Demand{Function: "x/y", Waiting: -1}), "at least 0"},
			{"no such state", api.NewEvent(api.EventInstanceState, "/test", "x/y", api.InstanceStatus{Function: "x/y", Instance: "y-1", State: "zombie"}), "zombie"},
			{"a bad name", api.NewEvent(api.EventFunction, "/test", "x/y", api.Function{Name: "x/Y_"}), "a-z, 0-9"},
			{"negative memory", api.NewEvent(api.EventFunction, "/test", "x/y", api.Function{Name: "x/y", Memory: api.Memory{Host: -1}}), "memory"},
		} {
			if err := api.AsError(w.a.Receive(c.e)); err.Status != http.StatusBadRequest || !strings.Contains(err.Message, c.want) {
				t.Errorf("%s: got %d %s, want 400 and %q", c.name, err.Status, err.Message, c.want)
			}
		}
		// Functions come and go as events too.
		w.mu.Lock()
		w.functions["x/b"] = &fakeFunction{spec: api.Function{Name: "x/b", Memory: api.Memory{Host: api.MiB}}.WithDefaults(), load: time.Second}
		w.mu.Unlock()
		if err := w.a.Receive(api.NewEvent(api.EventFunction, "/test", "x/b", api.Function{Name: "x/b", Memory: api.Memory{Host: api.MiB}})); err != nil {
			t.Error(err)
		}
		if v, found := w.a.Status("x/b"); !found || v.Function.Concurrency == 0 {
			t.Errorf("got %+v (%t), want the function with its defaults", v, found)
		}
		if err := w.a.Receive(api.NewEvent(api.EventFunctionGone, "/test", "x/b", api.Function{Name: "x/b"})); err != nil {
			t.Error(err)
		}
		if _, found := w.a.Status("x/b"); found {
			t.Error("a removed function is still there")
		}
		w.a.ObserveDemand(api.Demand{Function: f.spec.Name, Activator: "x", At: time.Now()})
	})
}

func FuzzReceive(f *testing.F) {
	f.Add(api.EventDemand, []byte(`{"function":"x/y","waiting":1}`))
	f.Add(api.EventInstanceState, []byte(`{"function":"x/y","instance":"y-1","state":"awake"}`))
	f.Add(api.EventFunction, []byte(`{"name":"x/y"}`))
	f.Add(api.EventFunction, []byte(`{"name":"x/y","minScale":1000000000,"maxScale":1000000000,"memory":{"devices":1000000}}`))
	f.Add(api.EventDemand, []byte(`{"function":"x/y","waiting":9223372036854775807,"running":9223372036854775807,"oldestAge":9223372036854775807}`))
	f.Add(api.EventInstanceState, []byte(`{"function":"x/y","instance":"y-1","state":"asleep","level":7,"memory":{"host":-9223372036854775808}}`))
	f.Fuzz(func(t *testing.T, eventType string, data []byte) {
		synctest.Test(t, func(t *testing.T) {
			w := world(t, api.GiB, Config{}.Policy)
			w.functions["x/y"] = &fakeFunction{spec: api.Function{Name: "x/y"}.WithDefaults(), load: time.Second}
			w.run(func() {
				w.a.PutFunction(w.functions["x/y"].spec)
				for range 3 {
					_ = w.a.Receive(api.Event{ID: "1", Type: eventType, Data: data}) // an error is fine, a panic is not
					synctest.Wait()
				}
			})
			w.mu.Lock()
			for _, i := range w.instances {
				i.dead = true
			}
			w.mu.Unlock()
			w.wg.Wait()
		})
	})
}
