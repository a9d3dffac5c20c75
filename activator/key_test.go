package activator

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rouse-dev/rouse/activator/keys"
	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/config/apikey"
)

// withKeys returns a bench that requires keys: each key's text is "k-" and its name.
func withKeys(t *testing.T, declared ...apikey.Key) (*bench, *keys.Store) {
	t.Helper()
	s := keys.NewStore(nil)
	for i := range declared {
		if declared[i].Name == apikey.Anonymous {
			continue
		}
		declared[i].Hash = apikey.Hash("k-" + declared[i].Name)
	}
	s.Load(&apikey.File{Keys: declared})
	b := startBench(t, nil, func(d *Deps) { d.Keys = s; d.Lists = func(*http.Request) bool { return false } })
	return b, s
}

func (b *bench) get(path string, header ...string) (*http.Response, string) {
	b.t.Helper()
	req, err := http.NewRequest(http.MethodGet, b.ts.URL+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	req.Host = req.Header.Get("Host")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp, string(raw)
}

// TestWithoutAKey sends requests to every kind of path, in each API's own format.
func TestWithoutAKey(t *testing.T) {
	b, _ := withKeys(t, apikey.Key{Name: "a"})
	i := b.instance(b.function("m", nil), "m-0001", api.Awake)
	body := `{"model":"m","messages":[]}`
	for path, shape := range map[string]string{
		"/v1/chat/completions":             `{"error":{"message":"a key is needed`,
		"/v1/completions":                  `{"error":{"message":"a key is needed`,
		"/v1/messages":                     `{"type":"error","error":{"type":"authentication_error"`,
		"/api/chat":                        `{"error":"a key is needed`,
		"/serving-endpoints/m/invocations": `{"error_code":"UNAUTHENTICATED"`,
		"/serving-endpoints/x/invocations": `{"error_code":"UNAUTHENTICATED"`,
	} {
		resp, got := b.post(path, body)
		if resp.StatusCode != http.StatusUnauthorized || !strings.HasPrefix(got, shape) || resp.Header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%s: got %s %s, want a 401 that begins %s", path, resp.Status, got, shape)
		}
	}
	for _, host := range []string{"m.default.localhost", "x.default.localhost"} {
		if resp, got := b.post("/anything", body, "Host", host); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("at %s: got %s %s, want a 401", host, resp.Status, got)
		}
	}
	for _, path := range []string{"/v1/models", "/v1/models/m", "/v1/models/x", "/metrics"} {
		if resp, got := b.get(path); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("GET %s: got %s %s, want a 401", path, resp.Status, got)
		}
	}
	if resp, got := b.get("/metrics", "Authorization", "Bearer k-a"); resp.StatusCode != http.StatusUnauthorized || strings.Contains(got, "this machine") {
		t.Errorf("GET /metrics with a client's key: got %s %s, want a 401 that does not offer what needs no keys", resp.Status, got)
	}
	for _, path := range []string{"/healthz", "/health", "/readyz", "/"} {
		if resp, got := b.get(path); resp.StatusCode != http.StatusOK {
			t.Errorf("GET %s: got %s %s, want 200", path, resp.Status, got)
		}
	}
	if n := i.served.Load(); n != 0 {
		t.Errorf("the instance has seen %d requests, want none", n)
	}
}

// TestAKeyStaysHere sends a request with a key: the instance gets the tenant, and never the key.
func TestAKeyStaysHere(t *testing.T) {
	b, _ := withKeys(t, apikey.Key{Name: "a", Tenant: "acme"})
	i := b.instance(b.function("m", func(f *api.Function) { f.PassCredentials = true }), "m-0001", api.Awake)
	seen := make(chan http.Header, 1)
	i.chat = func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Clone()
		answerOnce(w, r)
	}
	resp, got := b.post(chatPath, `{"model":"m"}`, "Authorization", "Bearer k-a", "X-Api-Key", "k-a", "X-Rouse-Tenant", "other")
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("got %s %s", resp.Status, got)
	}
	h := <-seen
	if tenant := h.Get("X-Rouse-Tenant"); tenant != peer.Named("acme") {
		t.Errorf("tenant: got %q", tenant)
	}
	for name, values := range h {
		if strings.Contains(strings.Join(values, " "), "k-a") {
			t.Errorf("the instance gets the key in %s", name)
		}
	}
}

