package functions_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions"
	"github.com/rouse-dev/rouse/functions/cli"
	"github.com/rouse-dev/rouse/functions/functionstest"
	"github.com/rouse-dev/rouse/functions/shim"
	"github.com/rouse-dev/rouse/internal/cloudevent"
)

// TestMain also runs the runtime and the function as programs, as the variable says. It is not passed on: a function's runtime is the
// fake one.
func TestMain(m *testing.M) {
	if mode := os.Getenv("HANDLER_TEST"); mode != "" {
		os.Exit(upperCase(mode))
	}
	switch os.Getenv("SNAPSHOT_TEST") {
	case "criu":
		os.Exit(runCRIU(os.Args[1:]))
	case "server":
		os.Exit(serveCounts(os.Args[1]))
	}
	switch os.Getenv("FUNCTION_TEST") {
	case "function":
		_ = os.Setenv("FUNCTION_TEST", "runtime")
		os.Exit(command(os.Args[1:]))
	case "host":
		os.Exit(host(os.Args[1:]))
	case "handler":
		os.Exit(handle())
	case "runtime":
		if len(os.Args) > 1 && os.Args[1] == shim.Args()[0] {
			os.Exit(command(os.Args[1:]))
		}
		if slices.ContainsFunc(os.Args, func(s string) bool { return strings.HasPrefix(s, "-pages") }) {
			os.Exit(cudaServer(os.Args[1:]))
		}
		os.Exit(functionstest.Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	_ = os.Setenv("FUNCTION_TEST", "runtime")
	os.Exit(m.Run())
}

func command(args []string) int {
	cmd := cli.Command()
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// instance is a function under test, with a receiver of its events.
type instance struct {
	t       testing.TB
	api     *control.Client
	http    *http.Client
	at      api.Endpoint
	events  chan api.InstanceStatus // from the receiver; large, so that the function never waits
	seen    []string
	receive *httptest.Server
	here    *atomic.Pointer[functions.Instance]
}

func newInstance(t testing.TB) *instance {
	t.Helper()
	i := &instance{t: t, events: make(chan api.InstanceStatus, 1000), at: api.Endpoint("unix:" + filepath.Join(t.TempDir(), "s"))}
	i.receive = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		e, err := cloudevent.Receive(r)
		var s api.InstanceStatus
		if err != nil || r.URL.Path != control.PathEvents || e.Type != api.EventInstanceState || json.Unmarshal(e.Data, &s) != nil {
			t.Errorf("%s got event %+v, %v", r.URL.Path, e, err)
		}
		select {
		case i.events <- s:
		default: // benchmarks do not look
		}
	}))
	t.Cleanup(i.receive.Close)
	transport := api.NewTransport(4)
	t.Cleanup(transport.CloseIdleConnections)
	to := &reaching{next: transport}
	i.here = &to.here
	i.api, i.http = control.New(to, nil), &http.Client{Transport: to}
	return i
}

// reaching is a transport to an instance, over a connection, or in this process.
type reaching struct {
	next http.RoundTripper
	here atomic.Pointer[functions.Instance] // nil: it listens
}

func (r *reaching) RoundTrip(in *http.Request) (*http.Response, error) {
	if here := r.here.Load(); here != nil {
		return here.RoundTrip(in)
	}
	return r.next.RoundTrip(in)
}

// envWithin makes the tests reach instances without a connection.
const envWithin = "FUNCTION_WITHIN"

// within runs a function as a Go value.
func (i *instance) within(cfg functions.Config) (stop func()) {
	i.t.Helper()
	cfg.Listen, cfg.Endpoint = "", cfg.Listen
	here, err := functions.Start(cfg, nil)
	if err != nil {
		i.t.Fatal(err)
	}
	i.here.Store(here)
	stop = sync.OnceFunc(func() {
		here.End()
		<-here.Exited()
		if err := here.Err(); err != nil {
			i.t.Error(err)
		}
	})
	i.t.Cleanup(stop)
	return stop
}

