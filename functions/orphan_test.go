//go:build linux

package functions_test

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions"
	"github.com/rouse-dev/rouse/functions/functionstest"
	"github.com/rouse-dev/rouse/functions/shim"
)

// host is a process with a function inside, as in local mode, with the function's own arguments.
func host(args []string) int {
	var cfg functions.Config
	flags := flag.NewFlagSet("host", flag.ContinueOnError)
	flags.StringVar((*string)(&cfg.Function.Name), "function", "", "")
	flags.StringVar((*string)(&cfg.Instance), "instance", "", "")
	flags.StringVar((*string)(&cfg.Listen), "listen", "", "")
	flags.StringVar((*string)(&cfg.Events), "events", "", "")
	flags.DurationVar(&cfg.StopGrace, "stop-grace", 0, "")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	_ = os.Setenv("FUNCTION_TEST", "runtime")
	cfg.Function.Runtime = api.Runtime{Kind: api.RuntimeCommand, Command: flags.Args()}
	cfg.Env, cfg.Keep = os.Environ(), append([]string{os.Args[0]}, shim.Args()...)
	cfg.Listening = func(e api.Endpoint) { fmt.Println("listening on", e) }
	i, err := functions.Start(cfg, nil)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	<-i.Exited()
	return 0
}

// spawned is a function in a separate process.
type spawned struct {
	*instance
	cmd  *exec.Cmd
	file string // the runtime writes its process ids there
	pids []int  // of the runtime and its grandchild
}

// spawn starts a function process without a shim, and waits until it is awake.
func spawn(t testing.TB, runtimeArgs ...string) *spawned {
	t.Helper()
	s := begin(t, "function", "--shim=false", runtimeArgs...)
	s.untilAwake()
	return s
}

// begin starts a process, as "function" or as the "host" of one, and waits until it listens.
func begin(t testing.TB, as, flag string, runtimeArgs ...string) *spawned {
	t.Helper()
	s := &spawned{instance: newInstance(t), file: filepath.Join(t.TempDir(), "pids")}
	if dir, workers := strings.CutPrefix(flag, "--workers="); workers { // they must all run the same
		s.file = filepath.Join(dir, "pids")
	}
	args := []string{
		"--function", "default/fake", "--instance", "fake-0001", "--listen", string(s.at), "--events", s.receive.URL,
		"--stop-grace", "500ms",
	}
	if as != "host" {
		args = append(args, "--quiet", flag, "--drain", "10s", "--concurrency", "64")
	}
	args = append(args, "--", os.Args[0], "-port=$(PORT)", "-pids="+s.file)
	s.cmd = exec.Command(os.Args[0], append(args, runtimeArgs...)...)
	s.cmd.Env = append(os.Environ(), "FUNCTION_TEST="+as, "TMPDIR="+t.TempDir()) // a killed process can't clean up
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // already ended if the test passed
		for _, pid := range s.pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("listening on %s\n", s.at); line != want {
		t.Errorf("the function prints %q, want %q", line, want)
	}
	return s
}

// untilAwake waits for the report, and reads the runtime's process IDs.
func (s *spawned) untilAwake() {
	s.t.Helper()
	s.until(api.Awake)
	raw, err := os.ReadFile(s.file)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, field := range strings.Fields(string(raw)) {
		pid, _ := strconv.Atoi(field)
		s.pids = append(s.pids, pid)
	}
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(raw), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// wantGone waits for the end of processes that are not our children.
func wantGone(t *testing.T, pids ...int) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for _, pid := range pids {
		for alive(pid) {
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("process %d is alive after 10 s", pid)
			}
		}
	}
}

// When the function is killed, the kernel kills its runtime.
func TestFunctionIsKilled(t *testing.T) {
	s := spawn(t)
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait() // the error is "signal: killed", from the line above
	wantGone(t, s.pids...)
}

// The function, or its host process, is killed: its shim leaves nothing behind.
func TestFunctionIsKilledAlone(t *testing.T) {
	for _, as := range []string{"function", "host"} {
		for _, kind := range []string{"group", "session", "orphan"} {
			t.Run(as+" "+kind, func(t *testing.T) {
				s := begin(t, as, "--shim", "-grandchild="+kind, "-ignore-term")
				s.untilAwake()
				s.wantAnswer()
				if err := s.cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				_ = s.cmd.Wait() // the error is "signal: killed", from the line above
				wantGone(t, s.pids...)
			})
		}
	}
}

// Workers of one host share a runtime. The leader is killed: the other takes over the same process, and no request is refused.
func TestWorkersTakeOver(t *testing.T) {
	dir, err := os.MkdirTemp("", "w") // short, for its sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	first := begin(t, "function", "--workers="+dir)
	first.untilAwake()
	second := begin(t, "function", "--workers="+dir)
	second.wantAnswer()
	if raw, err := os.ReadFile(second.file); err != nil || string(raw) != fmt.Sprintln(first.pids[0]) {
		t.Errorf("the second worker started a runtime of its own: %s, %v", raw, err)
	}
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		second.wantAnswer()
	}
	st, err := second.api.State(t.Context(), second.at)
	if err != nil || st.PID != first.pids[0] || st.State != api.Awake {
		t.Errorf("state %s, runtime %d, %v; want awake and the same process %d", st.State, st.PID, err, first.pids[0])
	}
	if _, err := second.api.Stop(t.Context(), second.at, control.StopRequest{}); err != nil {
		t.Error(err)
	}
	if err := second.cmd.Wait(); err != nil {
		t.Error(err)
	}
	wantGone(t, first.pids...)
}

// A runtime that dies takes its grandchild with it, and the next runtime is not harmed.
func TestRestartSweeps(t *testing.T) {
	s := spawn(t, "-grandchild=orphan")
	if err := syscall.Kill(s.pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.until(api.Unhealthy)
	s.until(api.Awake)
	wantGone(t, s.pids...)
	s.wantAnswer()
	if _, err := s.api.Stop(t.Context(), s.at, control.StopRequest{}); err != nil {
		t.Error(err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// SIGTERM drains: running requests finish, new ones are refused, and the process ends with status 0.
func TestTerm(t *testing.T) {
	s := spawn(t, "-grandchild=session", "-ignore-term")
	req, _ := http.NewRequest(http.MethodPost, s.at.URL("/v1/completions"), strings.NewReader(`{"model":"fake","max_tokens":20,"stream":true}`))
	req.Header.Set(functionstest.HeaderFault, "pause=20ms")
	resp, err := s.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.until(api.Draining)
	if refused, _, err := s.ask("/v1/completions", whole, ""); err != nil || refused.Header.Get(control.HeaderRefused) == "" {
		t.Errorf("a request during the drain: %v, %v; want a refusal", refused, err)
	}
	raw, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasSuffix(string(raw), "data: [DONE]\n\n") {
		t.Errorf("the stream ends with %v:\n%s", err, raw)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("the function ends with %v", err)
	}
	wantGone(t, s.pids...)
	s.until(api.Gone)
}

// A second SIGTERM ends it at once.
func TestTermTwice(t *testing.T) {
	s := spawn(t, "-ignore-term")
	req, _ := http.NewRequest(http.MethodPost, s.at.URL("/v1/completions"), strings.NewReader(stream))
	req.Header.Set(functionstest.HeaderFault, "hang")
	go func() {
		if resp, err := s.http.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	for running := 0; running == 0; {
		st, err := s.api.State(t.Context(), s.at)
		if err != nil {
			t.Fatal(err)
		}
		running = st.Running
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.until(api.Draining)
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Error(err)
	}
	wantGone(t, s.pids...)
}
