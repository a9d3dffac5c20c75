package local_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/cmd/internal/local"
	"github.com/rouse-dev/rouse/config"
)

// asPage are the headers of a page's request: of the server's own page, with its token.
func (s *serverOf) asPage(more ...string) []string {
	_, token, _ := strings.Cut(s.info.Page, "#token=")
	return append([]string{"Authorization", "Bearer " + token}, more...)
}

// TestKeysOfThePage makes, lists and revokes keys, as only who may administer can, and from no other page.
func TestKeysOfThePage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	if err := os.WriteFile(path, []byte("# mine\nkeys: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, func(c *local.Config) { c.Keys, c.Origins = path, []string{"*"} })
	front := api.Endpoint(s.info.URL)
	const alice = `{"name":"alice","models":["pico"],"requestsPerMinute":60}`
	for name, tc := range map[string]struct {
		header []string
		status int
	}{
		"no right":         {nil, http.StatusNotFound},
		"a key's right":    {[]string{"Authorization", "Bearer rouse-1"}, http.StatusNotFound},
		"another page":     {s.asPage("Origin", "https://evil.example"), http.StatusForbidden},
		"a foreign site":   {s.asPage("Sec-Fetch-Site", "cross-site"), http.StatusForbidden},
		"its page's token": {[]string{"Cookie", s.info.Page}, http.StatusNotFound},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete} {
			if status, body := s.send(method, front, admin.PathKeys+"?name=alice", alice, tc.header...); status != tc.status {
				t.Errorf("%s, %s: status %d: %s; want %d", name, method, status, body, tc.status)
			}
		}
	}
	for _, bad := range []string{"", "{}", `{"name":"a b"}`, `{"name":"a","hash":"` + strings.Repeat("0", 64) + `"}`, `{"name":"a","concurrent":-1}`, `{"name":"a","key":"k"}`, `{"name":"` + strings.Repeat("a", 70<<10) + `"}`} {
		if status, body := s.send(http.MethodPost, front, admin.PathKeys, bad, s.asPage()...); status != http.StatusBadRequest && status != http.StatusConflict {
			t.Errorf("%.60s: status %d: %s", bad, status, body)
		}
	}
	status, body := s.send(http.MethodPost, front, admin.PathKeys, alice, s.asPage("Origin", s.info.URL, "Sec-Fetch-Site", "same-origin")...)
	var made struct{ Name, Key string }
	if err := json.Unmarshal([]byte(body), &made); err != nil || status != http.StatusOK || made.Name != "alice" || !strings.HasPrefix(made.Key, "rouse-") {
		t.Fatalf("status %d: %s", status, body)
	}
	if raw, err := os.ReadFile(path); err != nil || !strings.Contains(string(raw), "# mine") || !strings.Contains(string(raw), "requestsPerMinute: 60") || strings.Contains(string(raw), made.Key) {
		t.Errorf("the file: %v\n%s", err, raw)
	}
	status, body = s.send(http.MethodGet, front, admin.PathKeys, "", s.asPage()...)
	if status != http.StatusOK || !strings.Contains(body, `"alice"`) || strings.Contains(body, "hash") || strings.Contains(body, made.Key) {
		t.Errorf("the list: status %d: %s", status, body)
	}
	if status, body := s.send(http.MethodPost, front, admin.PathKeys, alice, s.asPage()...); status != http.StatusConflict || !strings.Contains(body, "alice already") {
		t.Errorf("a second alice: status %d: %s", status, body)
	}
	if status, body := s.send(http.MethodPatch, front, admin.PathKeys+"?name=alice", `{"requestsPerMinute":61}`, s.asPage()...); status != http.StatusOK {
		t.Errorf("a change: status %d: %s", status, body)
	}
	if raw, err := os.ReadFile(path); err != nil || !strings.Contains(string(raw), "requestsPerMinute: 61") {
		t.Errorf("the changed file: %v\n%s", err, raw)
	}
	for want, name := range map[int]string{http.StatusOK: "alice", http.StatusNotFound: "bob"} {
		if status, body := s.send(http.MethodDelete, front, admin.PathKeys+"?name="+name, "", s.asPage()...); status != want {
			t.Errorf("revoke %s: status %d: %s; want %d", name, status, body, want)
		}
	}
	if status, body := s.send(http.MethodGet, front, admin.PathKeys, "", s.asPage()...); status != http.StatusOK || body != "[]\n" {
		t.Errorf("in the end: status %d: %s", status, body)
	}
	open := start(t, nil)
	if status, body := open.send(http.MethodPost, api.Endpoint(open.info.URL), admin.PathKeys, alice, open.asPage()...); status != http.StatusConflict || !strings.Contains(body, "--keys") {
		t.Errorf("where clients need none: status %d: %s", status, body)
	}
}

