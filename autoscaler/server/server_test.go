package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/cloudevent"
)

// event is a CloudEvent in the structured mode.
func event(t *testing.T, eventType string, data any) string {
	t.Helper()
	raw, err := cloudevent.Encode(api.NewEvent(eventType, "/test", "default/tiny-00002", data))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

const structured = "application/cloudevents+json"

// Every path asks for the credential that is its own, and no other will do.
func TestCredentials(t *testing.T) {
	state := event(t, api.EventInstanceState, api.InstanceStatus{Instance: "tiny-1", Function: "default/tiny-00002", State: api.Awake, Seq: 1})
	demand := event(t, api.EventDemand, api.Demand{Function: "default/tiny-00002", Activator: "a", Waiting: 1})
	join := `{"instance":"tiny-1","namespace":"default","revision":"tiny-00002","port":8080}`
	const none, other = "", "some-other-token-of-somebody"
	for _, c := range []struct {
		name, method, path, body string
		want                     map[string]int // by token
	}{
		{"info", "GET", admin.PathInfo, "", map[string]int{none: 401, other: 401, podToken: 401, clusterToken: 200}},
		{"devices", "GET", admin.PathDevices, "", map[string]int{none: 401, other: 401, podToken: 401, clusterToken: 200}},
		{"record", "GET", admin.PathRecord, "", map[string]int{none: 401, other: 401, podToken: 401, clusterToken: 200}},
		{"picks", "GET", admin.PicksPath("req_x"), "", map[string]int{none: 401, other: 401, podToken: 401, clusterToken: 200}},
		{"list", "GET", admin.PathFunctions, "", map[string]int{none: 401, other: 401, podToken: 401, clusterToken: 200}},
		{"describe", "GET", admin.PathFunctions + "/default/tiny", "", map[string]int{none: 401, other: 401, podToken: 401, clusterToken: 200}},
		{"unknown", "GET", admin.PathFunctions + "/default/none", "", map[string]int{none: 401, other: 401, podToken: 401, clusterToken: 404}},
		{"wakes", "GET", admin.PathFunctions + "/default/tiny/wakes", "", map[string]int{none: 401, other: 401, podToken: 401, clusterToken: 200}},
		{"why", "GET", admin.PathFunctions + "/default/tiny/why", "", map[string]int{none: 401, other: 401, podToken: 401, clusterToken: 200}},
		{"logs", "GET", admin.PathFunctions + "/default/tiny/logs", "", map[string]int{none: 401, other: 401, podToken: 401, clusterToken: 404}},
		{"wake", "POST", admin.PathFunctions + "/default/tiny/wake", "", map[string]int{none: 401, other: 401, podToken: 401, clusterToken: 200}},
		{"sleep", "POST", admin.PathFunctions + "/default/tiny/sleep", "", map[string]int{none: 401, other: 401, podToken: 401, clusterToken: 200}},
		{"stop", "POST", admin.PathFunctions + "/default/tiny/stop", "", map[string]int{none: 401, other: 401, podToken: 401, clusterToken: 200}},
		{"events", "GET", control.PathEvents, "", map[string]int{none: 401, other: 401, podToken: 401, clusterToken: 200}},
		{"state", "POST", control.PathEvents, state, map[string]int{none: 401, "short": 401, other: 403, podToken: 202, clusterToken: 400}},
		{"demand", "POST", control.PathEvents, demand, map[string]int{none: 401, other: 401, podToken: 401, clusterToken: 202}},
		{"join", "POST", control.PathRegister, join, map[string]int{none: 401, "short": 401, other: 200, podToken: 200}},
		{"no path", "GET", "/v1/models", "", map[string]int{none: 404, clusterToken: 404}},
		{"no method", "DELETE", control.PathEvents, "", map[string]int{none: 405, clusterToken: 405}},
	} {
		for token, want := range c.want {
			for _, header := range []string{"Authorization", HeaderToken} {
				value := token
				if header == "Authorization" && token != "" {
					value = "bearer " + token // the scheme has no case
				}
				b := newBench(t)
				w := b.ask(c.method, c.path, c.body, header, value, "Content-Type", structured)
				if w.Code != want {
					t.Errorf("%s with the token %q in %s: %d, want %d: %s", c.name, token, header, w.Code, want, w.Body)
				}
				if w.Code >= 400 {
					var e struct {
						Error struct{ Message string }
					}
					if json.Unmarshal(w.Body.Bytes(), &e) != nil || len(e.Error.Message) < 20 {
						t.Errorf("%s: the refusal says little: %s", c.name, w.Body)
					}
				}
			}
		}
	}
}

// While there is no token, nobody has it.
func TestNoTokenYet(t *testing.T) {
	b := newBench(t)
	h, err := Handler(Config{Decider: b.brain, Fleet: b.pods, Activators: b.peers, Events: b.events, Token: func() string { return "" },
		Info: func() Info { return Info{} }, Log: b.peers.log})
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"", "Bearer ", "Bearer"} {
		r := httptest.NewRequest("GET", admin.PathInfo, nil)
		r.Header.Set("Authorization", value)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusUnauthorized {
			t.Errorf("%q: %d, want 401", value, w.Code)
		}
	}
}

