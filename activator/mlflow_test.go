package activator

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/activator/keys"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config/apikey"
)

// echoing makes an instance answer with the path, the Content-Type and the body that it got.
func echoing(i *fakeInstance) {
	i.chat = func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("Content-Type")+" "+string(body))
	}
}

// isMLflow reports whether a body is an error in MLflow's format, with that code and text.
func isMLflow(body, code, want string) bool {
	var e struct {
		Code    string `json:"error_code"`
		Message string
	}
	return json.Unmarshal([]byte(body), &e) == nil && e.Code == code && strings.Contains(e.Message, want)
}

func TestInvocations(t *testing.T) {
	b := startBench(t, nil)
	one := b.instance(b.function("one", func(f *api.Function) { f.Aliases = []api.ModelName{"org/x"} }), "one-0001", api.Awake)
	echoing(one)
	const named, plain = `{"model":"one","inputs":[]}`, `{"inputs":["a"]}`
	check := func(path, contentType, body string, status int, want string) {
		t.Helper()
		resp, got := b.post(path, body, "Content-Type", contentType)
		if status == http.StatusOK && (resp.StatusCode != status || got != want) || status != http.StatusOK && (resp.StatusCode != status || !isMLflow(got, api.MLflowCode(status), want)) {
			t.Errorf("%s %s: got %s %s, want %d %s", path, body, resp.Status, got, status, want)
		}
	}
	seen := func(contentType, body string) string { return "POST /invocations " + contentType + " " + body }
	const js = "application/json"
	// One function needs no name.
	for body, contentType := range map[string]string{
		named: js, plain: js, `{"model":"default","messages":[]}`: js, "a\nx\n": "text/csv", `{"inp`: js, "\xff\xfe{\x00}\x00": js, "--x\r\n": "multipart/form-data; boundary=x", "PAR1": "application/vnd.apache.parquet",
	} {
		check("/invocations", contentType, body, http.StatusOK, seen(contentType, body))
	}
	check("/v1/chat/completions", js, `{"model":"default"}`, http.StatusOK, `POST /v1/chat/completions application/json {"model":"default"}`)
	// Several do.
	two := b.instance(b.function("two", nil), "two-0001", api.Awake)
	echoing(two)
	check("/invocations", js, named, http.StatusOK, seen(js, named))
	for _, path := range []string{"/endpoints/", "/serving-endpoints/"} {
		for _, name := range []string{"one", "org/x", "default/one"} {
			check(path+name+"/invocations", js, plain, http.StatusOK, seen(js, plain))
		}
		check(path+"one/invocations?x=%2F", "multipart/form-data; boundary=x", "x", http.StatusOK, "POST /invocations?x=%2F multipart/form-data; boundary=x x")
		check(path+"on/invocations", js, plain, http.StatusNotFound, "did you mean one?")
	}
	if n := two.served.Load(); n != 0 {
		t.Errorf("the function that was not named has served %d requests", n)
	}
	for _, body := range []string{plain, `{"inp`, ``, `{"model":""}`, `{"model":5}`} {
		check("/invocations", js, body, http.StatusBadRequest, "add the field model, or POST to /serving-endpoints/NAME/invocations")
	}
	check("/invocations", "text/csv", "a\nx\n", http.StatusBadRequest, "POST to /serving-endpoints/NAME/invocations")
	check("/invocations", js, `{"model":"nobody"}`, http.StatusNotFound, `"nobody" does not exist`)
	check("/invocations", js, `{"model":"default"}`, http.StatusNotFound, `"default" does not exist`)
	if resp, got := b.get("/invocations"); resp.StatusCode != http.StatusMethodNotAllowed || !isMLflow(got, "BAD_REQUEST", "want POST") || resp.Header.Get("Allow") != "POST" {
		t.Errorf("a GET: got %s %s", resp.Status, got)
	}
}

// TestInvocationsOfAnyServer passes requests on to a server that may be MLflow's own, and its answers back,
// unchanged.
func TestInvocationsOfAnyServer(t *testing.T) {
	b := startBench(t, nil)
	i := b.instance(b.function("any", func(f *api.Function) { f.Runtime.Kind = api.RuntimeHTTP }), "any-0001", api.Awake)
	for _, path := range []string{"/invocations", "/endpoints/any/invocations", "/serving-endpoints/any/invocations"} {
		for status, answer := range map[int]string{200: `{"predictions": [1]}`, 400: `{"error_code": "BAD_REQUEST"}`, 415: "no", 500: "Internal Server Error", 503: "later"} {
			i.chat = func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				w.Header().Set("X-Seen", fmt.Sprintf("%s %s %q", r.URL.Path, r.Header.Get("Content-Type"), body))
				w.WriteHeader(status)
				_, _ = io.WriteString(w, answer)
			}
			resp, got := b.post(path, "a\n1\n", "Content-Type", "text/csv")
			if seen := resp.Header.Get("X-Seen"); resp.StatusCode != status || got != answer || seen != `/invocations text/csv "a\n1\n"` {
				t.Errorf("%s: got %s %q, of a server that saw %q; want %d %q", path, resp.Status, got, seen, status, answer)
			}
		}
	}
}

