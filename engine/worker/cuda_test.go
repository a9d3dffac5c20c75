package worker

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFrames has Python read the golden frames, and refuse damaged ones.
func TestFrames(t *testing.T) {
	unittest(t, "test_wire")
}

// TestWorker runs the worker on the CPU. Its results are the same one batch ahead, in parts, after preemption, and
// after a sleep.
func TestWorker(t *testing.T) {
	python := interpreter(t)
	if out, err := exec.Command(python, "-c", "import torch, numpy").CombinedOutput(); err != nil {
		t.Skipf("%s has no torch: %s", python, strings.TrimSpace(string(out)))
	}
	unittest(t, "test_worker")
}

func interpreter(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("there is no python3")
	return ""
}

func unittest(t *testing.T, module string) {
	t.Helper()
	if _, err := os.ReadFile("cuda/" + module + ".py"); err != nil { // so that go test does not use a cached result after it changed
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), interpreter(t), "-B", "-m", "unittest", module)
	cmd.Dir = "cuda"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestUnpack(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for range 2 {
		command, err := cudaCommand(interpreter(t))
		if err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(command[0], "-B", "-c", "import sys; sys.path.insert(0, sys.argv[1]); import wire", filepath.Dir(command[1])).CombinedOutput(); err != nil {
			t.Errorf("the unpacked program can't be imported: %v\n%s", err, out)
		}
		if err := os.WriteFile(command[1], []byte("damaged"), 0o600); err != nil { // the second round repairs it
			t.Fatal(err)
		}
	}
	path, err := cudaModel("pico")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() < 1<<20 {
		t.Errorf("pico is not unpacked: %v", err)
	}
	if _, err := cudaCommand("/nowhere/python"); err == nil || !strings.Contains(err.Error(), "--python") {
		t.Errorf("a missing interpreter: %v", err)
	}
}