// TestManifestOfThePage is one that declares the same, without the values of its environment and without memory that was estimated.
func TestManifestOfThePage(t *testing.T) {
	s := start(t, func(c *local.Config) {
		c.Functions[0].Runtime.Env = []string{"HF_TOKEN=hunter2"}
		c.Functions[0].Priority = 3
		c.Functions[0].Handler = []string{"handle", "--api-key", "hunter2", "https://me:hunter2@host/?token=hunter2"}
	})
	status, body := s.send(http.MethodGet, api.Endpoint(s.info.URL), admin.FunctionPath("default/pico", "/manifest"), "", s.asPage()...)
	if status != http.StatusOK || strings.Contains(body, "hunter2") || !strings.HasPrefix(body, "# Fill in what is not shown, the values of HF_TOKEN, and the secrets where … stands.\n") {
		t.Fatalf("status %d: %s", status, body)
	}
	functions, err := config.Parse(strings.NewReader(body), "the page", "/")
	if err != nil || len(functions) != 1 {
		t.Fatalf("%v: %s", err, body)
	}
	if status, body := s.send(http.MethodGet, api.Endpoint(s.info.URL), admin.FunctionPath("default/pico", ""), "", s.asPage()...); status != http.StatusOK || strings.Contains(body, "hunter2") {
		t.Errorf("the function: status %d: %s", status, body)
	}
	if f := functions[0]; f.Name != "default/pico" || f.Priority != 3 || f.Memory.Host != 0 || f.Runtime.Env[0] != "HF_TOKEN=" {
		t.Errorf("it declares %+v", f)
	}
	if status, _ := s.send(http.MethodGet, api.Endpoint(s.info.URL), admin.FunctionPath("default/none", "/manifest"), "", s.asPage()...); status != http.StatusNotFound {
		t.Errorf("of no function: status %d", status)
	}
	if status, _ := s.send(http.MethodGet, api.Endpoint(s.info.URL), admin.FunctionPath("default/pico", "/manifest"), ""); status != http.StatusNotFound {
		t.Errorf("without a right: status %d", status)
	}
}

// TestModelsOfThePage searches for models, and declares one; no file of this machine and no other server is named.
func TestModelsOfThePage(t *testing.T) {
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/models" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(`[{"id":"org/tiny","downloads":1,"siblings":[{"rfilename":"tiny-Q8_0.gguf"}]}]`))
	}))
	t.Cleanup(hub.Close)
	for name, value := range map[string]string{"HF_ENDPOINT": hub.URL, "OLLAMA_REGISTRY": hub.URL, "ROUSE_CACHE": t.TempDir(), "HF_TOKEN": "", "PATH": t.TempDir(), "HOME": t.TempDir(), "OLLAMA_MODELS": ""} {
		t.Setenv(name, value)
	}
	s := start(t, nil)
	front := api.Endpoint(s.info.URL)
	if status, body := s.send(http.MethodGet, front, admin.PathModels+"?search=tiny", "", s.asPage()...); status != http.StatusOK || body != `[{"model":"hf.co/org/tiny","downloads":1,"quants":["Q8_0"]}]`+"\n" {
		t.Errorf("search: status %d: %s", status, body)
	}
	for _, bad := range []string{"", "/etc/passwd", "file:///etc/passwd", "http://169.254.169.254/x", "x=hf.co/a/b", "hf.co/a/b?c", "ollama://other.example/a/b", "ollama://h:1/a", "pico", "s3://b/k", "hf.co/a/b:c d"} {
		raw, _ := json.Marshal(map[string]string{"model": bad})
		if status, body := s.send(http.MethodPost, front, admin.PathModels, string(raw), s.asPage()...); status != http.StatusBadRequest {
			t.Errorf("%s: status %d: %s", bad, status, body)
		}
	}
	const tiny = `{"model":"hf.co/org/tiny:Q8_0"}`
	if status, _ := s.send(http.MethodPost, front, admin.PathModels, tiny); status != http.StatusNotFound {
		t.Errorf("without a right: status %d", status)
	}
	for _, result := range []string{"created", "unchanged"} {
		if status, body := s.send(http.MethodPost, front, admin.PathModels, tiny, s.asPage()...); status != http.StatusOK || body != `{"function":"default/tiny","result":"`+result+`"}`+"\n" {
			t.Errorf("declare: status %d: %s", status, body)
		}
	}
	if status, body := s.send(http.MethodPost, front, admin.PathModels, `{"model":"hf.co/other/tiny"}`, s.asPage()...); status != http.StatusConflict || !strings.Contains(body, "NAME=") {
		t.Errorf("another one of that name: status %d: %s", status, body)
	}
	hub.Close()
	if status, body := s.send(http.MethodGet, front, admin.PathModels+"?search=tiny", "", s.asPage()...); status != http.StatusBadGateway || !strings.Contains(body, "search for models") {
		t.Errorf("no hub: status %d: %s", status, body)
	}
}
