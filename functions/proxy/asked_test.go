package proxy_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/proxy"
)

// ask sends a body as the activator does, for a tenant, and returns what the runtime got.
func ask(t *testing.T, path, body, tenant string, trusted bool, change func(*proxy.Config)) (string, http.Header) {
	t.Helper()
	var got string
	var header http.Header
	b := set(t, func(_ http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		got, header = string(raw), r.Header.Clone()
	}, change)
	req, err := http.NewRequest(http.MethodPost, b.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer k"}, "Cookie": {"a=b"}, "X-Api-Key": {"k"}}
	if tenant != "" {
		req.Header.Set(control.HeaderTenant, tenant)
	}
	if trusted {
		req.Header.Set(control.HeaderTrusted, "true")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	b.wantIdle(t)
	return got, header
}

// A priority counts only if the activator allows it.
func TestPriority(t *testing.T) {
	const path, body = "/v1/completions", `{"\u0070riority":-5, "prompt":"a" }`
	none := func(*proxy.Config) {}
	if got, _ := ask(t, path, body, "", false, none); got != `{ "prompt":"a" }` {
		t.Errorf("the runtime got %s", got)
	}
	if got, _ := ask(t, path, body, "", true, none); got != body {
		t.Errorf("of who is trusted the runtime got %s", got)
	}
	if got, _ := ask(t, path, body, "", false, func(c *proxy.Config) { c.Inside = true }); got != body {
		t.Errorf("of a handler the runtime got %s", got)
	}
}

// Bodies that two servers read differently reach none.
func TestAmbiguousBodies(t *testing.T) {
	b := set(t, func(http.ResponseWriter, *http.Request) { t.Error("the runtime was asked") })
	for _, body := range []string{`{"model":"a","model":"b"}`, `{"Model":"b"}`, `{"priority":1,"PRIORITY":2}`, `{"cache_\u017falt":"x"}`,
		"\ufeff{}", "{\x00}\x00", "\x00{\x00}", // Python reads a byte-order mark and UTF-16, llama.cpp the mark
	} {
		if resp, text, err := b.post(t, "/v1/completions", body); err != nil || resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %v %v %s, want 400", body, err, resp, text)
		}
		b.wantIdle(t)
	}
}

// Two tenants never have the same salt, whatever salt of its own a client sends; one tenant may choose its salts.
func TestSalt(t *testing.T) {
	salted := func(c *proxy.Config) { c.Prefixes = proxy.PrefixesSalted }
	salt := func(tenant, own string) string {
		t.Helper()
		body := `{"prompt":"a"` + own + `}`
		got, _ := ask(t, "/v1/completions", body, tenant, false, salted)
		var v struct {
			Prompt string
			Salt   string `json:"cache_salt"`
		}
		if err := json.Unmarshal([]byte(got), &v); err != nil || v.Prompt != "a" {
			t.Errorf("the runtime got %s, %v", got, err)
		}
		return v.Salt
	}
	seen := map[string]string{}
	for _, who := range [][2]string{{"a", ""}, {"b", ""}, {"a", `,"cache_salt":"x"`}, {"b", `,"cache_salt":"x"`}, {"a", `,"cache_salt":"y"`}} {
		s := salt(who[0], who[1])
		if s == "" || seen[s] != "" {
			t.Errorf("%v has the salt %q, as %q", who, s, seen[s])
		}
		seen[s] = who[0] + who[1]
		if again := salt(who[0], who[1]); again != s {
			t.Errorf("%v has the salts %q and %q", who, s, again)
		}
	}
	if got := salt("b", `,"cache_salt":"`+salt("a", "")+`"`); got == salt("a", "") {
		t.Error("a tenant has another's salt by sending it")
	}
	if got := salt("", ""); got != "" {
		t.Errorf("a request of nobody's has the salt %q", got)
	}
	const bad = `{"prompt":"a","cache_salt":5}`
	if got, _ := ask(t, "/v1/completions", bad, "a", false, salted); got != bad {
		t.Errorf("a salt that is none became %s", got)
	}
	const other = `{"text":"a"}`
	if got, _ := ask(t, "/v1/audio/speech", other, "a", false, salted); got != other {
		t.Errorf("a path without prompts got %s", got)
	}
	if got, _ := ask(t, "/v1/completions", `{"prompt":"a","cache_prompt":true}`, "a", false, func(c *proxy.Config) { c.Prefixes = proxy.PrefixesForgotten }); got != `{"prompt":"a","cache_prompt":false}` {
		t.Errorf("a runtime without salts got %s", got)
	}
}

// The runtime learns the tenant, and gets a client's credentials, only if that was declared.
func TestWhatTheRuntimeKnowsOfClients(t *testing.T) {
	_, h := ask(t, "/v1/completions", "{}", "a", true, func(*proxy.Config) {})
	for _, name := range []string{"Authorization", "Cookie", "X-Api-Key", control.HeaderTenant, control.HeaderTrusted} {
		if v := h.Get(name); v != "" {
			t.Errorf("the runtime got %s: %s", name, v)
		}
	}
	_, h = ask(t, "/v1/completions", "{}", "a", true, func(c *proxy.Config) { c.Credentials, c.Tenants = true, true })
	if h.Get("Authorization") != "Bearer k" || h.Get("Cookie") != "a=b" || h.Get("X-Api-Key") != "k" || h.Get(control.HeaderTenant) != "a" || h.Get(control.HeaderTrusted) != "" {
		t.Errorf("where it was declared the runtime got %v", h)
	}
}
