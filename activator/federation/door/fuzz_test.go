package door

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/api"
)

// told holds what an activator was last told.
type told struct {
	functions map[api.FunctionName]api.Function
	instances map[api.InstanceID]api.InstanceStatus
}

func (a *told) PutFunction(f api.Function)            { a.functions[f.Name] = f }
func (a *told) RemoveFunction(name api.FunctionName)  { delete(a.functions, name) }
func (a *told) ObserveInstance(st api.InstanceStatus) { a.instances[st.Instance] = st }
func (*told) Fail(api.FunctionName, *api.Error)       {}
func newTold() *told {
	return &told{functions: map[api.FunctionName]api.Function{}, instances: map[api.InstanceID]api.InstanceStatus{}}
}
func newSession(cluster string, functions ...string) *session {
	return &session{pool: protocol.NewPool(nil), hello: protocol.Hello{Cluster: cluster, Agent: "a", Run: cluster}, declared: Declaration{Name: cluster, Functions: functions}, wake: make(chan struct{}, 1), ended: make(chan struct{}),
		demand: map[api.FunctionName]api.Demand{}, denied: map[api.FunctionName]bool{}}
}

// FuzzUpdate: whatever an agent sends, it offers only functions that its cluster may serve, and takes no name from its
// owner.
func FuzzUpdate(f *testing.F) {
	f.Add([]byte(`{"functions":[{"name":"east/x","model":"chat","aliases":["default/chat","y"],"adapters":["chat"],"state":"awake","places":3}],"complete":true}`))
	f.Add([]byte(`{"functions":[{"name":"default/chat","model":"chat","state":"awake","places":3}]}`))
	f.Add([]byte(`{"functions":[{"name":"east/x","model":"x","state":"nonsense","failed":{"status":7,"message":""}},{"name":"east/x"}],"leaving":true,"doubles":9}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var up protocol.Up
		if json.Unmarshal(raw, &up) != nil || up.Validate() != nil || up.Hello != nil {
			return
		}
		a := newTold()
		front, err := New(Config{Name: "front"}, Deps{Activator: a})
		if err != nil {
			t.Fatal(err)
		}
		west, east := newSession("west", "default/chat"), newSession("east", "east/*")
		for s, said := range map[*session]*protocol.Up{west: {Functions: []protocol.Function{{Name: "default/chat", Model: "chat", State: api.Awake, Places: 1}}}, east: {}} {
			if err := front.addSession(s); err != nil {
				t.Fatal(err)
			}
			if err := front.applyUpdate(s, said); err != nil {
				t.Fatal(err)
			}
		}
		if err := front.applyUpdate(east, &up); err != nil {
			t.Fatal(err)
		}
		for id, st := range a.instances {
			if id != "west/a/default/chat" && !east.declared.allows(st.Function) {
				t.Errorf("offered: %+v", st)
			}
		}
		for name, fn := range a.functions {
			if name != "default/chat" && (fn.Model == "chat" || slices.Contains(fn.Aliases, "chat")) {
				t.Errorf("%s has the name of another: %+v", name, fn)
			}
		}
		for _, fn := range front.functions {
			fn.timer.Stop()
		}
	})
}
