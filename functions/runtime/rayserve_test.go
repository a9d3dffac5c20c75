package runtime_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

func TestRayServeLaunch(t *testing.T) {
	serve := program(t, "serve")
	r := adapter(t, api.Runtime{Kind: api.RuntimeRayServe, Model: "app:llm", Command: []string{serve, "run"}, Args: []string{"--app-dir", "/app"}})
	want := runtime.Launch{
		Path: serve, Args: []string{"run", "--app-dir", "/app", "app:llm"}, Endpoint: there,
		Env: []string{"HOME=/h", "RAY_SERVE_DEFAULT_HTTP_HOST=127.0.0.1", "RAY_SERVE_DEFAULT_HTTP_PORT=PORT", "RAY_ADDRESS=local"},
	}
	if diff := cmp.Diff(want, launched(t, r, "app:llm")); diff != "" {
		t.Errorf("launch (-want +got):\n%s", diff)
	}
}

func TestRayServeConfiguration(t *testing.T) {
	serve, dir := program(t, "serve"), t.TempDir()
	for name, tt := range map[string]struct{ text, want, fails string }{
		"ours":     {text: "applications:\n- import_path: app:llm\n", want: "applications:\n- import_path: app:llm\nhttp_options:\n  host: 127.0.0.1\n  port: PORT\n"},
		"the word": {text: "http_options:\n  port: $(PORT)\n", want: "http_options:\n  port: PORT\n"},
		"its own":  {text: "http_options:\n  port: 8000\n", fails: "port: $(PORT)"},
		"braces":   {text: `{"applications": []}`, fails: "braces"},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, filepath.Join(dir, "serve.yaml"), tt.text)
			r := adapter(t, api.Runtime{Kind: api.RuntimeRayServe, Model: path, Command: []string{serve, "run"}})
			l, err := r.Launch(path)
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("launch: %v, want %s", err, tt.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			raw, err := os.ReadFile(l.Args[len(l.Args)-1])
			if err != nil {
				t.Fatal(err)
			}
			port := strings.TrimPrefix(string(l.Endpoint), "http://127.0.0.1:")
			if got := strings.ReplaceAll(string(raw), port, "PORT"); got != tt.want {
				t.Errorf("the configuration is %q, want %q", got, tt.want)
			}
		})
	}
}

// Many applications have one path and a name of their own.
func TestRayServeProbe(t *testing.T) {
	f := newFake(t).on("GET /v1/models", 404, "Path '/v1/models' not found").on("POST /v1/completions", 404, "Path '/v1/completions' not found").
		on("POST /v1/chat/completions", 200, `{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}`)
	r := adapter(t, api.Runtime{Kind: api.RuntimeRayServe, Model: "app:llm"})
	chat := `POST /v1/chat/completions {"max_tokens":1,"messages":[{"content":"a","role":"user"}],"model":"m","temperature":0}`
	for _, want := range [][]string{{"GET /v1/models", probed("m"), chat}, {"GET /v1/models", chat}} {
		if err := r.Probe(t.Context(), f.endpoint()); err != nil {
			t.Fatal(err)
		}
		f.asked(want...)
	}
}

// What a client leaves out, the application wants all the same.
func TestRayServeNamesItsModel(t *testing.T) {
	f := newFake(t).on("GET /v1/models", 200, `{"data":[{"id":"its own"}]}`).on("POST /v1/completions", 200, `{"choices":[{"text":"x","finish_reason":"stop"}]}`)
	r := adapter(t, api.Runtime{Kind: api.RuntimeRayServe, Model: "app:llm"})
	if err := r.Probe(t.Context(), f.endpoint()); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ path, body, want string }{
		{"/v1/chat/completions", `{"n":1}`, `{"n":1,"model":"its own"}`},
		{"/v1/completions", `{"model":null}`, `{"model":"its own"}`},
		{"/v1/completions", `{"model":"m"}`, `{"model":"its own"}`},
		{"/v1/completions", `{"model":"another"}`, `{"model":"another"}`},
		{"/v1/completions", `{"model":7}`, `{"model":7}`},
		{"/tokenize", `{}`, `{}`},
		{"/v1/completions", ``, ``},
	} {
		if got := request(t, r, tt.path, tt.body); got != tt.want {
			t.Errorf("%s %s becomes %s, want %s", tt.path, tt.body, got, tt.want)
		}
	}
}