// TestWithin runs the tests of instances again, in another process, with instances that are Go values.
func TestWithin(t *testing.T) {
	if os.Getenv(envWithin) != "" || testing.Short() {
		t.Skip("it runs the other tests")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.skip=^("+strings.Join(overConnections, "|")+")$", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), envWithin+"=1", "FUNCTION_TEST=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// overConnections are tests of listeners.
var overConnections = []string{"TestWithin", "TestToken", "TestWithoutATokenTheControlPathsAreClosed", "TestHTTP2", "TestOpenMetrics", "TestSuspend.*"}

// config runs the fake as a command.
func (i *instance) config(args ...string) functions.Config {
	return functions.Config{
		Function: api.Function{Name: "default/fake", Concurrency: 4, Runtime: api.Runtime{
			Kind: api.RuntimeCommand, Command: append([]string{os.Args[0], "-port=$(PORT)"}, args...),
		}},
		Instance: "fake-0001", Listen: i.at, Events: api.Endpoint(i.receive.URL), Env: os.Environ(), Epoch: 1,
		StopGrace: time.Second,
	}
}

// run runs a function in this process until the test ends or stop is called.
func (i *instance) run(cfg functions.Config) (stop func()) {
	i.t.Helper()
	if os.Getenv(envWithin) != "" && cfg.Join == nil {
		return i.within(cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	listening := make(chan api.Endpoint, 1)
	cfg.Listening = func(e api.Endpoint) { listening <- e }
	go func() {
		defer close(ended)
		if err := functions.Run(ctx, cfg); err != nil {
			i.t.Error(err)
		}
	}()
	stop = func() { cancel(); <-ended }
	i.t.Cleanup(stop)
	select {
	case i.at = <-listening:
	case <-ended:
	}
	return stop
}

// until waits for the report of a state.
func (i *instance) until(state api.State) api.InstanceStatus {
	i.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case s := <-i.events:
			i.seen = append(i.seen, string(s.State)+" "+s.Stage)
			if s.State == state {
				return s
			}
		case <-deadline:
			i.t.Fatalf("no report of %s within 20 s; reports: %q", state, i.seen)
		}
	}
}

// ask posts a completion; fault is the header of the fake.
func (i *instance) ask(path, body, fault string) (*http.Response, string, error) {
	i.t.Helper()
	req, err := http.NewRequest(http.MethodPost, i.at.URL(path), strings.NewReader(body))
	if err != nil {
		i.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(functionstest.HeaderFault, fault)
	resp, err := i.http.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return resp, string(raw), err
}

func (i *instance) get(path string) (int, string) {
	i.t.Helper()
	resp, err := i.http.Get(i.at.URL(path))
	if err != nil {
		i.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(raw)
}

const (
	whole  = `{"model":"fake","max_tokens":3}`
	stream = `{"model":"fake","max_tokens":3,"stream":true}`
)

func (i *instance) wantAnswer() {
	i.t.Helper()
	resp, body, err := i.ask("/v1/chat/completions", whole, "")
	if err != nil || resp.StatusCode != 200 || !strings.Contains(body, `"content":"t0 t1 t2"`) {
		i.t.Errorf("answer %v %v %s", resp, err, body)
	}
}

func wantCode(t *testing.T, what string, err error, code string) {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("%s: %v, want code %s", what, err, code)
	}
}

// TestLife runs an instance with each kind of runtime.
func TestLife(t *testing.T) {
	for name, change := range map[string]func(*functions.Config){
		"command": func(*functions.Config) {},
		"command that sleeps": func(c *functions.Config) {
			c.Function.Runtime.Sleeps = true
			c.Function.Runtime.Args = []string{"-sleeps"}
		},
		"chat only": func(c *functions.Config) { c.Function.Runtime.Args = []string{"-no-completions"} },
		"engine": func(c *functions.Config) {
			c.Function.Runtime = api.Runtime{Kind: api.RuntimeEngine, Model: "fake", Args: []string{"-load=10ms"}}
			c.Engine = os.Args[0]
		},
	} {
		for _, level := range []api.Level{api.Level1, api.Level2} {
			t.Run(fmt.Sprint(name, " ", level), func(t *testing.T) {
				i := newInstance(t)
				cfg := i.config()
				change(&cfg)
				stop := i.run(cfg)
				first := i.until(api.Awake)
				if first.LoadTime <= 0 || first.PID == 0 || first.Endpoint != i.at || first.Concurrency != 4 {
					t.Errorf("first awake report %+v", first)
				}
				i.wantAnswer()
				asleep, err := i.api.Sleep(t.Context(), i.at, control.SleepRequest{Level: level, Epoch: 2})
				if err != nil || asleep.State != api.Asleep || asleep.Level < level || asleep.SleepTime <= 0 {
					t.Errorf("sleep: %+v, %v", asleep, err)
				}
				if status, body := i.get("/readyz"); status != 503 || !strings.Contains(body, api.CodeAsleep) {
					t.Errorf("readyz while asleep: %d %s", status, body)
				}
				resp, _, err := i.ask("/v1/completions", whole, "")
				if err != nil || resp.StatusCode != 503 || resp.Header.Get(control.HeaderRefused) != api.CodeAsleep {
					t.Errorf("a request while asleep: %v, %v", resp, err)
				}
				_, err = i.api.Wake(t.Context(), i.at, api.Grant{Epoch: 1})
				wantCode(t, "a wake of old", err, api.CodeStaleEpoch)
				awake, err := i.api.Wake(t.Context(), i.at, api.Grant{Instance: "fake-0001", Epoch: 2})
				if err != nil || awake.State != api.Awake || awake.WakeTime <= 0 || awake.Seq <= asleep.Seq || awake.Epoch != 2 {
					t.Errorf("wake: %+v, %v", awake, err)
				}
				i.wantAnswer()
				gone, err := i.api.Stop(t.Context(), i.at, control.StopRequest{})
				if err != nil || gone.State != api.Gone {
					t.Errorf("stop: %+v, %v", gone, err)
				}
				stop()
				i.until(api.Gone)
			})
		}
	}
}

func TestPaths(t *testing.T) {
	i := newInstance(t)
	cfg := i.config()
	cfg.Version = "v9"
	i.run(cfg)
	i.until(api.Awake)
	_, _, _ = i.ask("/v1/completions", whole, "")
	for path, want := range map[string]string{
		"/healthz": `200 {"status":"ok"}`, "/readyz": `200 {"status":"ok"}`, "/health": "200 \n", "/ping": "200 \n", "/version": "200 v9",
		"/v1/models": `200 {"object":"list","data":[{"id":"fake"`, "/adapters/info": `200 {"config":{"enabled":false}`, "/sleep": "404 ", "/stats": "404 ", "/rouse/v1/nothing": "404 ", "/rouse/v1/wake": "405 ",
		"/rouse/v1/logs?tail=1": "200 fake runtime starts\n", "/rouse/v1/logs?tail=x": "400 ", "/rouse/v1/state": `200 {"instance":"fake-0001","function":"default/fake","state":"awake"`,
	} {
		status, body := i.get(path)
		if got := fmt.Sprint(status, " ", body); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s…", path, got, want)
		}
	}
	_, body := i.get("/metrics")
	for _, want := range []string{`rouse_function_requests_total{path="/v1/completions",status="200"} 1`, `rouse_function_state{state="awake"} 1`} {
		if !strings.Contains(body, want) {
			t.Errorf("metrics lack %s:\n%s", want, body)
		}
	}
	resp, body, err := i.ask(control.PathSleep, "{", "")
	if err != nil || resp.StatusCode != 400 {
		t.Errorf("a sleep that is no JSON: %v %v %s", resp, err, body)
	}
}

// Over TCP and without a token nobody counts as the control plane.
func TestWithoutATokenTheControlPathsAreClosed(t *testing.T) {
	i := newInstance(t)
	cfg := i.config()
	cfg.Listen = "http://127.0.0.1:0"
	i.run(cfg)
	for path, want := range map[string]int{control.PathState: 403, "/metrics": 403, "/healthz": 200} {
		resp, err := i.http.Get(i.at.URL(path))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
	}
}

// Over TCP the control plane sends its token; clients need none.
func TestToken(t *testing.T) {
	i := newInstance(t)
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	cfg := i.config()
	cfg.Listen, cfg.TokenFile = "http://127.0.0.1:0", file
	i.run(cfg)
	i.until(api.Awake)
	i.wantAnswer()
	for _, path := range []string{control.PathState, "/metrics", control.PathLogs} {
		if status, _ := i.get(path); status != 401 {
			t.Errorf("%s without a token: %d, want 401", path, status)
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/v1/models"} {
		if status, _ := i.get(path); status != 200 {
			t.Errorf("%s without a token: %d, want 200", path, status)
		}
	}
	token := "first"
	client := control.New(i.http.Transport, func() string { return token })
	if _, err := client.State(t.Context(), i.at); err != nil {
		t.Error(err)
	}
	write("second")
	if _, err := client.State(t.Context(), i.at); err == nil {
		t.Error("the old token still opens")
	}
	token = "second"
	if _, err := client.State(t.Context(), i.at); err != nil {
		t.Error(err)
	}
	write("")
	if token = ""; true {
		if _, err := client.State(t.Context(), i.at); err == nil {
			t.Error("an empty token opens")
		}
	}
}

// The runtime dies in the middle of a stream: the client gets an error, and a fresh process serves the next request.
func TestRuntimeDiesInAStream(t *testing.T) {
	i := newInstance(t)
	i.run(i.config())
	i.until(api.Awake)
	resp, body, err := i.ask("/v1/chat/completions", stream, "exit-after=2")
	if err != nil || resp.StatusCode != 200 || !strings.Contains(body, "t1") || !strings.Contains(body, api.CodeStreamCut) || strings.Contains(body, "[DONE]") {
		t.Errorf("stream %v %v:\n%s", resp, err, body)
	}
	if s := i.until(api.Unhealthy); !strings.Contains(s.Message, "exit status 5") {
		t.Errorf("message %q, want the exit status", s.Message)
	}
	if s := i.until(api.Awake); s.Restarts != 1 {
		t.Errorf("%d restarts, want 1", s.Restarts)
	}
	i.wantAnswer()
	// And before the first byte.
	resp, _, err = i.ask("/v1/chat/completions", whole, "exit=7")
	if err != nil || resp.StatusCode != 502 || resp.Header.Get(control.HeaderRefused) != "" {
		t.Errorf("%v %v, want 502", resp, err)
	}
	i.until(api.Unhealthy)
	i.until(api.Awake)
}

func TestStartFails(t *testing.T) {
	i := newInstance(t)
	i.run(i.config("-exit=3"))
	_, err := i.api.Wake(t.Context(), i.at, api.Grant{Epoch: 1})
	wantCode(t, "wake", err, api.CodeStartFailed)
	if !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "cannot load the model") {
		t.Errorf("error %q, want the exit status and the output", err)
	}
	resp, body, err := i.ask("/v1/completions", whole, "")
	if err != nil || resp.StatusCode != 503 || resp.Header.Get(control.HeaderRefused) != api.CodeUnhealthy || strings.Contains(body, "exit status 3") || strings.Contains(body, "cannot load") {
		t.Errorf("a request: %v %v %s; want a refusal without the runtime's words", resp, err, body)
	}
}

func TestRecoversWithinThreeStarts(t *testing.T) {
	i := newInstance(t)
	i.run(i.config("-starts="+filepath.Join(t.TempDir(), "n"), "-fail-starts=2"))
	if s := i.until(api.Awake); s.Restarts != 2 {
		t.Errorf("%d restarts, want 2", s.Restarts)
	}
}

func TestNeverReady(t *testing.T) {
	i := newInstance(t)
	cfg := i.config("-never-ready", "-ignore-term")
	cfg.Function.StartTimeout = time.Second
	i.run(cfg)
	if s := i.until(api.Unhealthy); !strings.Contains(s.Message, "limit of 1s") || !strings.Contains(s.Message, "503") {
		t.Errorf("message %q, want the limit and the last answer", s.Message)
	}
}

// An idle runtime that stops answering is replaced.
func TestHang(t *testing.T) {
	i := newInstance(t)
	cfg := i.config("-hang-after=1") // the start's own probe
	cfg.ProbeInterval, cfg.ProbeTimeout = 20*time.Millisecond, 50*time.Millisecond
	i.run(cfg)
	i.until(api.Awake)
	if s := i.until(api.Unhealthy); !strings.Contains(s.Message, "hangs") {
		t.Errorf("message %q, want that it hangs", s.Message)
	}
	i.until(api.Awake)
}

// A running request delays the sleep; the sleep gives up after its drain.
func TestSleepDrains(t *testing.T) {
	i := newInstance(t)
	i.run(i.config("-sleeps"))
	i.until(api.Awake)
	answered := make(chan string)
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, i.at.URL("/v1/completions"), strings.NewReader(`{"model":"fake","max_tokens":100000,"stream":true}`))
	req.Header.Set(functionstest.HeaderFault, "pause=5ms")
	go func() {
		resp, err := i.http.Do(req)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		lines := bufio.NewReader(resp.Body)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				close(answered)
				return
			}
			select {
			case answered <- line:
			default:
			}
		}
	}()
	<-answered
	_, err := i.api.Sleep(t.Context(), i.at, control.SleepRequest{Level: 1, Epoch: 2, Drain: 30 * time.Millisecond})
	wantCode(t, "sleep", err, api.CodeBusy)
	<-answered // it goes on
	slept := make(chan error)
	go func() {
		_, err := i.api.Sleep(t.Context(), i.at, control.SleepRequest{Level: 1, Epoch: 3})
		slept <- err
	}()
	i.until(api.Draining) // the one that gave up
	i.until(api.Draining)
	cancel()
	if err := <-slept; err != nil {
		t.Error(err)
	}
	for range answered {
	}
}

