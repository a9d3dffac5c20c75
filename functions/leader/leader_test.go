//go:build linux

package leader_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/functionstest"
	"github.com/rouse-dev/rouse/functions/leader"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/proxy"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/functions/shim"
	"github.com/rouse-dev/rouse/functions/supervise"
)

const variable = "LEAD_TEST"

// TestMain also runs the programs that tests start.
func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(variable) {
	case "shim":
		err = shim.Run(context.Background(), shim.Config{In: os.Stdin})
	case "runtime":
		os.Exit(functionstest.Main(os.Args[1:], os.Stdout, os.Stderr))
	case "worker":
		err = worker(os.Args[1], os.Args[2], os.Args[3:])
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func as(what string) []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, variable+"=") })
	return append(env, variable+"="+what)
}

// worker is a minimal function: a supervisor, a proxy, and two control paths.
func worker(dir, door string, args []string) error {
	if err := process.Adopt(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("unix", door)
	if err != nil {
		return err
	}
	log := process.NewLog(50, nil)
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	return leader.Run(ctx, leader.Config{
		Dir: dir, Listener: l, Server: &http.Server{ReadHeaderTimeout: time.Minute}, Logger: logger, Drain: 5 * time.Second, MaxBody: api.MiB,
		Shim: shim.ClientConfig{Command: append([]string{os.Args[0]}, shim.Args()...), Env: as("shim"), Lines: log.Write, Logger: logger},
		Lead: func(ctx context.Context, l *leader.Leadership) error {
			return lead(ctx, l, log, logger, args)
		},
	})
}

func lead(ctx context.Context, l *leader.Leadership, log *process.Log, logger *slog.Logger, args []string) error {
	transport := api.NewTransport(32)
	defer transport.CloseIdleConnections()
	rt, err := runtime.New(runtime.Config{
		Spec:  api.Runtime{Kind: api.RuntimeCommand, Command: append([]string{os.Args[0], "-port=$(PORT)"}, args...), Model: "fake"},
		Model: "fake", Env: as("runtime"), Transport: transport,
	})
	if err != nil {
		return err
	}
	s, err := supervise.New(supervise.Config{
		Status:  api.InstanceStatus{Instance: "i", Function: "default/fake", Concurrency: 64},
		Runtime: rt, Log: log, Logger: logger, StopGrace: time.Second,
		Start: l.Shim.Start, Adopt: l.Shim.Adopt, Save: l.Shim.Save,
	})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", proxy.New(proxy.Config{Gate: s.Gate(), Transport: transport, Logger: logger}))
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(s.Status()) })
	mux.HandleFunc("POST /stop", func(w http.ResponseWriter, r *http.Request) { _, _ = s.Stop(r.Context(), control.StopRequest{}) })
	mux.HandleFunc("/headers", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"header": r.Header, "host": r.Host, "query": r.URL.RawQuery})
	})
	supervised := make(chan error, 1)
	go func() { supervised <- s.Run(context.Background()) }()
	server := &http.Server{Handler: api.InTurn(mux), ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l.Listener) }()
	l.Serve(mux)
	select {
	case err = <-supervised:
	case <-ctx.Done():
		end := s.Stop
		if l.Shim.Peers() > 0 {
			end = s.Leave
		}
		_, _ = end(context.Background(), control.StopRequest{Drain: 5 * time.Second})
		err = <-supervised
	}
	_ = server.Shutdown(context.Background())
	<-served
	return err
}

// The leader dies while requests run, twice. The next one takes over the same process, and clients of living doors notice only a delay.
func TestLeaderIsKilled(t *testing.T) {
	c := newCrew(t)
	members := []*member{c.hire("a"), c.hire("b"), c.hire("c")}
	pid := members[0].until(api.Awake)
	for len(members) > 1 {
		first := leading(t, members...)
		members = slices.DeleteFunc(members, func(m *member) bool { return m == first })
		l := startLoad(4, members...)
		eventually(t, "requests are answered", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.answers > 20
		})
		first.kill()
		if got := members[0].until(api.Awake); got != pid {
			t.Errorf("after the leader's death process %d runs, want %d", got, pid)
		}
		answers, failures := l.stop()
		// The gate is shut until the next leader has had a token: that is a refusal.
		failures = slices.DeleteFunc(failures, func(f string) bool { return strings.HasPrefix(f, "503") && strings.Contains(f, api.CodeLoading) })
		if len(failures) > 0 {
			t.Errorf("%d answers, and failures: %q", answers, failures)
		}
	}
	if s, err := members[0].state(); err != nil || s.Restarts != 0 {
		t.Errorf("restarts %d, %v; want none", s.Restarts, err)
	}
	members[0].kill()
	c.wantGone()
}