func TestJoin(t *testing.T) {
	b := newBench(t)
	w := b.ask("POST", control.PathRegister, `{"instance":"tiny-1","namespace":"default","revision":"tiny-00001","port":8080,"later":1}`, "Authorization", "Bearer "+podToken)
	var got control.RegisterAnswer
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	want := control.RegisterAnswer{Function: api.Function{Name: "default/tiny-00001"}, Endpoint: "http://10.244.0.7:8080", Epoch: uint64(len(podToken))}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for body, c := range map[string]struct {
		status int
		says   string
	}{
		`{"instance":"unknown","namespace":"default","revision":"r","port":1}`:                             {404, "no pod unknown"},
		`{"namespace":"default","revision":"r","port":8080}`:                                               {400, "instance"},
		`{"instance":"i","revision":"r","port":8080}`:                                                      {400, "namespace"},
		`{"instance":"i","namespace":"default","port":8080}`:                                               {400, "revision"},
		`{"instance":"i","namespace":"default","revision":"r"}`:                                            {400, "port 0"},
		`{"instance":"i","namespace":"default","revision":"r","port":70000}`:                               {400, "port 70000"},
		`{"instance":"` + strings.Repeat("i", 300) + `","namespace":"default","revision":"r","port":1}`:    {400, "300"},
		`{"instance":"i","namespace":"default","revision":"r","port":1,"v":"` + strings.Repeat("x", 1<<20): {413, "larger than the limit"},
		`hello`: {400, "JSON object"}, `{"port":"x"}`: {400, "JSON object"}, ``: {400, "JSON object"}, `[]`: {400, "JSON object"},
	} {
		w := b.ask("POST", control.PathRegister, body, "Authorization", "Bearer "+podToken)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%.80s: %d %s, want %d and %q", body, w.Code, w.Body, c.status, c.says)
		}
	}
}

func TestEvents(t *testing.T) {
	awake := api.InstanceStatus{Instance: "tiny-1", Function: "default/tiny-00002", State: api.Awake, Seq: 3}
	for name, c := range map[string]struct {
		token, kind, body string
		status            int
		says              string
	}{
		"a state":            {podToken, structured, event(t, api.EventInstanceState, awake), 202, ""},
		"a demand":           {clusterToken, structured, event(t, api.EventDemand, api.Demand{Function: "a/b"}), 202, ""},
		"another type":       {podToken, structured, event(t, "dev.other.v1", awake), 400, api.EventInstanceState},
		"a wrong one of two": {clusterToken, structured, event(t, api.EventFunction, awake), 400, api.EventDemand},
		"no state":           {podToken, structured, event(t, api.EventInstanceState, api.InstanceStatus{Instance: "tiny-1", Function: "a/b", State: "fine"}), 400, "fine"},
		"no instance":        {podToken, structured, event(t, api.EventInstanceState, api.InstanceStatus{State: api.Awake}), 400, "an instance"},
		"another shape":      {podToken, structured, event(t, api.EventInstanceState, []int{1}), 400, "array"},
		"not joined":         {podToken, structured, event(t, api.EventInstanceState, api.InstanceStatus{Instance: "x", Function: "a/b", State: api.Awake}), 404, "join first"},
		"no CloudEvent":      {podToken, "application/json", `{}`, 400, "ce-specversion"},
		"nothing":            {podToken, structured, ``, 400, "CloudEvent"},
		"too much":           {podToken, structured, event(t, api.EventInstanceState, strings.Repeat("x", maxReport)), 413, "larger than 256 KiB"},
	} {
		b := newBench(t)
		w := b.ask("POST", control.PathEvents, c.body, "Authorization", "Bearer "+c.token, "Content-Type", c.kind)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s: %d %s, want %d and %q", name, w.Code, w.Body, c.status, c.says)
		}
		if name == "a state" {
			if d := cmp.Diff([]api.InstanceStatus{awake}, b.pods.reports); d != "" {
				t.Error(d)
			}
		}
		if name == "a demand" {
			if want := []string{"receive " + api.EventDemand + " default/tiny-00002"}; !cmp.Equal(want, b.brain.asked) {
				t.Errorf("asked %q, want %q", b.brain.asked, want)
			}
		}
	}
}

