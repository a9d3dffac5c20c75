package runtime_test

import (
	cmp2 "cmp"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// rayOf is a Ray that answers by REST: PUT takes applications, GET shows them.
type rayOf struct {
	*httptest.Server
	mu   sync.Mutex
	apps map[string]map[string]any // what GET shows, by name
	puts int
}

func newRayOf(t *testing.T, apps ...string) *rayOf {
	r := &rayOf{apps: map[string]map[string]any{}}
	for _, name := range apps {
		r.put(map[string]any{"name": name, "import_path": "theirs:app"})
	}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if req.URL.Path != "/api/serve/applications/" || req.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		var all struct{ Applications []map[string]any }
		if req.Method == http.MethodPut && json.NewDecoder(req.Body).Decode(&all) == nil {
			r.puts++
			clear(r.apps)
			for _, app := range all.Applications {
				r.put(app)
			}
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"controller_info": map[string]string{"node_id": "1"}, "http_options": map[string]int{"port": 7}, "applications": r.apps})
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *rayOf) put(app map[string]any) {
	status := "RUNNING"
	if app["import_path"] == "nosuch:app" {
		status = "DEPLOY_FAILED"
	}
	r.apps[app["name"].(string)] = map[string]any{"status": status, "message": "first\nNo module named 'nosuch'", "deployed_app_config": app}
}

func (r *rayOf) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.apps))
}

