package activator

import (
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// revision declares a revision of the service default/tiny.
func (b *bench) revision(name string, change func(*api.Function)) api.FunctionName {
	return b.function(name, func(f *api.Function) {
		f.Service = "default/tiny"
		if change != nil {
			change(f)
		}
	})
}

// share sends many requests for name and returns the fraction that each revision got.
func (b *bench) share(name string) map[api.FunctionName]float64 {
	b.t.Helper()
	const n = 20000
	got := map[api.FunctionName]float64{}
	for range n {
		f, err := b.a.names.Load().model(name, true)
		if err != nil {
			b.t.Fatalf("%s: %v", name, err)
		}
		got[f.Name] += 1.0 / n
	}
	return got
}

// expectShares compares with a tolerance of more than 6 standard deviations.
func (b *bench) expectShares(name string, want map[api.FunctionName]float64) {
	b.t.Helper()
	got := b.share(name)
	if !maps.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 0.025 }) {
		b.t.Errorf("%s: got %v, want %v", name, got, want)
	}
}

func TestTraffic(t *testing.T) {
	b := startBench(t, nil)
	one := b.revision("tiny-00001", func(f *api.Function) { f.Aliases = []api.ModelName{"old"} })
	two := b.revision("tiny-00002", func(f *api.Function) {
		f.Aliases = []api.ModelName{"new"}
		f.Runtime.Adapters = []api.Adapter{{Name: "fr"}}
	})
	all := []string{"tiny", "default/tiny"}

	// Nothing is ready yet: requests go to the newest revision, and no revision's name is a name of the model.
	for _, name := range all {
		b.expectShares(name, map[api.FunctionName]float64{two: 1})
	}
	if resp, got := b.post(chatPath, `{"model":"old"}`); resp.StatusCode != 404 {
		t.Errorf("a name of an older revision: got %s %s", resp.Status, got)
	}
	if resp, got := b.post(chatPath, `{"model":"tiny-00001"}`); resp.StatusCode != 404 {
		t.Errorf("a revision's name: got %s %s", resp.Status, got)
	}

	// All to the first revision: the second one's own names do not exist yet.
	b.a.PutTraffic(Traffic{Service: "default/tiny", Shares: []Share{{Function: one, Percent: 100}}})
	for _, name := range append(all, "old") {
		b.expectShares(name, map[api.FunctionName]float64{one: 1})
	}
	for _, name := range []string{"new", "fr"} {
		if resp, _ := b.post(chatPath, `{"model":"`+name+`"}`); resp.StatusCode != 404 {
			t.Errorf("%s of a revision without traffic: got %s", name, resp.Status)
		}
	}

	// 90 to 10: a name that only one of them declares leads to that one.
	b.a.PutTraffic(Traffic{Service: "default/tiny", Shares: []Share{{Function: two, Percent: 10}, {Function: one, Percent: 60}, {Function: one, Percent: 30}, {Function: "default/tiny-00003", Percent: 0}}})
	for _, name := range all {
		b.expectShares(name, map[api.FunctionName]float64{one: 0.9, two: 0.1})
	}
	for name, want := range map[string]api.FunctionName{"old": one, "new": two, "fr": two} {
		b.expectShares(name, map[api.FunctionName]float64{want: 1})
	}
	if got := b.a.names.Load().adapter("fr", b.a.names.Load().byName[two]); got != "fr" {
		t.Errorf("the adapter is %q", got)
	}
	b.expectModels("fr tiny new old tiny", "default/tiny")

	// If a revision is deleted before the traffic changes, the other one takes it all.
	b.a.RemoveFunction(one)
	b.expectShares("tiny", map[api.FunctionName]float64{two: 1})
	b.a.RemoveTraffic("default/tiny")
	b.expectShares("tiny", map[api.FunctionName]float64{two: 1}) // without a route: the newest
}

