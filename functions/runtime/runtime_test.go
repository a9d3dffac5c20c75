package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

// server records a runtime's calls and answers by script.
type server struct {
	*httptest.Server
	calls  []string
	answer func(r *http.Request) (status int, body string)
}

const oneToken = `{"choices":[{"text":"x","finish_reason":"length"}]}`

// A server that supports sockets gets one in a private folder.
func TestCommandOnASocket(t *testing.T) {
	srv := program(t, "srv")
	r := adapter(t, api.Runtime{Kind: api.RuntimeCommand, Command: []string{srv, "--bind=unix:$(SOCKET)"}, Model: "x"})
	want := runtime.Launch{Path: srv, Args: []string{"--bind=unix:SOCKET"}, Env: []string{"HOME=/h"}, Endpoint: inside}
	if diff := cmp.Diff(want, launched(t, r, "x")); diff != "" {
		t.Errorf("launch (-want +got):\n%s", diff)
	}
}

func serve(t *testing.T, answer func(r *http.Request) (int, string)) *server {
	t.Helper()
	s := &server{answer: answer}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Model  string `json:"model"`
			Method string `json:"method"`
		}
		_ = json.NewDecoder(r.Body).Decode(&body) // most calls have no body
		s.calls = append(s.calls, strings.TrimSpace(fmt.Sprint(r.URL.RequestURI(), " ", body.Model, body.Method)))
		status, out := s.answer(r)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(out))
	}))
	t.Cleanup(s.Close)
	return s
}