func TestWhatAKeyMayUse(t *testing.T) {
	b, _ := withKeys(t, apikey.Key{Name: "all"}, apikey.Key{Name: "some", Rights: apikey.Rights{Models: []string{"alias*", "lora-1"}}}, apikey.Key{Name: "one", Rights: apikey.Rights{Models: []string{"lora-1"}}})
	fake := b.instance(b.function("m", func(f *api.Function) {
		f.Aliases = []api.ModelName{"alias-m"}
		f.Runtime.Adapters = []api.Adapter{{Name: "lora-1", Path: "/1"}, {Name: "lora-2", Path: "/2"}}
	}), "m-0001", api.Awake)
	b.instance(b.function("n", func(f *api.Function) { f.Runtime.Kind = api.RuntimeLlamaCpp }), "n-0001", api.Awake)
	for _, path := range []string{"/pooling", "/classify", "/v1/chat/completions/render", "/api/chat", "/api/pull"} {
		_, there := b.post(path, `{"model":"n","messages":[],"input":"x"}`, "Authorization", "Bearer k-some")
		_, not := b.post(path, `{"model":"x","messages":[],"input":"x"}`, "Authorization", "Bearer k-some")
		if strings.ReplaceAll(there, `\"n\"`, `\"x\"`) != not || strings.Contains(there, api.RuntimeLlamaCpp) {
			t.Errorf("%s of a model that a key may not use: %s, and of none: %s", path, there, not)
		}
	}
	for key, want := range map[string]int{"k-all": http.StatusOK, "k-some": http.StatusOK, "k-none": http.StatusUnauthorized} {
		if resp, got := b.post("/api/pull", `{"model":"alias-m"}`, "Authorization", "Bearer "+key); resp.StatusCode != want {
			t.Errorf("a pull with %s: %s %s, want %d", key, resp.Status, got, want)
		}
	}
	if resp, _ := b.post("/api/pull", `{"model":"x"}`); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a pull without a key: %s", resp.Status)
	}
	for _, tc := range []struct {
		key, model string
		want       int
	}{
		{"all", "m", 200}, {"all", "n", 200}, {"all", "x", 404},
		{"some", "alias-m", 200}, {"some", "m", 200}, {"some", "default/m", 200}, // the same model by its other names
		{"some", "n", 403}, {"some", "x", 403}, {"some", "lora-2", 403}, // whether it exists or not
		{"some", "alias-x", 404},
	} {
		resp, got := b.post(chatPath, fmt.Sprintf(`{"model":%q}`, tc.model), "Authorization", "Bearer k-"+tc.key)
		if resp.StatusCode != tc.want {
			t.Errorf("%s asks for %s: got %s %s, want %d", tc.key, tc.model, resp.Status, got, tc.want)
		}
		if tc.want == http.StatusForbidden && (!strings.Contains(got, `"code":"not_allowed"`) || strings.Contains(got, "did you mean")) {
			t.Errorf("%s asks for %s: got %s", tc.key, tc.model, got)
		}
		resp, _ = b.get("/v1/models/"+tc.model, "X-Api-Key", "k-"+tc.key)
		if resp.StatusCode != tc.want {
			t.Errorf("%s looks at %s: got %s, want %d", tc.key, tc.model, resp.Status, tc.want)
		}
	}
	if resp, got := b.post("/v1/chat/completions", `{"model":"lora-2"}`, "Host", "m.default.localhost", "X-Api-Key", "k-some"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("an adapter at the function's own host: got %s %s, want 403", resp.Status, got)
	}
	for key, want := range map[string][]string{"all": nil, "some": {"default/m", "m", "m", "alias-m", "lora-1"}, "one": {"lora-1"}} {
		var told []string
		fake.chat = func(_ http.ResponseWriter, r *http.Request) { told = r.Header[control.HeaderModels] }
		resp, got := b.post("/invocations", `{"model":"lora-1","inputs":["x"]}`, "Authorization", "Bearer k-"+key)
		if diff := cmp.Diff(want, told); diff != "" || resp.StatusCode != http.StatusOK {
			t.Errorf("the instance is told what %s may name (-want +got):\n%s%s", key, diff, got)
		}
	}
	for key, want := range map[string][]string{"all": {"alias-m", "lora-1", "lora-2", "m", "n"}, "some": {"alias-m", "lora-1", "m"}} {
		_, body := b.get("/v1/models", "Authorization", "Bearer k-"+key)
		if _, own := b.get("/v1/models", "Authorization", "Bearer k-"+key, "Host", "m.default.localhost"); (own == body) != (key == "some") {
			t.Errorf("%s sees %s at the function's own host, and %s at the front door", key, own, body)
		}
		var list struct{ Data []struct{ ID string } }
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		var got []string
		for _, m := range list.Data {
			got = append(got, m.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s sees (-want +got):\n%s", key, diff)
		}
	}
	for path, want := range map[string]int{"/v1/models/lora-2": 403, "/adapters": 404, "/adapters/info": 404, "/x/../v1/models": 404} {
		if resp, got := b.get(path, "X-Api-Key", "k-some", "Host", "m.default.localhost"); resp.StatusCode != want || strings.Contains(got, "lora-2") && want != 403 {
			t.Errorf("%s at the function's own host: got %s %s, want %d", path, resp.Status, got, want)
		}
	}
	for claim, want := range map[string]int{`"priority":-1`: 403, `"priority":5`: 200, `"service_tier":"priority"`: 403, `"service_tier":"flex"`: 200} {
		if resp, got := b.post(chatPath, `{"model":"m",`+claim+`}`, "Authorization", "Bearer k-all"); resp.StatusCode != want {
			t.Errorf("%s: got %s %s, want %d", claim, resp.Status, got, want)
		}
	}
}