// expectModels compares the list of models, each prefixed by its parent if it has one.
func (b *bench) expectModels(want string, function api.FunctionName) {
	b.t.Helper()
	var list struct{ Data []model }
	w := httptest.NewRecorder()
	b.a.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/models", nil))
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
		b.t.Fatal(err)
	}
	var got []string
	for _, m := range list.Data {
		got = append(got, string(m.ID))
		if m.Parent != "" {
			got = append(got, string(m.Parent))
		}
		if m.Rouse.Function != function {
			b.t.Errorf("%s is of %s, want %s", m.ID, m.Rouse.Function, function)
		}
	}
	if s := strings.Join(got, " "); s != want {
		b.t.Errorf("models: got %s, want %s", s, want)
	}
}

func TestServicesClash(t *testing.T) {
	b := startBench(t, nil)
	b.function("a-1", func(f *api.Function) { f.Service, f.Model = "default/a", "m" })
	b.function("b-1", func(f *api.Function) { f.Service, f.Model = "default/b", "m" })
	b.function("b-2", func(f *api.Function) { f.Service, f.Aliases = "default/b", []api.ModelName{"b"} })
	b.a.PutTraffic(Traffic{Service: "default/b", Shares: []Share{{Function: "default/b-1", Percent: 50}, {Function: "default/b-2", Percent: 50}}})
	b.expectShares("m", map[api.FunctionName]float64{"default/b-1": 1})
	b.a.PutTraffic(Traffic{Service: "default/a", Shares: []Share{{Function: "default/a-1", Percent: 100}}})
	b.expectShares("m", map[api.FunctionName]float64{"default/a-1": 1})
	want := []string{`the name "m" of default/b finds default/a, which was there first: choose another name, or ask for default/b`}
	if stats, _ := b.a.Stats("default/b-1"); !slices.Equal(stats.LostNames, want) {
		t.Errorf("lost names: got %q, want %q", stats.LostNames, want)
	}
}

// TestServeFunction: the same rules apply to a function that is found by other means than a host.
func TestServeFunction(t *testing.T) {
	b := startBench(t, func(c *Config) { c.Domain, c.PrivateMetrics = NoDomain, true })
	name := b.revision("tiny-00001", nil)
	b.instance(name, "tiny-00001-a", api.Awake)
	if !b.a.Declared(name) || b.a.Declared("default/tiny") {
		t.Error("Declared: want the revision, and not its service")
	}
	for _, tc := range []struct {
		method, path, upgrade string
		function              api.FunctionName
		status                int
	}{
		{"POST", chatPath, "", name, 200},
		{"POST", "/generate", "", name, 200},
		{"GET", "/healthz", "", name, 200},
		{"POST", "/rouse/v1/sleep", "", name, 404},
		{"GET", "/x/../metrics", "", name, 404},
		{"GET", "/ws", "WebSocket", name, 501},
		{"POST", chatPath, "", "default/nobody", 404},
	} {
		r := httptest.NewRequest(tc.method, tc.path, strings.NewReader("{}"))
		r.Header.Set("Upgrade", tc.upgrade)
		w := httptest.NewRecorder()
		b.a.ServeFunction(w, r, tc.function)
		if w.Code != tc.status {
			t.Errorf("%s %s of %s: got %d %s, want %d", tc.method, tc.path, tc.function, w.Code, w.Body, tc.status)
		}
	}
	for host, want := range map[string]int{"tiny-00001.default.localhost": 404, "tiny-00001.default.-": 404} {
		r := httptest.NewRequest(http.MethodPost, "/generate", strings.NewReader("{}"))
		r.Host = host
		w := httptest.NewRecorder()
		b.a.Handler().ServeHTTP(w, r)
		if w.Code != want || !strings.Contains(w.Body.String(), api.CodeUnknownPath) {
			t.Errorf("%s: got %d %s, want the front door", host, w.Code, w.Body)
		}
	}
	w := httptest.NewRecorder()
	if b.a.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil)); w.Code != 404 {
		t.Errorf("/metrics: got %d, want 404", w.Code)
	}
}
