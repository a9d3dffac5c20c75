package local_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// prewarmed are the children of this process that stand by.
func prewarmed(t *testing.T) (pids []int) {
	t.Helper()
	children, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range children {
		raw, _ := os.ReadFile(path) // the thread may have ended
		for _, field := range bytes.Fields(raw) {
			var pid int
			if _, err := fmt.Sscan(string(field), &pid); err != nil {
				t.Fatal(err)
			}
			cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // it may have ended
			if bytes.Contains(cmdline, []byte("function\x00keep")) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// awaitPrewarmed waits until one process stands by.
func awaitPrewarmed(t *testing.T) int {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if pids := prewarmed(t); len(pids) == 1 {
			return pids[0]
		}
	}
	t.Fatalf("processes that stand by: %v, want one", prewarmed(t))
	return 0
}

// The process that was started ahead becomes the instance; one that died does no harm.
func TestPrewarmed(t *testing.T) {
	for name, kill := range map[string]bool{"used": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			s := start(t, nil)
			pid := awaitPrewarmed(t)
			if kill {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			status, body := s.send(http.MethodPost, api.Endpoint(s.info.URL), "/v1/chat/completions", `{"model":"pico","max_tokens":1,"messages":[{"role":"user","content":"echo a"}]}`)
			if status != http.StatusOK {
				t.Fatalf("status %d: %s", status, body)
			}
			// Used, the process has children of its own now: its runtime.
			var raw []byte
			tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
			for _, path := range tasks {
				more, _ := os.ReadFile(path)
				raw = append(raw, more...)
			}
			if used := len(raw) > 0; used == kill {
				t.Errorf("the process that was started ahead runs the runtime: %t, want %t", used, !kill)
			}
		})
	}
}
