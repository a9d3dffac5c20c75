package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait of a test: far above what anything takes, also on
// a machine that does much else.
const patience = 30 * time.Second

// place is where a server of one test lives.
type place struct {
	dir     string // working directory of the server
	runtime string // XDG_RUNTIME_DIR: short, because a Unix socket's path has 107 bytes at most
	extra   []string
	netns   string  // the network namespace of its servers; empty: the machine's
	server  *server // nil: none was started
	bursts  []*burst
	sink    *sink  // nil: none receives
	files   *files // of the script; nil: none
	judged  []*judged
	direct  bool // there is no tap between clients and server
	strange bool // only failures are judged: what its runtimes answer need not be as OpenAI describes it
}

func newPlace() (*place, error) {
	runtime, err := os.MkdirTemp("", "r")
	if err != nil {
		return nil, err
	}
	return &place{dir: runtime, runtime: runtime}, nil
}

// env returns the environment of the server and the commands of a test.
func (p *place) env() []string {
	return append([]string{"XDG_RUNTIME_DIR=" + p.runtime, "HOME=" + p.runtime, "XDG_CACHE_HOME=", "XDG_CONFIG_HOME=", "XDG_STATE_HOME=", "OLLAMA_MODELS=", "ROUSE_CACHE=", "K_SINK=", "ROUSE_SERVER="}, p.extra...)
}

// close kills the server, if it still runs, and reports processes that outlive it.
func (p *place) close() error {
	if p.server != nil {
		_ = p.server.cmd.Process.Kill()
		<-p.server.ended
	}
	err := errors.Join(p.alone(), p.sane(), p.sink.check(), p.right())
	if removed := os.RemoveAll(p.runtime); err == nil {
		err = removed
	}
	return err
}

// sane looks through all that the last server printed for what no program may print.
func (p *place) sane() error {
	if p.server == nil {
		return nil
	}
	out := p.server.output()
	for _, bad := range []string{"panic: ", "DATA RACE", "fatal error: ", "goroutine 1 ["} {
		if strings.Contains(out, bad) {
			return fmt.Errorf("the server printed %q:\n%s", bad, out)
		}
	}
	return nil
}

// right returns the errors in the answers of all servers.
func (p *place) right() error {
	var all error
	for _, j := range p.judged {
		all = errors.Join(all, j.wrongs())
	}
	return all
}

// alone waits until no process of this place is left.
func (p *place) alone() error {
	return retry(func() error {
		left, err := p.processes()
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("processes are left: %s", strings.Join(left, "; "))
		}
		return err
	})
}

// processes are the living processes that carry this place in their environment, each as "PID command line".
func (p *place) processes() ([]string, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err != nil {
			continue
		}
		// A process that has ended, or is another user's, can't be read.
		environ, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ"))
		if !strings.Contains("\x00"+string(environ), "\x00XDG_RUNTIME_DIR="+p.runtime+"\x00") {
			continue
		}
		cmdline, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		found = append(found, entry.Name()+" "+strings.ReplaceAll(string(cmdline), "\x00", " "))
	}
	return found, nil
}

// retry asks until the answer is nil, and returns the last answer when patience ends.
func retry(ask func() error) error {
	deadline := time.Now().Add(patience)
	pause := 5 * time.Millisecond
	for {
		err := ask()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pause) // a process of its own runs on the real clock
		pause = min(2*pause, 100*time.Millisecond)
	}
}

// server is a running `rouse up`.
type server struct {
	cmd   *exec.Cmd
	url   string   // of the front door
	admin string   // where its commands reach it
	log   *os.File // all that it printed
	ended chan struct{}
	err   error // how it ended; read after ended is closed
}

