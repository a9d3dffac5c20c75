package cli

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

func TestInstall(t *testing.T) {
	dir := t.TempDir()
	from := filepath.Join(dir, "program")
	if err := os.WriteFile(from, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(dir, "to")
	if err := os.Mkdir(to, 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 { // an init container may run again
		if err := install(from, filepath.Join(to, "rouse-function")); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(to, "rouse-function"))
	info, err2 := os.Stat(filepath.Join(to, "rouse-function"))
	if err != nil || err2 != nil || string(text) != "program" || info.Mode().Perm() != 0o755 {
		t.Errorf("installed is %q, %v (%v, %v)", text, info.Mode(), err, err2)
	}
	if left, _ := os.ReadDir(to); len(left) != 1 {
		t.Errorf("%d files are there, want the program alone", len(left))
	}
	if err := install(from, filepath.Join(dir, "none", "rouse-function")); err == nil {
		t.Error("a folder that is not there is taken")
	}
}

// TestProbe runs a container's own probe only while the server is up.
func TestProbe(t *testing.T) {
	status := http.StatusServiceUnavailable
	function := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer function.Close()
	_, port, err := net.SplitHostPort(function.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	probe := func(command string) error {
		cmd := Command()
		cmd.SetArgs([]string{"probe", "--port", port, "--", command})
		return cmd.Execute()
	}
	if err := probe("false"); err != nil {
		t.Errorf("while it sleeps: %v", err)
	}
	status = http.StatusOK
	if err := probe("false"); err == nil {
		t.Error("while it is up a probe that fails passes")
	}
	if err := probe("true"); err != nil {
		t.Errorf("while it is up: %v", err)
	}
	function.Close()
	if n, _ := strconv.Atoi(port); up(t.Context(), n) {
		t.Error("it is up though nobody listens")
	}
}

func TestStopSignal(t *testing.T) {
	for text, want := range map[string]syscall.Signal{"SIGQUIT": syscall.SIGQUIT, "quit": syscall.SIGQUIT, "3": syscall.SIGQUIT, "SIGWINCH": syscall.SIGWINCH, "SIGRTMIN+3": 37} {
		if got, err := stopSignal(text); err != nil || got != want {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "SIGNO", "0", "99", "SIGRTMIN+x"} {
		if got, err := stopSignal(text); err == nil {
			t.Errorf("%q is the signal %v", text, got)
		}
	}
}