// TestAnonymous admits clients without a key, with the rights declared for them: their priority does not count, and a
// text that is no key is ignored.
func TestAnonymous(t *testing.T) {
	b, store := withKeys(t, apikey.Key{Name: "a"}, apikey.Key{Name: apikey.Anonymous, Rights: apikey.Rights{Models: []string{"m"}, RequestsPerMinute: 3}})
	i := b.instance(b.function("m", func(f *api.Function) { f.PassCredentials = true }), "m-0001", api.Awake)
	b.instance(b.function("n", nil), "n-0001", api.Awake)
	seen := make(chan http.Header, 8)
	i.chat = func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Clone()
		answerOnce(w, r)
	}
	for _, tc := range []struct {
		name, body, key string
		want            int
	}{
		{"no key", `{"model":"m","priority":-5}`, "", 200},
		{"a key of somebody else's", `{"model":"m"}`, "sk-none", 200},
		{"a key that looks like ours", `{"model":"m"}`, "rouse-typo", 401},
		{"another model", `{"model":"n"}`, "", 403},
		{"another model with a key", `{"model":"n"}`, "k-a", 200},
		{"the third", `{"model":"m"}`, "", 200},
		{"the fourth", `{"model":"m"}`, "", 429},
	} {
		var header []string
		if tc.key != "" {
			header = []string{"Authorization", "Bearer " + tc.key}
		}
		if resp, got := b.post(chatPath, tc.body, header...); resp.StatusCode != tc.want {
			t.Errorf("%s: got %s %s, want %d", tc.name, resp.Status, got, tc.want)
		}
	}
	first, second := <-seen, <-seen
	if got := first.Get("X-Rouse-Trusted") + first.Get("X-Rouse-Tenant"); strings.Contains(got, apikey.Anonymous) || first.Get("X-Rouse-Trusted") != "" {
		t.Errorf("the instance is told %q: want the client's own name, and no trust", got)
	}
	if got := second.Get("Authorization"); got != "Bearer sk-none" {
		t.Errorf("the instance gets %q, want what the client has sent", got)
	}
	store.Load(&apikey.File{Keys: []apikey.Key{{Name: "a", Hash: apikey.Hash("k-a")}}})
	if resp, got := b.post(chatPath, `{"model":"m"}`); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("after its end: got %s %s, want 401", resp.Status, got)
	}
}