// program creates an executable file with a name and returns its path.
func program(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func ok(*http.Request) (int, string) { return 200, oneToken }

func command(t *testing.T, spec api.Runtime) runtime.Runtime {
	t.Helper()
	spec.Kind = api.RuntimeCommand
	r, err := runtime.New(runtime.Config{Spec: spec, Model: "served", Transport: http.DefaultTransport, Env: []string{"HOME=/h"}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestCommandLaunch(t *testing.T) {
	srv := program(t, "srv")
	r := command(t, api.Runtime{Command: []string{srv, "--port=$(PORT)"}, Args: []string{"-x", "$(PORT)", "$(MODEL)"}, Env: []string{"URL=:$(PORT)"}})
	l, err := r.Launch("/m.gguf")
	if err != nil {
		t.Fatal(err)
	}
	port := strings.TrimPrefix(string(l.Endpoint), "http://127.0.0.1:")
	want := runtime.Launch{
		Path: srv, Args: []string{"--port=" + port, "-x", port, "/m.gguf"},
		Env:      []string{"HOME=/h", "PORT=" + port, "URL=:" + port},
		Endpoint: l.Endpoint,
	}
	if diff := cmp.Diff(want, l); diff != "" || port == "" || port == "0" {
		t.Errorf("launch (-want +got):\n%s", diff)
	}
}

func TestEngineLaunch(t *testing.T) {
	dir := t.TempDir()
	r, err := runtime.New(runtime.Config{
		Spec: api.Runtime{
			Kind: api.RuntimeEngine, Model: "/m.gguf", Args: []string{"--threads=2"},
		},
		Dir: dir, Engine: "/bin/rouse", Model: "m", Aliases: []api.ModelName{"n"}, MaxBody: 80 * api.MiB, Transport: http.DefaultTransport,
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := r.Launch("/m.gguf")
	if err != nil {
		t.Fatal(err)
	}
	socket := "unix:" + filepath.Join(dir, "engine.sock")
	want := runtime.Launch{
		Path: "/bin/rouse", Args: []string{"engine", "serve", "--model", "/m.gguf", "--listen", socket, "--name", "m", "--name", "n", "--name", "default", "--max-body", "83886080", "--threads=2"},
		Endpoint: api.Endpoint(socket), Announce: "listening on",
	}
	if diff := cmp.Diff(want, l); diff != "" {
		t.Errorf("launch (-want +got):\n%s", diff)
	}
}

func TestNewRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg  runtime.Config
		want string
	}{
		"unknown kind":       {runtime.Config{Spec: api.Runtime{Kind: "vlm"}}, `"vlm"`},
		"no command":         {runtime.Config{Spec: api.Runtime{Kind: api.RuntimeCommand}}, "$(PORT)"},
		"engine, no model":   {runtime.Config{Spec: api.Runtime{Kind: api.RuntimeEngine}, Dir: "/d", Engine: "/e"}, "model"},
		"engine, no program": {runtime.Config{Spec: api.Runtime{Kind: api.RuntimeEngine, Model: "m"}, Dir: "/d"}, "binary"},
		"engine, adapters":   {runtime.Config{Spec: api.Runtime{Kind: api.RuntimeEngine, Model: "m", Args: []string{"--max-loras", "2", "--lora", "a=x,b=y", "--lora=c=z"}}, Dir: "/d", Engine: "/e"}, "3 adapters by --lora, and --max-loras lets 2"},
		"engine, no room":    {runtime.Config{Spec: api.Runtime{Kind: api.RuntimeEngine, Model: "m", Args: []string{"--max-loras=1", "--lora", "a=x"}, Adapters: []api.Adapter{{Name: "b", Path: "y"}}}, Dir: "/d", Engine: "/e"}, "no room for the adapters that are declared"},
		"engine, long path":  {runtime.Config{Spec: api.Runtime{Kind: api.RuntimeEngine, Model: "m"}, Dir: "/" + strings.Repeat("d", 120), Engine: "/e"}, "shorter"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := runtime.New(tt.cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("New: %v, want an error that says %s", err, tt.want)
			}
		})
	}
}

func TestProbe(t *testing.T) {
	listed := `{"data":[{"id":"listed"}]}`
	models := func(r *http.Request) (int, string) {
		if r.Method == http.MethodGet {
			return 200, listed
		}
		return ok(r)
	}
	chatOnly := func(r *http.Request) (int, string) {
		switch r.URL.Path {
		case "/v1/models":
			return 200, listed
		case "/v1/completions":
			return 404, "no such path"
		}
		return 200, `{"choices":[{"message":{"reasoning_content":"h"}}]}`
	}
	answer := func(status int, body string) func(*http.Request) (int, string) {
		return func(*http.Request) (int, string) { return status, body }
	}
	for name, tt := range map[string]struct {
		model  string // as declared
		answer func(*http.Request) (int, string)
		calls  []string
		fails  string
	}{
		"declared name": {"m", ok, []string{"/v1/completions m"}, ""},
		"listed name":   {"", models, []string{"/v1/models", "/v1/completions listed"}, ""},
		"no list: served name": {"", func(r *http.Request) (int, string) {
			if r.Method == http.MethodGet {
				return 404, ""
			}
			return ok(r)
		}, []string{"/v1/models", "/v1/completions served"}, ""},
		"chat only":         {"", chatOnly, []string{"/v1/models", "/v1/completions listed", "/v1/chat/completions listed"}, ""},
		"ends at once":      {"m", answer(200, `{"choices":[{"text":"","finish_reason":"stop"}]}`), []string{"/v1/completions m"}, ""},
		"200 and no token":  {"m", answer(200, `{"choices":[{"text":""}]}`), []string{"/v1/completions m"}, "no token"},
		"200 and no choice": {"m", answer(200, `{}`), []string{"/v1/completions m"}, "no choices"},
		"200 and HTML":      {"m", answer(200, `<html>`), []string{"/v1/completions m"}, "not JSON"},
		"loading":           {"m", answer(503, `loading`), []string{"/v1/completions m"}, "503: loading"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, tt.answer)
			err := command(t, api.Runtime{Model: tt.model, Command: []string{"srv"}}).Probe(t.Context(), api.Endpoint(s.URL))
			if (err == nil) != (tt.fails == "") || (err != nil && !strings.Contains(err.Error(), tt.fails)) {
				t.Errorf("probe: %v, want an error that says %q", err, tt.fails)
			}
			if diff := cmp.Diff(tt.calls, s.calls); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}

// vLLM's documentation gives the order of the calls after level 2.
func TestWakeOrder(t *testing.T) {
	for level, want := range map[api.Level][]string{
		api.Level1: {"/wake_up", "/v1/completions m"},
		api.Level2: {"/wake_up?tags=weights", "/collective_rpc reload_weights", "/wake_up?tags=kv_cache", "/reset_prefix_cache", "/v1/completions m"},
	} {
		s := serve(t, func(r *http.Request) (int, string) {
			if r.URL.Path == "/is_sleeping" {
				return 200, `{"is_sleeping":false}`
			}
			return ok(r)
		})
		r := command(t, api.Runtime{Model: "m", Command: []string{"srv"}, Sleeps: true})
		if _, err := r.Wake(t.Context(), api.Endpoint(s.URL), level, nil); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, s.calls); diff != "" {
			t.Errorf("level %d: calls (-want +got):\n%s", level, diff)
		}
	}
}

// A step that fails ends the wake: garbage weights must not serve.
func TestWakeStopsAtTheFirstFailure(t *testing.T) {
	s := serve(t, func(r *http.Request) (int, string) {
		if r.URL.Path == "/collective_rpc" {
			return 500, "no weights"
		}
		return ok(r)
	})
	r := command(t, api.Runtime{Model: "m", Command: []string{"srv"}, Sleeps: true})
	_, err := r.Wake(t.Context(), api.Endpoint(s.URL), api.Level2, nil)
	if err == nil || !strings.Contains(err.Error(), "no weights") || len(s.calls) != 2 {
		t.Errorf("wake: %v after %v, want the failure of the second call and no further one", err, s.calls)
	}
}

func TestAwait(t *testing.T) {
	loading := 3
	s := serve(t, func(r *http.Request) (int, string) {
		if loading--; loading >= 0 {
			return 503, "loading"
		}
		return ok(r)
	})
	heard := 0
	r := command(t, api.Runtime{Model: "m", Command: []string{"srv"}})
	if err := runtime.Await(t.Context(), r, api.Endpoint(s.URL), func() { heard++ }, nil); err != nil || heard != 1 || len(s.calls) != 4 {
		t.Errorf("await: %v, heard %d times, %d calls; want none, once, 4", err, heard, len(s.calls))
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("the start takes too long"))
	defer cancel()
	err := runtime.Await(ctx, r, "http://127.0.0.1:1", nil, nil)
	if err == nil || !strings.Contains(err.Error(), "takes too long") || !strings.Contains(err.Error(), "refused") {
		t.Errorf("await: %v, want the cause and the last failure", err)
	}
}

// TestAwaitTellsWhy: a long start reports each reason once; a short one reports none.
func TestAwaitTellsWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, told := time.Now(), []string{}
		r := probes{probe: func() error {
			switch since := time.Since(begin); {
			case since > 4*time.Second:
				return nil
			case since > 2*time.Second:
				return errors.New("no such path")
			case since > 500*time.Millisecond:
				return errors.New("refused")
			}
			return errors.New("no socket yet")
		}}
		if err := runtime.Await(t.Context(), r, "http://a", nil, func(err error) { told = append(told, err.Error()) }); err != nil {
			t.Fatal(err)
		}
		if want := []string{"refused", "no such path"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}

// probes is a runtime that can only be probed.
type probes struct {
	runtime.Runtime
	probe func() error
}

func (p probes) Probe(context.Context, api.Endpoint) error { return p.probe() }

// Adapters in a server's options reduce its room.
func TestRoomBesideOptions(t *testing.T) {
	for args, want := range map[string]int{
		"": 0, "--max-loras 2": 2, "--lora a=x": 0, "--max-loras 2 --lora a=x": 1, "--lora-modules=a=x --max-loras=2 --threads 3": 1,
		"--max-loras 2 --lora a=x,b=y": -1, "--max-loras 4 --lora a=x --lora b=y": 2,
	} {
		r, err := runtime.New(runtime.Config{Spec: api.Runtime{Kind: api.RuntimeEngine, Model: "m", Args: strings.Fields(args)}, Dir: "/d", Engine: "/e"})
		if err != nil || r.Traits().Room != want {
			t.Errorf("engine %s: room %v, %v; want %d", args, r, err, want)
		}
	}
}