// A service's name means its revision with the most traffic.
func TestFunctions(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"tiny", "tiny-00002"} {
		w := b.ask("GET", admin.PathFunctions+"/default/"+name, "", HeaderToken, clusterToken)
		var f admin.Function
		if err := json.Unmarshal(w.Body.Bytes(), &f); err != nil || f.Function.Name != "default/tiny-00002" || f.Function.Runtime.Env != nil {
			t.Errorf("%s: %s (%v), want the revision 2 without its environment", name, w.Body, err)
		}
	}
	for _, c := range []struct{ path, want string }{
		{"/default/tiny/wake", "wake default/tiny-00002"},
		{"/default/tiny-00001/stop", "stop default/tiny-00001"},
		{"/default/tiny/sleep?level=2", "sleep default/tiny-00002 2"},
		{"/default/tiny/sleep", "sleep default/tiny-00002 0"},
	} {
		b.brain.asked = nil
		if w := b.ask("POST", admin.PathFunctions+c.path, "", HeaderToken, clusterToken); w.Code != 200 || !slices.Equal(b.brain.asked, []string{c.want}) {
			t.Errorf("%s: %d %s, asked %q, want %q", c.path, w.Code, w.Body, b.brain.asked, c.want)
		}
	}
	for _, c := range []struct {
		path   string
		status int
		says   string
	}{
		{"/default/tiny/sleep?level=4", 400, "want 1, 2 or 3"},
		{"/default/tiny/sleep?level=x", 400, "want 1, 2 or 3"},
		{"/default/none/wake", 404, "there are: tiny\""},
		{"/default/%2e%2e/wake", 404, "there is no"},
	} {
		if w := b.ask("POST", admin.PathFunctions+c.path, "", HeaderToken, clusterToken); w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s: %d %s, want %d and %q", c.path, w.Code, w.Body, c.status, c.says)
		}
	}
	b.brain.err = api.Errorf(http.StatusConflict, "", "2 requests wait")
	if w := b.ask("POST", admin.PathFunctions+"/default/tiny/sleep", "", HeaderToken, clusterToken); w.Code != 409 || !strings.Contains(w.Body.String(), "2 requests wait") {
		t.Errorf("an order that is refused: %d %s", w.Code, w.Body)
	}
	b.brain.views = nil
	if w := b.ask("GET", admin.PathFunctions, "", HeaderToken, clusterToken); strings.TrimSpace(w.Body.String()) != "[]" {
		t.Errorf("no functions: %s, want []", w.Body)
	}
	if w := b.ask("GET", admin.PathFunctions+"/default/tiny", "", HeaderToken, clusterToken); !strings.Contains(w.Body.String(), "gpu.autoscaling.rouse.dev") {
		t.Errorf("no functions: %s, want what makes one", w.Body)
	}
}

