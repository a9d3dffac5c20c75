package activator

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// adapters reports that an instance has loaded these adapters.
func (b *bench) adapters(f *fakeInstance, names ...api.ModelName) {
	f.mu.Lock()
	f.status.Adapters = names
	f.mu.Unlock()
	b.a.ObserveInstance(f.set(api.Awake))
}

func TestAdapters(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", func(f *api.Function) { f.Runtime.Adapters = []api.Adapter{{Name: "declared", Path: "/a"}} })
	with, without := b.instance(name, "m-0001", api.Awake), b.instance(name, "m-0002", api.Awake)
	if resp, got := b.post(chatPath, `{"model":"fr"}`); resp.StatusCode != 404 {
		t.Errorf("before it is loaded: got %s %s, want 404", resp.Status, got)
	}
	b.adapters(with, "fr")
	for range 5 {
		if resp, got := b.post(chatPath, `{"model":"fr"}`); resp.StatusCode != 200 {
			t.Errorf("got %s %s", resp.Status, got)
		}
	}
	if resp, got := b.post(chatPath, `{"model":"fr"}`, "Host", "m.default.localhost"); resp.StatusCode != 200 {
		t.Errorf("at its own host: got %s %s", resp.Status, got)
	}
	if a, b := with.served.Load(), without.served.Load(); a != 6 || b != 0 {
		t.Errorf("the instance with the adapter served %d and the other %d, want 6 and 0", a, b)
	}
	if resp, got := b.post(chatPath, `{"model":"declared"}`); resp.StatusCode != 200 {
		t.Errorf("declared: got %s %s", resp.Status, got)
	}
	var list struct{ Data []model }
	if _, got := b.send("GET", "/v1/models"); json.Unmarshal([]byte(got), &list) != nil || len(list.Data) != 3 ||
		list.Data[0].ID != "declared" || list.Data[0].Parent != "m" || list.Data[1].ID != "fr" || list.Data[2].Parent != "" {
		t.Errorf("models: got %s", got)
	}
	var one model
	if _, got := b.send("GET", "/v1/models/fr"); json.Unmarshal([]byte(got), &one) != nil || one.Parent != "m" || one.Rouse.Function != name {
		t.Errorf("model fr: got %s", got)
	}
	b.adapters(with)
	if resp, got := b.post(chatPath, `{"model":"fr"}`); resp.StatusCode != 404 {
		t.Errorf("after it was unloaded: got %s %s, want 404", resp.Status, got)
	}
}

// TestStandbyAdapters: an adapter on standby has a name too, and an instance that has loaded it is preferred.
func TestStandbyAdapters(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	loaded, standby, without := b.instance(name, "m-0001", api.Awake), b.instance(name, "m-0002", api.Awake), b.instance(name, "m-0003", api.Awake)
	standby.mu.Lock()
	standby.status.Standby = []api.ModelName{"fr"}
	standby.mu.Unlock()
	b.adapters(standby)
	ask := func() {
		for range 4 {
			if resp, got := b.post(chatPath, `{"model":"fr"}`); resp.StatusCode != 200 {
				t.Errorf("got %s %s", resp.Status, got)
			}
		}
	}
	ask()
	if n := standby.served.Load(); n != 4 {
		t.Errorf("the one that can load it served %d, want 4", n)
	}
	b.adapters(loaded, "fr")
	ask()
	if n := loaded.served.Load(); n != 4 || without.served.Load() != 0 {
		t.Errorf("the one that has it loaded served %d, want 4; the one without %d", n, without.served.Load())
	}
}

// TestAdaptersOfNobody: the adapters in the last report keep their names without an instance, unless they are no
// longer declared.
func TestAdaptersOfNobody(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", func(f *api.Function) { f.Runtime.Adapters = []api.Adapter{{Name: "declared"}} })
	known := func(want string) {
		t.Helper()
		var got []string
		for _, m := range b.a.names.Load().models {
			got = append(got, string(m.name))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("got %v, want %s", got, want)
		}
	}
	b.a.Brings(name, []api.ModelName{"early"})
	b.a.Brings(api.NewFunctionName("", "nobody"), []api.ModelName{"lost"})
	known("declared early m")
	one := b.instance(name, "m-0001", api.Awake)
	b.adapters(one, "brought", "declared")
	b.a.Brings(name, []api.ModelName{"late"})
	b.a.ObserveInstance(one.set(api.Gone))
	known("brought declared m")
	b.function("m", nil)
	known("brought m")
	two := b.instance(name, "m-0002", api.Starting)
	known("brought m")
	b.a.ObserveInstance(two.set(api.Awake))
	known("m")
}

// TestClashingAdapters: an adapter never takes a function's name; of two adapters the first function's counts; each
// is listed once.
func TestClashingAdapters(t *testing.T) {
	var log bytes.Buffer
	b := &bench{t: t}
	transport := api.NewTransport(1)
	a, err := New(Config{Name: "test"}, Deps{Emitter: b, Waker: control.New(transport, nil), Transport: transport, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	b.a = a
	with := func(names ...api.ModelName) func(*api.Function) {
		return func(f *api.Function) {
			for _, n := range names {
				f.Runtime.Adapters = append(f.Runtime.Adapters, api.Adapter{Name: n})
			}
		}
	}
	b.function("z", with("shared"))
	b.function("a", with("shared", "z", "a"))
	b.function("other", nil)
	names := a.names.Load()
	for name, want := range map[string]api.FunctionName{"z": "default/z", "shared": "default/a", "a": "default/a"} {
		f, err := names.model(name, true)
		if err != nil || f.Name != want {
			t.Errorf("%s: got %v, %v, want %s", name, f, err, want)
		}
	}
	if got := names.adapter("a", names.byName["default/a"]); got != "" {
		t.Errorf("the function's own name is the adapter %q, want the model itself", got)
	}
	for _, want := range []string{
		`the name \"z\" of an adapter of default/a finds default/z`,
		`the name \"a\" of an adapter of default/a finds default/a`,
		`the name \"shared\" of an adapter of default/z finds default/a, which was there first`,
	} {
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("the log says %d times %s, want once:\n%s", n, want, log.String())
		}
	}
}