// start starts `rouse up` with the arguments and waits until it takes requests.
func (p *place) start(args ...string) error {
	if p.server != nil && !p.server.gone() {
		return errors.New("a server runs already")
	}
	logs, err := os.OpenFile(filepath.Join(p.dir, "up.log"), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	line := append([]string{filepath.Join(bin, "rouse"), "up", "--listen", "127.0.0.1:0", "--no-gpu", "--log-format", "json"}, args...)
	if p.netns != "" {
		line = append([]string{"ip", "netns", "exec", p.netns}, line...)
	}
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	cmd.Env = append(cmd.Env, p.env()...)
	cmd.Stdout, cmd.Stderr = logs, logs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a group of its own, as a shell gives it on a terminal
	if err := cmd.Start(); err != nil {
		return err
	}
	s := &server{cmd: cmd, log: logs, ended: make(chan struct{})}
	p.server = s
	go func() { // ends with the process, which close kills
		s.err = cmd.Wait()
		close(s.ended)
	}()
	if err := retry(s.ready); err != nil || p.netns != "" || p.direct {
		return err
	}
	return p.judge()
}

// ready looks for the line that says where the server takes requests.
func (s *server) ready() error {
	lines := bufio.NewScanner(io.NewSectionReader(s.log, 0, 1<<30))
	for lines.Scan() {
		var line struct{ Msg, URL, Admin string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "ready" {
			s.url, s.admin = line.URL, line.Admin
			return nil
		}
	}
	return fmt.Errorf("the server is not ready:\n%s", s.output())
}

func (s *server) output() string {
	all, err := io.ReadAll(io.NewSectionReader(s.log, 0, 1<<30))
	if err != nil {
		return err.Error()
	}
	return string(all)
}

func (s *server) gone() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// wait waits for the server's end and returns its exit status, -1 after a signal.
func (s *server) wait() (int, error) {
	select {
	case <-s.ended:
		return s.cmd.ProcessState.ExitCode(), nil
	case <-time.After(patience):
		return 0, fmt.Errorf("the server did not end:\n%s", s.output())
	}
}

// rouse runs a command against this place's server and returns its output.
func (p *place) rouse(args ...string) (stdout string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "rouse"), args...)
	cmd.Env = append(os.Environ(), p.env()...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("rouse %s: %w: %s", strings.Join(args, " "), err, exit.Stderr)
	}
	return string(out), err
}

// newServer starts a server for a Go test; it ends with the test.
func newServer(t *testing.T, args ...string) *place {
	t.Helper()
	p, err := newPlace()
	if err != nil {
		t.Fatal(err)
	}
	p.serve(t, args...)
	return p
}

// newStrange is newServer for runtimes whose own answers are not as OpenAI describes them.
func newStrange(t *testing.T, args ...string) *place {
	t.Helper()
	p, err := newPlace()
	if err != nil {
		t.Fatal(err)
	}
	p.strange = true
	p.serve(t, args...)
	return p
}

// serve starts the place's server for a Go test; it ends with the test.
func (p *place) serve(t *testing.T, args ...string) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() && p.server != nil {
			t.Logf("the server printed:\n%s", p.server.output())
		}
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	if err := p.start(args...); err != nil {
		t.Fatal(err)
	}
}

// instance is an instance in the output of `rouse describe`.
type instance struct {
	Instance string
	State    string
	PID      int
}

// instance returns the only instance of a function, and waits until it has a runtime.
func (p *place) instance(name string) (found instance, err error) {
	err = retry(func() error {
		found, err = p.instanceNow(name)
		return err
	})
	return found, err
}

// instanceNow is instance without the wait.
func (p *place) instanceNow(name string) (instance, error) {
	out, err := p.rouse("describe", name, "-o", "json")
	if err != nil {
		return instance{}, err
	}
	var f struct{ Instances []instance }
	if err := json.Unmarshal([]byte(out), &f); err != nil {
		return instance{}, fmt.Errorf("read what rouse describe says: %w", err)
	}
	if len(f.Instances) != 1 || f.Instances[0].PID == 0 {
		return instance{}, fmt.Errorf("%s has no runtime, or several: %s", name, out)
	}
	return f.Instances[0], nil
}

// port is the port of a server's front door.
func (s *server) port() string {
	u, err := url.Parse(s.url)
	if err != nil {
		return ""
	}
	return u.Port()
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}
