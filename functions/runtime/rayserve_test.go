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
	r := adapter(t, api.Runtime{Kind: api.RuntimeRayServe, Model: "app:llm", Command: []string{serve, "run"}, Args: []string{"--app-dir", "/app"}, Env: []string{"PYTHONPATH=/lib"}})
	got := launched(t, r, "app:llm")
	got.Args[3] = filepath.Base(got.Args[3])
	want := runtime.Launch{
		Path: serve, Args: []string{"run", "--app-dir", "/app", "serve.yaml"}, Endpoint: there,
		Env: []string{"HOME=/h", "RAY_ADDRESS=local", "PYTHONPATH=/lib", "PYTHONPATH=/app:/lib"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("launch (-want +got):\n%s", diff)
	}
}

// Serve reads the port only from http_options, so every start has a configuration with them.
func TestRayServeConfiguration(t *testing.T) {
	serve, dir := program(t, "serve"), t.TempDir()
	for name, tt := range map[string]struct{ model, text, want, fails string }{
		"import path": {model: "app:llm", want: "applications:\n    - import_path: app:llm\nhttp_options:\n    host: 127.0.0.1\n    port: PORT\n"},
		"a file":      {text: "applications:\n- import_path: app:llm\n  args: {warm: yes}\n", want: "applications:\n    - import_path: app:llm\n      args: {warm: yes}\nhttp_options:\n    host: 127.0.0.1\n    port: PORT\n"},
		"its own":     {text: "http_options:\n  port: 8000\n  root_path: /a\n", want: "http_options:\n    port: PORT\n    root_path: /a\n    host: 127.0.0.1\n"},
		"empty":       {text: "http_options:\napplications: []\n", want: "http_options:\n    host: 127.0.0.1\n    port: PORT\napplications: []\n"},
		"braces":      {text: `{"applications": []}`, want: "{\"applications\": [], http_options: {host: 127.0.0.1, port: PORT}}\n"},
		"a list":      {text: "- import_path: app:llm\n", fails: "no mapping"},
		"broken":      {text: "a: [\n", fails: "serve.yaml"},
		"no file":     {model: filepath.Join(dir, "none.yaml"), fails: "none.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.model == "" {
				tt.model = write(t, filepath.Join(dir, "serve.yaml"), tt.text)
			}
			r := adapter(t, api.Runtime{Kind: api.RuntimeRayServe, Model: tt.model, Command: []string{serve, "run"}})
			l, err := r.Launch(tt.model)
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

// Many applications have one path and their own name.
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

// A name that a client omits is added, since the application requires it.
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