// TestLimitsOfAKey uses up a key's limits: the answer tells how many tokens it took.
func TestLimitsOfAKey(t *testing.T) {
	b, _ := withKeys(t, apikey.Key{Name: "a", Tenant: "acme", Rights: apikey.Rights{RequestsPerMinute: 3, TokensPerMinute: 1000}})
	i := b.instance(b.function("m", func(f *api.Function) { f.Runtime.Kind = api.RuntimeVLLM }), "m-0001", api.Awake)
	i.chat = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Ratelimit-Limit-Requests", "the runtime's own")
		if raw, _ := io.ReadAll(r.Body); strings.Contains(string(raw), "stream") {
			streamEvents(w, "data: "+`{"choices":[{"delta":{"content":"a"}}]}`+"\n\n", "data: "+`{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":300,"completion_tokens":100}}`+"\n\n", "data: [DONE]\n\n")
			return
		}
		_, _ = io.WriteString(w, `{"choices":[],"usage":{"prompt_tokens":90,"completion_tokens":10}}`)
	}
	resp, got := b.post(chatPath, `{"model":"m","max_tokens":500}`, "Authorization", "Bearer k-a")
	if resp.StatusCode != http.StatusOK || resp.Header.Get("X-Ratelimit-Limit-Requests") != "3" || resp.Header.Get("X-Ratelimit-Remaining-Tokens") != "493" {
		t.Fatalf("got %s %s %v", resp.Status, got, resp.Header)
	}
	resp, got = b.post(chatPath, `{"model":"m","stream":true,"max_tokens":500}`, "Authorization", "Bearer k-a") // 100 of the 507 were used
	if resp.StatusCode != http.StatusOK || resp.Header.Get("X-Ratelimit-Remaining-Requests") != "1" {
		t.Fatalf("got %s %s %v", resp.Status, got, resp.Header)
	}
	resp, got = b.post(chatPath, `{"model":"m","max_tokens":900}`, "Authorization", "Bearer k-a") // about 500 are left
	if resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(got, `"code":"rate_limit_exceeded"`) || resp.Header.Get("Retry-After") == "" || resp.Header.Get("X-Ratelimit-Remaining-Requests") != "1" {
		t.Fatalf("got %s %s %v", resp.Status, got, resp.Header)
	}
	if resp, got = b.post(chatPath, `{"model":"m"}`, "Authorization", "Bearer k-a"); resp.StatusCode != http.StatusOK {
		t.Fatalf("got %s %s", resp.Status, got)
	}
	resp, got = b.post("/v1/messages", `{"model":"m","max_tokens":1}`, "X-Api-Key", "k-a")
	if resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(got, `"type":"rate_limit_error"`) {
		t.Fatalf("got %s %s, want Anthropic's 429", resp.Status, got)
	}
	want := `
# HELP rouse_activator_tenant_tokens_total Tokens of answered requests with a key, by tenant and direction (input, output).
# TYPE rouse_activator_tenant_tokens_total counter
rouse_activator_tenant_tokens_total{direction="input",tenant="acme"} 480
rouse_activator_tenant_tokens_total{direction="output",tenant="acme"} 120
`
	if err := testutil.GatherAndCompare(b.a.deps.Registry, strings.NewReader(want), "rouse_activator_tenant_tokens_total"); err != nil {
		t.Error(err)
	}
}

