package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// pythonClients are the scripts of clients/python: each asks with the official clients that its name says.
var pythonClients = []string{"openai", "anthropic", "ollama", "litellm", "langchain", "llamaindex", "agents", "openresponses", "lmeval", "guidellm", "aiperf"}

// TestPython runs the clients in Python of all APIs, and the programs that measure and judge servers, against one server.
func TestPython(t *testing.T) {
	t.Parallel()
	python := filepath.Join(os.Getenv("ROUSE_PYTHON"), "bin", "python")
	if os.Getenv("ROUSE_PYTHON") == "" {
		absent(t, "the Python clients are not named by ROUSE_PYTHON: make python installs them, make e2e names them")
	}
	p, err := newPlace()
	if err != nil {
		t.Fatal(err)
	}
	key, err := p.rouse("keys", "create", "-f", filepath.Join(p.dir, "keys.yaml"), "python")
	if err != nil {
		t.Fatal(err)
	}
	p.serve(t, "--model", "pico", "--store", "store", "--keys", "keys.yaml")
	t.Run("clients", func(t *testing.T) { // ends when all have
		for _, name := range pythonClients {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), 30*patience) // most of it is the import of their packages
				defer cancel()
				cmd := exec.CommandContext(ctx, python, "check_"+name+".py", p.server.url, strings.TrimSpace(key))
				cmd.Dir = filepath.Join("clients", "python")
				cmd.Env = append(os.Environ(), "PYTHONPYCACHEPREFIX="+filepath.Join(os.Getenv("ROUSE_PYTHON"), "bytecode"), "HOME="+t.TempDir())
				cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // some start programs of their own
				cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
				out, err := cmd.CombinedOutput()
				t.Logf("%s", out)
				if state := cmd.ProcessState; state != nil {
					t.Logf("%v of a processor", state.UserTime()+state.SystemTime())
				}
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
	})
}
