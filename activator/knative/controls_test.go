package knative

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/config"
)

const function = "default/tiny-00001"

// order sends a request to the control port's handler.
func order(h http.Handler, method, path, token string, body any) *httptest.ResponseRecorder {
	raw, _ := json.Marshal(body) // our own types
	if text, ok := body.(string); ok {
		raw = []byte(text)
	}
	r := httptest.NewRequest(method, path, strings.NewReader(string(raw)))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestControls(t *testing.T) {
	var wakes []string
	g := newRig(t, func(r *http.Request) (*http.Response, error) {
		_ = r.Body.Close()
		if r.URL.Path == control.PathWake {
			wakes = append(wakes, r.Header.Get("Authorization"))
			st := awake("tiny-00001", "a", "10.0.0.1")
			st.Seq = 3
			raw, _ := json.Marshal(st)
			return answer(200, string(raw))
		}
		return answer(200, "ok")
	})
	g.watch.revision(revision("tiny-00001", config.Class))
	token := &clusterToken{}
	h := (&controls{core: g.core, instances: g.instances, observe: g.core.ObserveInstance, failed: g.core.Fail, token: token}).handler()
	if w := order(h, "POST", control.PathGrants, "", api.Grant{}); w.Code != 503 || !strings.Contains(w.Body.String(), control.ControlSecret) {
		t.Errorf("before there is a token: got %d %s", w.Code, w.Body)
	}
	value := "the cluster's"
	token.value.Store(&value)
	asleep := awake("tiny-00001", "a", "10.0.0.1")
	asleep.State, asleep.Level = api.Asleep, api.Level1
	grant := api.Grant{Instance: "a", Function: function, Epoch: 1, Expires: time.Now().Add(time.Hour)}
	for _, tc := range []struct {
		method, path, token string
		body                any
		status              int
		want                string
	}{
		{"POST", control.PathGrants, "", grant, 401, "bearer token"},
		{"POST", control.PathGrants, "wrong", grant, 401, "bearer token"},
		{"GET", "/metrics", "", nil, 401, "bearer token"},
		{"GET", "/metrics", value, nil, 404, "no such path"},
		{"POST", "/v1/chat/completions", value, nil, 404, "no such path"},
		{"POST", control.PathGrants, value, "{", 400, "its JSON ends too early"},
		{"POST", control.PathGrants, value, api.Grant{Epoch: 1}, 400, "want both"},
		{"POST", control.PathInstances, value, control.InstanceReport{}, 400, "want all three"},
		{"POST", control.PathInstances, value, control.InstanceReport{Status: api.InstanceStatus{Instance: "a", Function: function, State: api.Awake}}, 400, "has no endpoint"},
		{"POST", control.PathFail, value, control.FailRequest{Function: function, Status: 200}, 400, "400 to 599"},
		{"GET", control.PathStats + "?function=default/x", value, nil, 404, "NAMESPACE/REVISION"},
		{"GET", admin.PicksPath("x"), "", nil, 401, "bearer token"},
		{"GET", admin.PicksPath("x"), value, nil, 200, "[]"},
		{"GET", control.PathInstances, value, nil, 405, "another method"},
		{"POST", control.PathInstances, value, control.InstanceReport{Status: asleep, Token: "its own"}, 204, ""},
		{"POST", control.PathGrants, value, grant, 204, ""},
		{"POST", control.PathStats + "?function=" + function, value, nil, 204, ""},
		{"GET", control.PathStats + "?function=" + function, value, nil, 200, `"state":"asleep"`},
	} {
		if w := order(h, tc.method, tc.path, tc.token, tc.body); w.Code != tc.status || !strings.Contains(w.Body.String(), tc.want) {
			t.Errorf("%s %s: got %d %s, want %d %s", tc.method, tc.path, w.Code, w.Body, tc.status, tc.want)
		}
	}
	if status, got := g.serve("tiny-00001"); status != 200 || len(wakes) != 1 || wakes[0] != "Bearer its own" {
		t.Errorf("asleep, with a grant: got %d %s after the wakes %q, want one with the instance's own token", status, got, wakes)
	}
	order(h, "POST", control.PathFail, value, control.FailRequest{Function: function, Status: 503, Code: api.CodeNoCapacity, Message: "no device", RetryAfter: 30 * time.Second})
	order(h, "POST", control.PathInstances, value, control.InstanceReport{Status: api.InstanceStatus{Instance: "a", Function: function, State: api.Gone}})
	if status, got := g.serve("tiny-00001"); status != 503 || !strings.Contains(got, "no device") {
		t.Errorf("after a failure: got %d %s", status, got)
	}
	if got := g.instances.token(asleep.Endpoint); got != "" {
		t.Error("the credential of an instance that is gone is still known")
	}
	if w := order(h, "POST", control.PathRevoke, value, grant); w.Code != 204 {
		t.Errorf("revoke: got %d %s", w.Code, w.Body)
	}
	if w := order(h, "POST", control.PathFail, value, control.FailRequest{Function: function}); w.Code != 204 {
		t.Errorf("a failure taken back: got %d %s", w.Code, w.Body)
	}
	if s, _ := g.core.Stats(function); s.Failed != "" {
		t.Errorf("still failed: %s", s.Failed)
	}
}

// TestProber: requests wait, a pod exists, and its instance has not reported.
func TestProber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex // guards the variables below
		var asked []string
		knowsToken := false
		g := newRig(t, func(r *http.Request) (*http.Response, error) {
			if r.Body != nil {
				_ = r.Body.Close()
			}
			if !strings.HasPrefix(r.URL.Path, "/rouse/") {
				return answer(200, "served")
			}
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, time.Since(began).String()+" "+r.Method+" "+r.URL.String()+" "+r.Header.Get("Authorization"))
			switch {
			case r.URL.Path == control.PathReport:
				return answer(202, "")
			case knowsToken:
				raw, _ := json.Marshal(awake("tiny-00001", "a", "10.0.0.1"))
				return answer(200, string(raw))
			}
			return nil, errors.New("nobody asked for that")
		})
		g.watch.revision(revision("tiny-00001", config.Class))
		g.watch.pod(pod("tiny-00001", "a", "10.0.0.1"))
		g.watch.pod(pod("tiny-00002", "of-another", "10.0.0.2"))
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = g.prober.run(ctx) }()
		served := make(chan int, 1) // one answer
		time.Sleep(10 * time.Second)
		go func() {
			status, _ := g.serve("tiny-00001")
			served <- status
		}()
		time.Sleep(8 * time.Second)
		g.instances.learn(control.InstanceReport{Status: awake("tiny-00001", "a", "10.0.0.1"), Token: "its own"})
		mu.Lock()
		knowsToken = true
		mu.Unlock()
		if got := <-served; got != 200 {
			t.Errorf("got %d", got)
		}
		mu.Lock()
		defer mu.Unlock()
		want := []string{
			"12s POST http://10.0.0.1:9000/rouse/v1/report ", "17s POST http://10.0.0.1:9000/rouse/v1/report ",
			"23s GET http://10.0.0.1:9000/rouse/v1/state Bearer its own",
		}
		if strings.Join(asked, "\n") != strings.Join(want, "\n") {
			t.Errorf("asked:\n%s\nwant:\n%s", strings.Join(asked, "\n"), strings.Join(want, "\n"))
		}
		cancel()
	})
}

func TestEventsCarryTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		token := &clusterToken{}
		e, err := newEvents(Config{PodName: "p", PodIP: "1", Autoscaler: "http://autoscaler"}, withToken{transportFunc(func(r *http.Request) (*http.Response, error) {
			_, _ = io.Copy(io.Discard, r.Body)
			got = append(got, r.URL.String()+" "+r.Header.Get("Authorization"))
			return answer(202, "")
		}), token}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1) // the result of run
		go func() { done <- e.run(ctx) }()
		e.Emit(api.NewEvent(api.EventDemand, "/activator/p", function, api.Demand{}))
		time.Sleep(time.Second) // nothing is sent without a token
		value := "the cluster's"
		token.value.Store(&value)
		e.Emit(api.NewEvent(api.EventDemand, "/activator/p", function, api.Demand{}))
		time.Sleep(time.Second)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(got) != 1 || got[0] != "http://autoscaler/rouse/v1/events Bearer the cluster's" {
			t.Errorf("sent %q, want the second one, with the token", got)
		}
		if e.Dropped() != 0 {
			t.Errorf("%d dropped", e.Dropped())
		}
	})
	if _, err := newEvents(Config{Autoscaler: "http://a", Sink: "no url"}, http.DefaultTransport, nil); err == nil || !strings.Contains(err.Error(), "K_SINK") {
		t.Errorf("a wrong sink: got %v", err)
	}
}

func TestConfig(t *testing.T) {
	good := Config{PodName: "p", PodIP: "10.0.0.1"}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Config){
		"POD_NAME": func(c *Config) { c.PodName = "" },
		"POD_IP":   func(c *Config) { c.PodIP = "" },
		"times":    func(c *Config) { c.Drain = -1 },
		"number":   func(c *Config) { c.Stock.MaxIdle = -1 },
	} {
		c := good
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if c := good.withDefaults(); c.Autoscaler != control.DefaultControlURL || c.Propagation != 45*time.Second || c.Stock.MaxIdle != 1000 {
		t.Errorf("defaults: %+v", c)
	}
}
