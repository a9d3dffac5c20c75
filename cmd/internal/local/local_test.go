package local_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/cmd/internal/cli"
	"github.com/rouse-dev/rouse/cmd/internal/local"
	"github.com/rouse-dev/rouse/config"
)

// TestMain is also the program that instances run.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "function" || os.Args[1] == "engine") {
		if err := cli.Execute(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 4 && os.Args[1] == "kept" {
		if err := serveKept(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serverOf is a running server and how to reach it.
type serverOf struct {
	t     *testing.T
	info  local.Info
	http  *http.Client
	stop  context.CancelFunc
	ended chan error
}

// start runs a server on a free port until the test ends.
func start(t *testing.T, change func(*local.Config)) *serverOf {
	t.Helper()
	base, err := os.MkdirTemp("", "r") // t.TempDir's path is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	pico, err := config.ForModel("pico", "test")
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan local.Info, 1)
	cfg := local.Config{
		Listen: "127.0.0.1:0", BaseDir: base, Functions: []api.Function{pico}, NoGPU: true, Memory: api.GiB,
		Ready: func(i local.Info) { ready <- i },
	}
	if change != nil {
		change(&cfg)
	}
	ctx, stop := context.WithCancel(t.Context())
	s := &serverOf{t: t, http: &http.Client{Transport: api.NewTransport(4)}, stop: stop, ended: make(chan error, 1)}
	go func() { s.ended <- local.Run(ctx, cfg) }()
	select {
	case s.info = <-ready:
	case err := <-s.ended:
		t.Fatalf("the server ended: %v", err)
	}
	t.Cleanup(func() {
		stop()
		if err := <-s.ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
		if left, _ := filepath.Glob(filepath.Join(base, "*")); len(left) > 0 {
			t.Errorf("it left %v", left)
		}
	})
	return s
}

// send sends a request and returns status and body.
func (s *serverOf) send(method string, e api.Endpoint, path, body string, header ...string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, e.URL(path), strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := s.http.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// admin sends a request to the administrative socket and wants success.
func (s *serverOf) admin(method, path string, in any, out any) {
	s.t.Helper()
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			s.t.Fatal(err)
		}
	}
	status, answer := s.send(method, s.info.Admin, path, body.String())
	if status != http.StatusOK {
		s.t.Fatalf("%s %s: status %d: %s", method, path, status, answer)
	}
	if out != nil {
		if err := json.Unmarshal([]byte(answer), out); err != nil {
			s.t.Fatal(err)
		}
	}
}

const question = `{"model":"pico","max_tokens":3,"messages":[{"role":"user","content":"hello"}]}`

func TestServesFromZeroAndBack(t *testing.T) {
	s := start(t, nil)
	var f admin.Function
	s.admin(http.MethodGet, admin.PathFunctions+"/default/pico", nil, &f)
	if len(f.Instances) != 0 {
		t.Errorf("%d instances before the first request, want none", len(f.Instances))
	}
	if status, body := s.send(http.MethodPost, api.Endpoint(s.info.URL), "/v1/chat/completions", question); status != http.StatusOK {
		t.Fatalf("status %d: %s", status, body)
	}
	s.admin(http.MethodPost, admin.PathFunctions+"/default/pico/sleep?level=2", nil, &f)
	if len(f.Instances) != 1 || f.Instances[0].State != api.Asleep || f.Instances[0].Level != api.Level2 {
		t.Errorf("instances %+v, want one asleep at level 2", f.Instances)
	}
	s.admin(http.MethodPost, admin.PathFunctions+"/default/pico/wake", nil, &f)
	if len(f.Instances) != 1 || f.Instances[0].State != api.Awake {
		t.Errorf("instances %+v, want one awake", f.Instances)
	}
	s.admin(http.MethodPost, admin.PathFunctions+"/default/pico/stop", nil, &f)
	if len(f.Instances) != 0 {
		t.Errorf("instances %+v, want none", f.Instances)
	}
	var why []api.Decision
	s.admin(http.MethodGet, admin.PathFunctions+"/default/pico/why", nil, &why)
	if len(why) < 4 || why[0].Action != "start" || !strings.Contains(why[0].Reason, "1 waiting") {
		t.Errorf("decisions %+v, want them to begin with a start for 1 waiting request", why)
	}
}

func TestDeclareChangeRemove(t *testing.T) {
	s := start(t, nil)
	if status, body := s.send(http.MethodPost, api.Endpoint(s.info.URL), "/v1/chat/completions", question); status != http.StatusOK {
		t.Fatalf("status %d: %s", status, body)
	}
	tiny := api.Function{Name: "default/tiny", Aliases: []api.ModelName{"tiny-chat"}, Runtime: api.Runtime{Model: "pico"}}
	var done struct{ Result string }
	for _, want := range []string{"created", "unchanged"} {
		if s.admin(http.MethodPost, admin.PathFunctions, tiny, &done); done.Result != want {
			t.Errorf("declared: %q, want %q", done.Result, want)
		}
	}
	ask := strings.Replace(question, `"pico"`, `"tiny-chat"`, 1)
	if status, body := s.send(http.MethodPost, api.Endpoint(s.info.URL), "/v1/chat/completions", ask); status != http.StatusOK {
		t.Errorf("ask by the alias: status %d: %s", status, body)
	}
	// What an instance runs changes: it is replaced, and the next request is answered by a new one.
	tiny.Runtime.Args = []string{"--max-seqs", "2"}
	if s.admin(http.MethodPost, admin.PathFunctions, tiny, &done); done.Result != "configured" {
		t.Errorf("declared: %q, want configured", done.Result)
	}
	if status, body := s.send(http.MethodPost, api.Endpoint(s.info.URL), "/v1/chat/completions", ask); status != http.StatusOK {
		t.Errorf("ask after the change: status %d: %s", status, body)
	}
	for _, bad := range []struct {
		body   string
		status int
		want   string
	}{
		{`{"name":"default/other","aliases":["pico"],"runtime":{"model":"pico"}}`, 409, `"pico"`},
		{`{"name":"default/other","runtime":{"model":"nowhere"}}`, 400, "ships with Rouse"},
		{`{"name":"default/other","runtime":{"model":"/does/not/exist.gguf"}}`, 400, "/does/not/exist.gguf"},
		{`{"name":"default/Other"}`, 400, "a-z"},
		{`{"nome":"x"}`, 400, "nome"},
		{`{`, 400, "no function"},
	} {
		status, body := s.send(http.MethodPost, s.info.Admin, admin.PathFunctions, bad.body)
		if status != bad.status || !strings.Contains(body, strings.ReplaceAll(bad.want, `"`, `\"`)) {
			t.Errorf("declare %s: status %d, body %s; want %d and %q", bad.body, status, body, bad.status, bad.want)
		}
	}
	s.admin(http.MethodDelete, admin.PathFunctions+"/default/tiny", nil, nil)
	if status, body := s.send(http.MethodPost, api.Endpoint(s.info.URL), "/v1/chat/completions", ask); status != http.StatusNotFound {
		t.Errorf("ask after the removal: status %d: %s", status, body)
	}
	if status, body := s.send(http.MethodDelete, s.info.Admin, admin.PathFunctions+"/default/tiny", ""); status != http.StatusNotFound || !strings.Contains(body, "there are: pico") {
		t.Errorf("remove it again: status %d: %s", status, body)
	}
}

// TestAdaptersOfManyClients: each of several clients that add adapters at once has its own added.
func TestAdaptersOfManyClients(t *testing.T) {
	s := start(t, nil)
	const n = 32
	path := admin.FunctionPath("default/pico", "/adapters")
	var all sync.WaitGroup
	for k := range n {
		all.Go(func() {
			if status, body := s.send(http.MethodPost, s.info.Admin, path, fmt.Sprintf(`{"name":"a%d","path":"pico/shout"}`, k)); status != http.StatusOK {
				t.Errorf("adapter %d: status %d: %s", k, status, body)
			}
		})
	}
	all.Wait()
	var list []admin.Adapter
	if s.admin(http.MethodGet, path, nil, &list); len(list) != n {
		t.Errorf("there are %d adapters, want %d", len(list), n)
	}
}

// TestAdministrationIsClosedToClients wants no administrative path at the front door without the token.
func TestAdministrationIsClosedToClients(t *testing.T) {
	paths := []string{admin.PathInfo, admin.PathFunctions, control.PathEvents, control.PathState, admin.PathFunctions + "/default/pico/wake"}
	closed := start(t, nil)
	for _, path := range paths {
		if status, body := closed.send(http.MethodGet, api.Endpoint(closed.info.URL), path, ""); status != http.StatusNotFound {
			t.Errorf("GET %s without --admin-token-file: status %d: %s", path, status, body)
		}
	}
	const token = "0123456789abcdef"
	open := start(t, func(c *local.Config) { c.AdminToken = func() (string, error) { return token, nil } })
	for _, path := range paths {
		for _, header := range []string{"", "Bearer wrong", "Basic " + token, "Bearer "} {
			if status, _ := open.send(http.MethodGet, api.Endpoint(open.info.URL), path, "", "Authorization", header); status != http.StatusUnauthorized {
				t.Errorf("GET %s with %q: status %d, want 401", path, header, status)
			}
		}
	}
	if status, body := open.send(http.MethodGet, api.Endpoint(open.info.URL), admin.PathInfo, "", "Authorization", "Bearer "+token); status != http.StatusOK || !strings.Contains(body, open.info.URL) {
		t.Errorf("with the token: status %d: %s", status, body)
	}
}

func TestEventsAreTailed(t *testing.T) {
	seen := make(chan api.Event, 100)
	s := start(t, func(c *local.Config) { c.Observe = func(e api.Event) { seen <- e } })
	if status, body := s.send(http.MethodPost, api.Endpoint(s.info.URL), "/v1/chat/completions", question); status != http.StatusOK {
		t.Fatalf("status %d: %s", status, body)
	}
	status, body := s.send(http.MethodGet, s.info.Admin, control.PathEvents+"?function=default/pico", "")
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, body)
	}
	for _, want := range []string{api.EventFunction, api.EventDemand, api.EventDecision, api.EventInstanceState} {
		if !strings.Contains(body, want) {
			t.Errorf("the events lack %s:\n%s", want, body)
		}
	}
	if e := <-seen; e.Type != api.EventFunction {
		t.Errorf("the first event observed is %s, want %s", e.Type, api.EventFunction)
	}
}