// deployed launches and deploys an instance in that Ray.
func (r *rayOf) deployed(t *testing.T, name, model string, lines func([]byte)) process.Child {
	t.Helper()
	cfg := config(t, api.Runtime{Kind: api.RuntimeRayServe, Model: model, Args: []string{"--app-dir=/app"}, Env: []string{"RAY_ADDRESS=" + strings.TrimPrefix(r.URL, "http://"), "RAY_AUTH_TOKEN=secret", "X=1"}})
	cfg.Instance = name
	a, err := runtime.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := a.Launch(model)
	if err != nil {
		t.Fatal(err)
	}
	if host, _ := os.Hostname(); l.Endpoint != api.Endpoint("http://127.0.0.1:7/"+name+"."+host) {
		t.Errorf("it is to listen at %s", l.Endpoint)
	}
	child, err := a.(runtime.Deployer).Deploy(process.Spec{Lines: lines}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return child
}

// An application joins those of others and leaves them there.
func TestRayServeAmongOthers(t *testing.T) {
	r := newRayOf(t, "theirs")
	host, _ := os.Hostname()
	child := r.deployed(t, "m-1", "app:llm", func([]byte) {})
	for len(r.names()) < 2 {
		goruntime.Gosched()
	}
	if diff := cmp.Diff([]string{"m-1." + host, "theirs"}, r.names()); diff != "" {
		t.Error(diff)
	}
	r.mu.Lock()
	app, _ := json.Marshal(r.apps["m-1."+host]["deployed_app_config"])
	r.mu.Unlock()
	want := `{"import_path":"app:llm","name":"m-1.` + host + `","route_prefix":"/m-1.` + host + `","runtime_env":{"env_vars":{"PYTHONPATH":"/app","X":"1"}}}`
	if diff := cmp.Diff(want, string(app)); diff != "" {
		t.Error(diff)
	}
	child.Stop(0)
	if diff := cmp.Diff([]string{"theirs"}, r.names()); diff != "" {
		t.Errorf("after its end: %s", diff)
	}
}

// An application that can't be imported ends with Ray's words, and is removed.
func TestRayServeFails(t *testing.T) {
	r := newRayOf(t, "theirs")
	var said []string
	child := r.deployed(t, "m-1", "nosuch:app", func(line []byte) { said = append(said, string(line)) })
	<-child.Exited()
	if !strings.Contains(child.Status(), "does not run") || !slices.Contains(said, "No module named 'nosuch'") {
		t.Errorf("it ends with %q after %q", child.Status(), said)
	}
	if diff := cmp.Diff([]string{"theirs"}, r.names()); diff != "" {
		t.Errorf("after its end: %s", diff)
	}
}

// Functions that start their Ray alike share it; those with settings of a whole Ray do not.
func TestRayServeShares(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ray := program(t, "ray")
	path := func(name string, command ...string) (l runtime.Launch) {
		cfg := config(t, api.Runtime{Kind: api.RuntimeRayServe, Model: "app:llm", Command: command})
		cfg.Instance = name
		r, err := runtime.New(cfg)
		if err == nil {
			l, err = r.Launch("app:llm")
		}
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	one, two, other := path("one-1", ray), path("two-1", filepath.Join(filepath.Dir(ray), "serve"), "run"), path("other-1", "env", ray)
	if !strings.HasSuffix(string(one.Endpoint), "/one-1") || strings.TrimSuffix(string(one.Endpoint), "one-1") != strings.TrimSuffix(string(two.Endpoint), "two-1") {
		t.Errorf("two functions listen at %s and %s", one.Endpoint, two.Endpoint)
	}
	if strings.TrimSuffix(string(one.Endpoint), "one-1") == strings.TrimSuffix(string(other.Endpoint), "other-1") {
		t.Errorf("with another command it listens at %s too", other.Endpoint)
	}
	if want := []string{"start", "--head", "--block"}; !slices.Equal(one.Args[:3], want) || one.Path != ray {
		t.Errorf("Ray is started by %s %v", one.Path, one.Args)
	}
	if !slices.Contains(one.Env, "RAY_AUTH_MODE=token") {
		t.Errorf("Ray asks for no token: %v", one.Env)
	}
}

// rayChild is "ray start", which runs until it is stopped.
type rayChild struct {
	process.Child
	exited chan struct{}
}

func (c rayChild) Exited() <-chan struct{} { return c.exited }
func (c rayChild) Stop(time.Duration)      { close(c.exited) }
func (c rayChild) Status() string {
	select {
	case <-c.exited:
		return "stopped"
	default:
		return ""
	}
}

// A Ray's folder goes with it, and with the next launch if it does not start.
func TestRayServeFolder(t *testing.T) {
	for name, alone := range map[string]bool{"alone": true, "shared": false} {
		t.Run(name, func(t *testing.T) {
			at := t.TempDir()
			t.Setenv("TMPDIR", at)
			left := filepath.Join(at, "ray-1") // by a process that was killed
			if err := os.Mkdir(left, 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(left, ".lock"), "")
			folders := func(want int) {
				t.Helper()
				if got, _ := filepath.Glob(filepath.Join(at, "*ray-*")); len(got) != want {
					t.Errorf("there are the folders %q, want %d", got, want)
				}
			}
			cfg := config(t, api.Runtime{Kind: api.RuntimeRayServe, Model: "app:llm", Command: []string{program(t, "ray")}})
			cfg.Instance, cfg.Alone = "m-1", alone
			r, err := runtime.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := r.Launch("app:llm"); err != nil {
					t.Fatal(err)
				}
				folders(1)
			}
			ray := rayChild{exited: make(chan struct{})}
			start := func(process.Spec) (process.Child, error) { return ray, nil }
			child, err := r.(runtime.Deployer).Deploy(process.Spec{Lines: func([]byte) {}}, start, start)
			if err != nil {
				t.Fatal(err)
			}
			folders(1)
			ray.Stop(0)
			<-child.Exited()
			folders(0)
		})
	}
}

func TestRayServeConfiguration(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", t.TempDir())
	const one = "applications:\n- import_path: app:llm\n  args: {warm: yes, cold: \"no\"}\n"
	for name, tt := range map[string]struct{ text, path, fails string }{
		"one":         {text: one, path: "/m-1"},
		"settings":    {text: "http_options: {port: 8000, root_path: /a}\n" + one},
		"several":     {text: one + "- {name: b, import_path: 'b:app'}\n"},
		"none":        {text: "applications: []\n", fails: "no applications"},
		"a list":      {text: "- import_path: app:llm\n", fails: "serve.yaml"},
		"broken":      {text: "a: [\n", fails: "serve.yaml"},
		"of somebody": {text: "http_options: {}\n" + one, fails: "RAY_ADDRESS"},
	} {
		t.Run(name, func(t *testing.T) {
			model := write(t, filepath.Join(dir, "serve.yaml"), tt.text)
			spec := api.Runtime{Kind: api.RuntimeRayServe, Model: model, Command: []string{program(t, "ray")}}
			if tt.fails == "RAY_ADDRESS" {
				spec.Env = []string{"RAY_ADDRESS=127.0.0.1:1"}
			}
			cfg := config(t, spec)
			cfg.Instance = "m-1"
			r, err := runtime.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			l, err := r.Launch(model)
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) || !runtime.Permanent(err) {
					t.Errorf("launch: %v, want %s", err, tt.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, path, _ := strings.Cut(strings.TrimPrefix(string(l.Endpoint), "http://"), "/"); "/"+path != cmp2.Or(tt.path, "/") {
				t.Errorf("it listens at %s", l.Endpoint)
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
		{"/v1/audio/transcriptions", aForm("m"), aForm("its own")},
		{"/v1/completions", ``, ``},
	} {
		if got := request(t, r, tt.path, tt.body); got != tt.want {
			t.Errorf("%s %s becomes %s, want %s", tt.path, tt.body, got, tt.want)
		}
	}
}