// A stream through a follower ends with an error event when the leader dies.
func TestStreamIsCutHonestly(t *testing.T) {
	c := newCrew(t)
	members := []*member{c.hire("a"), c.hire("b")}
	members[0].until(api.Awake)
	first := leading(t, members...)
	follower := members[0]
	if follower == first {
		follower = members[1]
	}
	resp, err := follower.ask(stream, "pause=200ms")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	if line, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "data: ") {
		t.Fatalf("the stream begins with %q, %v", line, err)
	}
	first.kill()
	raw, err := io.ReadAll(in)
	events := strings.Split(strings.TrimSpace(string(raw)), "\n\n")
	if last := events[len(events)-1]; err != nil || !strings.HasPrefix(last, `data: {"error":`) || !strings.Contains(last, api.CodeStreamCut) {
		t.Errorf("the stream ends with %q, %v; want an error event", last, err)
	}
	for _, e := range events {
		if data, found := strings.CutPrefix(e, "data: "); !found || !json.Valid([]byte(data)) {
			t.Errorf("event %q is not whole", e)
		}
	}
}

// A client that leaves a follower also leaves the runtime.
func TestClientLeaves(t *testing.T) {
	c := newCrew(t)
	members := []*member{c.hire("a"), c.hire("b")}
	members[0].until(api.Awake)
	for _, m := range members {
		ctx, cancel := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, m.door.URL("/v1/completions"), strings.NewReader(stream))
		req.Header.Set(functionstest.HeaderFault, "pause=10ms")
		resp, err := c.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := m.state(); err != nil || s.Running != 1 {
			t.Errorf("%d run, %v; want 1", s.Running, err)
		}
		cancel()
		resp.Body.Close()
		eventually(t, "the runtime is told", func() bool {
			s, err := m.state()
			return err == nil && s.Running == 0
		})
	}
}

// A stop by any door ends all workers.
func TestStopEndsAll(t *testing.T) {
	c := newCrew(t)
	members := []*member{c.hire("a"), c.hire("b"), c.hire("c")}
	members[0].until(api.Awake)
	follower := members[0]
	if follower == leading(t, members...) {
		follower = members[1]
	}
	resp, err := c.http.Post(follower.door.URL("/stop"), "", nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v; want 200", resp, err)
	}
	resp.Body.Close()
	c.http.CloseIdleConnections()
	for _, m := range members {
		if err := m.cmd.Wait(); err != nil {
			t.Errorf("a worker ends with %v", err)
		}
	}
	c.wantGone()
}

// A leader that is told to end hands the runtime over after its requests have finished.
func TestLeaderIsToldToEnd(t *testing.T) {
	c := newCrew(t)
	members := []*member{c.hire("a"), c.hire("b")}
	pid := members[0].until(api.Awake)
	first := leading(t, members...)
	second := members[0]
	if second == first {
		second = members[1]
	}
	eventually(t, "the follower attends", func() bool {
		raw, _ := os.ReadFile("/proc/net/unix")
		return strings.Count(string(raw), filepath.Join(c.dir, "shared", "shim.sock")) >= 2
	})
	resp, err := second.ask(`{"model":"fake","max_tokens":20,"stream":true}`, "pause=10ms")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := first.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if raw, err := io.ReadAll(resp.Body); err != nil || !strings.HasSuffix(string(raw), "data: [DONE]\n\n") {
		t.Errorf("the stream ends with %v: %s", err, raw)
	}
	if err := first.cmd.Wait(); err != nil {
		t.Errorf("the leader ends with %v", err)
	}
	if got := second.until(api.Awake); got != pid {
		t.Errorf("process %d runs, want %d", got, pid)
	}
	if err := second.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := second.cmd.Wait(); err != nil {
		t.Errorf("the last worker ends with %v", err)
	}
	c.wantGone()
}