// TestRefusesToStart wants each reason not to start to be said before anything runs.
func TestRefusesToStart(t *testing.T) {
	running := start(t, nil)
	pico, _ := config.ForModel("pico", "test")
	shared := t.TempDir()
	if err := os.Chmod(shared, 0o755); err != nil {
		t.Fatal(err)
	}
	_, address, _ := strings.Cut(running.info.URL, "//")
	for name, tt := range map[string]struct {
		cfg  local.Config
		want string
	}{
		"port taken":       {local.Config{Listen: address, Functions: []api.Function{pico}}, "choose another address with --listen"},
		"no address":       {local.Config{Listen: "nowhere", Functions: []api.Function{pico}}, "want host:port"},
		"no functions":     {local.Config{}, "no functions"},
		"a shared folder":  {local.Config{Listen: "127.0.0.1:0", BaseDir: shared, Functions: []api.Function{pico}}, "must be yours alone"},
		"model is missing": {local.Config{Listen: "127.0.0.1:0", BaseDir: filepath.Join(t.TempDir(), "x"), Functions: []api.Function{{Name: "default/a", Runtime: api.Runtime{Model: "/no/such.gguf"}}}}, "/no/such.gguf"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			err := local.Run(ctx, tt.cfg)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Run: %v, want an error with %q", err, tt.want)
			}
		})
	}
}