func TestFollowLogs(t *testing.T) {
	i := newInstance(t)
	stop := i.run(i.config())
	i.until(api.Awake)
	logs, err := i.api.Logs(t.Context(), i.at, 1, true)
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close()
	lines := bufio.NewReader(logs)
	if line, err := lines.ReadString('\n'); line != "fake runtime starts\n" || err != nil {
		t.Errorf("line %q, %v", line, err)
	}
	_, _, _ = i.ask("/v1/completions", whole, "exit=1") // it starts again, and says so
	if line, err := lines.ReadString('\n'); line != "fake runtime starts\n" || err != nil {
		t.Errorf("line %q, %v", line, err)
	}
	stop()
	if rest, err := io.ReadAll(lines); len(rest) != 0 || err != nil {
		t.Errorf("after the end: %q, %v; want a proper end", rest, err)
	}
}

func TestConfigRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*functions.Config)
		want   string
	}{
		"no name":             {func(c *functions.Config) { c.Function.Name = "" }, "name the function"},
		"bad name":            {func(c *functions.Config) { c.Function.Name = "default/A b" }, "a-z"},
		"bad endpoint":        {func(c *functions.Config) { c.Listen = "tcp:1" }, "http://host:port"},
		"bad events":          {func(c *functions.Config) { c.Events = "x" }, "events"},
		"negative time":       {func(c *functions.Config) { c.Drain = -1 }, "drain"},
		"no command":          {func(c *functions.Config) { c.Function.Runtime.Command = nil }, "$(PORT)"},
		"a file in the way":   {func(c *functions.Config) { c.Listen = api.Endpoint("unix:" + os.Args[0]) }, "no socket"},
		"unknown runtime":     {func(c *functions.Config) { c.Function.Runtime.Kind = "x" }, "engine"},
		"negative body limit": {func(c *functions.Config) { c.MaxBody = -1 }, "limit"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := newInstance(t).config()
			tt.change(&cfg)
			if err := functions.Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Run: %v, want an error that says %q", err, tt.want)
			}
		})
	}
}