func TestInvocationsWithAdapters(t *testing.T) {
	b, _ := withKeys(t, apikey.Key{Name: "all"}, apikey.Key{Name: "base", Rights: apikey.Rights{Models: []string{"m"}}})
	i := b.instance(b.function("m", nil), "m-0001", api.Awake)
	echoing(i)
	b.adapters(i, "fr")
	const body = `{"model":"fr","messages":[]}`
	if resp, got := b.post("/endpoints/m/invocations", body, "Authorization", "Bearer k-all"); resp.StatusCode != http.StatusOK {
		t.Errorf("an adapter in the body: got %s %s", resp.Status, got)
	}
	if resp, got := b.post("/endpoints/m/invocations", body, "Authorization", "Bearer k-base"); resp.StatusCode != http.StatusForbidden || !isMLflow(got, "PERMISSION_DENIED", "fr") {
		t.Errorf("an adapter that the key does not have: got %s %s", resp.Status, got)
	}
	if resp, got := b.post("/endpoints/fr/invocations", `{}`, "Authorization", "Bearer k-all"); resp.StatusCode != http.StatusBadRequest || !isMLflow(got, "BAD_REQUEST", "with the adapter in the field model") {
		t.Errorf("an adapter in the path: got %s %s", resp.Status, got)
	}
}

func TestEndpoints(t *testing.T) {
	b, _ := withKeys(t, apikey.Key{Name: "all"}, apikey.Key{Name: "one", Rights: apikey.Rights{Models: []string{"m"}}})
	b.adapters(b.instance(b.function("m", func(f *api.Function) { f.Aliases = []api.ModelName{"org/x"} }), "m-0001", api.Awake), "fr")
	b.function("web", func(f *api.Function) { f.Runtime.Kind = api.RuntimeHTTP })
	for _, list := range []string{"/api/2.0/endpoints/", "/api/2.0/serving-endpoints/"} {
		for key, want := range map[string]string{"all": "m org/x web", "one": "m org/x"} {
			_, got := b.get(list, "Authorization", "Bearer k-"+key)
			var all struct{ Endpoints []endpoint }
			if err := json.Unmarshal([]byte(got), &all); err != nil {
				t.Fatalf("%s: %v: %s", list, err, got)
			}
			var names []string
			for _, e := range all.Endpoints {
				names = append(names, string(e.Name))
			}
			if s := strings.Join(names, " "); s != want {
				t.Errorf("%s with the key %s: got %s, want %s", list, key, s, want)
			}
		}
		if resp, got := b.get(list); resp.StatusCode != http.StatusUnauthorized || !isMLflow(got, "UNAUTHENTICATED", "a key is needed") {
			t.Errorf("%s without a key: got %s %s", list, resp.Status, got)
		}
		if resp, got := b.get(list+"web", "Authorization", "Bearer k-one"); resp.StatusCode != http.StatusForbidden || !isMLflow(got, "PERMISSION_DENIED", "web") {
			t.Errorf("%sweb with a key for m: got %s %s", list, resp.Status, got)
		}
		if resp, got := b.get(list+"nobody", "Authorization", "Bearer k-all"); resp.StatusCode != http.StatusNotFound || !isMLflow(got, "NOT_FOUND", "nobody") {
			t.Errorf("%snobody: got %s %s", list, resp.Status, got)
		}
		if resp, got := b.post(list, "{}"); resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "GET, HEAD" || !isMLflow(got, "BAD_REQUEST", "want GET") {
			t.Errorf("POST %s: got %s %s", list, resp.Status, got)
		}
		for name, task := range map[string]string{"org/x": "llm/v1/chat", "web": ""} {
			_, got := b.get(list+name, "Authorization", "Bearer k-all")
			var one map[string]any
			if err := json.Unmarshal([]byte(got), &one); err != nil {
				t.Fatalf("%s%s: %v: %s", list, name, err, got)
			}
			want := map[string]any{"name": name, "endpoint_type": task, "model": map[string]any{"name": name, "provider": "rouse"}, "endpoint_url": "/endpoints/" + name + "/invocations",
				"limit": nil, "state": map[string]any{"ready": "READY", "config_update": "NOT_UPDATING"}, "creation_timestamp": one["creation_timestamp"]}
			if task != "" {
				want["task"] = task
			}
			if diff := cmp.Diff(want, one); diff != "" || one["creation_timestamp"].(float64) < 1e12 {
				t.Errorf("%s%s (-want +got):\n%s%v", list, name, diff, one["creation_timestamp"])
			}
		}
	}
}

// TestScoringServer sends the requests that a scoring server's clients make before they call it. They need no key.
func TestScoringServer(t *testing.T) {
	b := startBench(t, func(c *Config) { c.Version = "1.2.3" }, func(d *Deps) { d.Keys = keys.NewStore(nil) })
	for path, want := range map[string]string{"/ping": "\n", "/version": "1.2.3"} {
		if resp, got := b.get(path); resp.StatusCode != http.StatusOK || got != want || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: got %s %q, want %q", path, resp.Status, got, want)
		}
		if resp, got := b.post(path, ""); resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("POST %s: got %s %s", path, resp.Status, got)
		}
	}
	for path, want := range map[string]string{"/ping/": "/ping", "/version/?a=%2F": "/version?a=%2F", "/health/": "/health", "/invocations/": "/invocations"} {
		w := httptest.NewRecorder()
		b.a.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader("{}")))
		if w.Code != http.StatusTemporaryRedirect || w.Header().Get("Location") != want {
			t.Errorf("%s: got %d %s, want a redirection to %s", path, w.Code, w.Header().Get("Location"), want)
		}
	}
	if err := b.a.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	if resp, got := b.get("/ping"); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("/ping at the end: got %s %s, want 503", resp.Status, got)
	}
}
