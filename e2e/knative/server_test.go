package knative

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// server is a server on this machine. It runs until the test ends, and can be killed and started again.
type server struct {
	program, dir string
	args         []string
	cmd          *exec.Cmd // nil: it was killed
}

// newServer runs one.
func newServer(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{dir: t.TempDir(), program: filepath.Join(t.TempDir(), "rouse"), args: append([]string{"up", "--no-gpu", "--log-format", "json"}, args...)}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", s.program, root+"/cmd/rouse").CombinedOutput(); err != nil {
		t.Fatalf("build rouse: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if s.cmd != nil {
			_ = s.cmd.Process.Signal(syscall.SIGTERM)
			_ = s.cmd.Wait()
		}
		if printed, err := os.ReadFile(s.log()); t.Failed() && err == nil {
			t.Logf("rouse up printed:\n%s", printed)
		}
	})
	s.start(t)
	return s
}

// log is the file of what it prints.
func (s *server) log() string { return filepath.Join(s.dir, "up.log") }

func (s *server) start(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() // the process has its own
	cmd := exec.Command(s.program, s.args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+s.dir, "HOME="+s.dir, "KUBECONFIG=")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.cmd = cmd
}

// kill ends it without a word.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}

// up runs a server on this machine until the test ends. It returns the file of what it prints.
func up(t *testing.T, args ...string) (printed string) {
	t.Helper()
	return newServer(t, append([]string{"--listen", "127.0.0.1:0"}, args...)...).log()
}

// urlOf waits until a server says where it listens.
func urlOf(t *testing.T, log string) (url string) {
	t.Helper()
	f := &frontDoorElsewhere{agents: "none"}
	eventually(t, "a server", func() string { return f.ready(log) })
	return f.url
}
