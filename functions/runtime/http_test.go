package runtime

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

func anyHTTP(t *testing.T, change func(*Config)) Runtime {
	t.Helper()
	cfg := Config{Spec: api.Runtime{Kind: api.RuntimeHTTP, Command: []string{"sh", "-c", "serve $(PORT)"}}, Model: "m", Transport: api.NewTransport(1), Env: []string{"PATH=/usr/bin:/bin", "PORT=9"}}
	if change != nil {
		change(&cfg)
	}
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestAnyServerIsStarted on a free port, or on its own.
func TestAnyServerIsStarted(t *testing.T) {
	l, err := anyHTTP(t, nil).Launch("")
	if err != nil {
		t.Fatal(err)
	}
	port := strings.TrimPrefix(string(l.Endpoint), "http://127.0.0.1:")
	if l.Args[1] != "serve "+port || !slices.Contains(l.Env, "PORT="+port) || port == "9" {
		t.Errorf("%+v", l)
	}
	l, err = anyHTTP(t, func(c *Config) { c.Port = 80 }).Launch("")
	if err != nil || l.Endpoint != "http://127.0.0.1:80" || l.Args[1] != "serve 80" || l.Env[len(l.Env)-1] != "PORT=80" {
		t.Errorf("%+v, %v: want its own port", l, err)
	}
	if _, err := New(Config{Spec: api.Runtime{Kind: api.RuntimeHTTP}}); err == nil {
		t.Error("a server without a command is taken")
	}
}

// TestAnyServerIsUp when its probe says so, as Kubernetes reads it.
func TestAnyServerIsUp(t *testing.T) {
	status := http.StatusNoContent
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ready" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
	}))
	defer server.Close()
	e := api.Endpoint(server.URL)
	asked, connected := anyHTTP(t, func(c *Config) { c.ProbePath = "/ready" }), anyHTTP(t, nil)
	for status = range map[int]bool{http.StatusOK: true, http.StatusFound: true} {
		if err := asked.Probe(t.Context(), e); err != nil {
			t.Errorf("status %d: %v", status, err)
		}
	}
	status = http.StatusNotFound
	if err := asked.Probe(t.Context(), e); err == nil {
		t.Error("404 is success")
	}
	if err := connected.Probe(t.Context(), e); err != nil {
		t.Errorf("connect: %v", err)
	}
	server.Close()
	if err := connected.Probe(t.Context(), e); err == nil {
		t.Error("a server that is away is up")
	}
}

// TestAnyServerIsReady as a command in its container says, which has the server's environment.
func TestAnyServerIsReady(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ready")
	r := anyHTTP(t, func(c *Config) {
		c.ProbeCommand, c.Env = []string{"sh", "-c", `echo not yet; test -e "$FILE"`}, append(c.Env, "FILE="+file)
	})
	if err := r.Probe(t.Context(), "http://127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "not yet") {
		t.Errorf("got %v, want what the command says", err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Probe(t.Context(), "http://127.0.0.1:1"); err != nil {
		t.Error(err)
	}
	if !r.Traits().Readiness || anyHTTP(t, nil).Traits().Readiness {
		t.Error("a server has a readiness probe where it is given one, and only there")
	}
}