// The shim dies: the leader starts another one, with another runtime, and that one outlives the leader too.
func TestShimIsKilled(t *testing.T) {
	c := newCrew(t)
	members := []*member{c.hire("a"), c.hire("b")}
	pid := members[0].until(api.Awake)
	shim := parent(pid)
	if err := syscall.Kill(shim, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.wantGone()
	next := 0
	eventually(t, "another runtime is awake", func() bool {
		s, err := members[0].state()
		next = s.PID
		return err == nil && s.State == api.Awake && s.PID != pid && s.PID != 0 // for a moment it has none
	})
	eventually(t, "the follower attends again", func() bool {
		raw, _ := os.ReadFile("/proc/net/unix")
		return strings.Count(string(raw), filepath.Join(c.dir, "shared", "shim.sock")) >= 2
	})
	first := leading(t, members...)
	first.kill()
	for _, m := range members {
		if m != first {
			if got := m.until(api.Awake); got != next {
				t.Errorf("process %d runs, want %d", got, next)
			}
			m.kill()
		}
	}
	c.wantGone()
}

func TestRequestsPassUntouched(t *testing.T) {
	c := newCrew(t)
	members := []*member{c.hire("a"), c.hire("b")}
	members[0].until(api.Awake)
	var got []string
	for _, m := range members {
		req, _ := http.NewRequest(http.MethodPost, m.door.URL("/headers?a=1;b&c=%zz"), strings.NewReader("body"))
		req.Host = "model.example"
		for name, value := range map[string]string{"Authorization": "Bearer x", "X-Forwarded-For": "1.2.3.4", "X-Request-Id": "7", "User-Agent": ""} {
			req.Header.Set(name, value)
		}
		resp, err := c.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		got = append(got, string(raw))
	}
	if got[0] != got[1] || !strings.Contains(got[0], `"1.2.3.4"`) || !strings.Contains(got[0], `"a=1;b\u0026c=%zz"`) || !strings.Contains(got[0], "model.example") {
		t.Errorf("by one door %s\nby the other %s", got[0], got[1])
	}
	resp, err := c.http.Post(members[0].door.URL("/headers"), "", bytes.NewReader(make([]byte, 2<<20)))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	big, err := c.http.Post(members[1].door.URL("/headers"), "", bytes.NewReader(make([]byte, 2<<20)))
	if err != nil {
		t.Fatal(err)
	}
	big.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge && big.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a body over the limit: %d and %d, want 413 by the follower", resp.StatusCode, big.StatusCode)
	}
}

func TestBadFolders(t *testing.T) {
	open := t.TempDir()
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		open: "make it private", file: "not a directory", "/" + strings.Repeat("x", 100): "shorter path",
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		err = leader.Run(t.Context(), leader.Config{
			Dir: dir, Listener: l, Server: &http.Server{},
			Lead: func(context.Context, *leader.Leadership) error { return errors.New("leads") },
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", dir, err, want)
		}
	}
}

// TestSilentConnections: connections that ask nothing are bounded at a worker's door, and the oldest are closed.
func TestSilentConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	dir, logger := filepath.Join(newCrew(t).dir, "shared"), slog.New(slog.DiscardHandler)
	go func() {
		ended <- leader.Run(ctx, leader.Config{
			Dir: dir, Listener: l, Server: &http.Server{ReadHeaderTimeout: time.Hour}, Logger: logger,
			Shim: shim.ClientConfig{Command: append([]string{os.Args[0]}, shim.Args()...), Env: as("shim"), Lines: process.NewLog(50, nil).Write, Logger: logger},
			Lead: func(ctx context.Context, l *leader.Leadership) error {
				l.Serve(http.NotFoundHandler())
				<-ctx.Done()
				return l.Listener.Close()
			},
		})
	}()
	var first net.Conn
	for i := range 1025 { // one more than the most
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if i == 0 {
			first = conn
		}
	}
	_ = first.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := first.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the oldest of 1,025 silent connections is open")
	}
	if resp, err := http.Get("http://" + l.Addr().String()); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("a request beside them: %v, %v", resp, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