// TestARevokedKey revokes a key while one of its requests waits and another is answered.
func TestARevokedKey(t *testing.T) {
	b, store := withKeys(t, apikey.Key{Name: "a"}, apikey.Key{Name: "b"})
	i := b.instance(b.function("m", func(f *api.Function) { f.Concurrency = 1 }), "m-0001", api.Awake)
	i.chat = func(w http.ResponseWriter, r *http.Request) {
		streamEvents(w, "data: "+`{"choices":[{"delta":{"content":"a"}}]}`+"\n\n")
		<-r.Context().Done()
	}
	req, err := http.NewRequest(http.MethodPost, b.ts.URL+chatPath, strings.NewReader(`{"model":"m","stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer k-a")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, "content") {
		t.Fatalf("got %q, %v", line, err)
	}
	b.a.PutFunction(api.Function{Name: "default/n"})
	held := make(chan string, 1)
	go func() {
		resp, got := b.post(chatPath, `{"model":"n"}`, "Authorization", "Bearer k-a")
		held <- resp.Status + " " + got
	}()
	b.eventually("a request waits", func() bool { s, _ := b.a.Stats("default/n"); return s.Waiting == 1 })
	store.Load(&apikey.File{Keys: []apikey.Key{{Name: "b", Hash: apikey.Hash("k-b")}}})
	if got := <-held; !strings.HasPrefix(got, "401 ") || !strings.Contains(got, "was revoked") {
		t.Errorf("the request that waits: got %s", got)
	}
	rest, err := io.ReadAll(lines)
	if err != nil || !strings.Contains(string(rest), "was revoked") || strings.Contains(string(rest), "[DONE]") {
		t.Errorf("the stream: got %q, %v; want an error event at its end", rest, err)
	}
	if resp, got := b.post(chatPath, `{"model":"m"}`, "Authorization", "Bearer k-a"); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("afterwards: got %s %s", resp.Status, got)
	}
}

// TestATrustedPeerNeedsNoKey: a gateway that the operator trusts names its clients itself.
func TestATrustedPeerNeedsNoKey(t *testing.T) {
	list, err := peer.ParseList("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	b := startBench(t, nil, func(d *Deps) { d.Keys = keys.NewStore(nil); d.Peers = &peer.Addresses{Trusted: list} })
	b.instance(b.function("m", nil), "m-0001", api.Awake)
	if resp, got := b.post(chatPath, `{"model":"m"}`, "X-Rouse-Tenant", "t"); resp.StatusCode != http.StatusOK {
		t.Errorf("got %s %s, want 200", resp.Status, got)
	}
}

// TestAFrontDoorNeedsNoKey: a request that another front door forwards to this cluster was authenticated there.
func TestAFrontDoorNeedsNoKey(t *testing.T) {
	b := startBench(t, nil, func(d *Deps) { d.Keys = keys.NewStore(nil) })
	i := b.instance(b.function("m", nil), "m-0001", api.Awake)
	seen := make(chan string, 1)
	i.chat = func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Get("X-Rouse-Tenant") + r.Header.Get("X-Rouse-Trusted")
		answerOnce(w, r)
	}
	r := httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(`{"model":"m","priority":-4}`))
	w := httptest.NewRecorder()
	b.a.ServeAtOnce(w, peer.As(r, peer.Peer{Client: peer.Named("acme")}), "default/m")
	if w.Code != http.StatusOK {
		t.Fatalf("got %d %s, want 200", w.Code, w.Body)
	}
	if got := <-seen; got != peer.Named("acme") {
		t.Errorf("the instance is told %q, want the tenant, and no trust", got)
	}
}

// BenchmarkKey measures the cost of a key for a request.
func BenchmarkKey(b *testing.B) {
	s := keys.NewStore(nil)
	s.Load(&apikey.File{Keys: []apikey.Key{{Name: "a", Hash: apikey.Hash("k-a"), Rights: apikey.Rights{Models: []string{"x*", "m"}, RequestsPerMinute: 1 << 40, TokensPerMinute: 1 << 40, Concurrent: 10}}}})
	r, _ := http.NewRequest(http.MethodPost, chatPath, nil)
	r.Header.Set("Authorization", "Bearer k-a")
	b.ReportAllocs()
	for b.Loop() {
		a, err := s.Authenticate(r)
		if err != nil || !a.Rights().Allows("m") || a.Rights().Claim(0, "") != nil {
			b.Fatal(err)
		}
		c, bad := a.Admit(b.Context(), time.Now(), control.Use{Requests: 1, Running: 1, Tokens: 10})
		if bad != nil {
			b.Fatal(bad)
		}
		c.Settle(12)
		c.End()
	}
}