func TestLogs(t *testing.T) {
	instance := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "line one\n%s?%s", r.URL.Path, r.URL.RawQuery)
	}))
	defer instance.Close()
	b := newBench(t)
	b.pods.endpoint = api.Endpoint(instance.URL)
	w := b.ask("GET", admin.PathFunctions+"/default/tiny/logs?tail=2", "", HeaderToken, clusterToken)
	got := strings.Split(strings.TrimSpace(w.Body.String()), "\n")
	slices.Sort(got)
	rest := control.PathLogs + "?tail=2&follow=false"
	want := []string{"tiny-1 | " + rest, "tiny-1 | line one", "tiny-2 | " + rest, "tiny-2 | line one"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestTailOfEventsFollows(t *testing.T) {
	b := newBench(t)
	s := httptest.NewServer(b.handler)
	defer s.Close()
	b.events.Emit(api.NewEvent(api.EventDecision, "/a", "default/other-00001", api.Decision{}))
	b.events.Emit(api.NewEvent(api.EventDecision, "/a", "default/tiny-00001", api.Decision{Action: "wake"}))
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+control.PathEvents+"?tail=10&follow=true&function=default/tiny", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(HeaderToken, clusterToken)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := json.NewDecoder(resp.Body)
	for _, want := range []string{"default/tiny-00001", "default/tiny-00002"} {
		var e struct{ Subject string }
		if err := lines.Decode(&e); err != nil || e.Subject != want {
			t.Fatalf("%q, %v, want %s", e.Subject, err, want)
		}
		b.events.Emit(api.NewEvent(api.EventDecision, "/a", "default/tiny-00002", api.Decision{Action: "sleep"}))
	}
}

// Bounds of callers without the cluster's token.
func TestUnknownCallersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		join := func() *httptest.ResponseRecorder {
			return b.ask("POST", control.PathRegister, `{}`, "Authorization", "Bearer "+podToken)
		}
		for i := range burst {
			if w := join(); w.Code != 400 {
				t.Fatalf("request %d: %d %s", i, w.Code, w.Body)
			}
		}
		w := join()
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
			t.Fatalf("one more: %d %s", w.Code, w.Body)
		}
		time.Sleep(time.Second)
		if w := join(); w.Code != 400 {
			t.Errorf("a second later: %d %s", w.Code, w.Body)
		}
		c := newCallers()
		for i := range atOnce {
			if _, err := c.enter(addr(i)); err != nil {
				t.Fatalf("caller %d: %v", i, err)
			}
		}
		if _, err := c.enter(addr(atOnce)); err == nil {
			t.Error("more are served at once than may be")
		}
		c = newCallers()
		var leave []func()
		for i := range eachAtOnce {
			one, err := c.enter(addr(1))
			if err != nil {
				t.Fatalf("request %d of one address: %v", i, err)
			}
			leave = append(leave, one)
		}
		if _, err := c.enter(addr(1)); err == nil {
			t.Error("one address has more places than it may")
		}
		if _, err := c.enter(addr(2)); err != nil {
			t.Errorf("another address: %v", err)
		}
		leave[0]()
		if _, err := c.enter(addr(1)); err != nil {
			t.Errorf("with a place given back: %v", err)
		}
		for i := range 3 * maxCallers {
			c.caller(addr(i))
		}
		if n := len(c.known); n > maxCallers {
			t.Errorf("%d addresses are remembered, want %d at most", n, maxCallers)
		}
	})
}

// TestWhoKeepsAFunctionAt0 is in the answer to the demand of requests that wait, and nothing else that it waits for.
func TestWhoKeepsAFunctionAt0(t *testing.T) {
	scale := &admin.Override{Replicas: 0, Until: time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC), By: "kn rouse scale"}
	for name, c := range map[string]struct {
		waiting, desired int
		scale            *admin.Override
		function, scaled string
	}{
		"kept at 0":       {1, 0, scale, "default/tiny-00002", "kn rouse scale wants 0 until 15:04:05"},
		"nobody waits":    {0, 0, scale, "", ""},
		"no scale":        {1, 0, nil, "default/tiny-00002", ""},
		"the scale is up": {1, 2, scale, "default/tiny-00002", ""},
	} {
		b := newBench(t)
		for k := range b.brain.views {
			b.brain.views[k].Scale, b.brain.views[k].Desired, b.brain.views[k].Waits = c.scale, c.desired, "lacks memory that default/other holds"
		}
		w := b.ask("POST", control.PathEvents, event(t, api.EventDemand, api.Demand{Function: "default/tiny-00002", Activator: "a", Waiting: c.waiting}),
			"Authorization", "Bearer "+clusterToken, "Content-Type", structured)
		if f, s := w.Header().Get(control.HeaderFunction), w.Header().Get(control.HeaderScaled); w.Code != 202 || f != c.function || s != c.scaled {
			t.Errorf("%s: %d, function %q, scaled %q; want 202, %q and %q", name, w.Code, f, s, c.function, c.scaled)
		}
	}
}
