//go:build linux

package process_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rouse-dev/rouse/functions/functionstest"
	"github.com/rouse-dev/rouse/functions/process"
)

// rounds is how often each way of ending is tried, to find races.
const rounds = 3

// A runtime's descendants leave its group, its session and every parent, ignore signals, and fork while they are killed. However the end
// comes, none is left.
func TestSwarm(t *testing.T) {
	for _, way := range []struct {
		name, as string
		end      func(t *testing.T, shim *exec.Cmd, ask func(), pids []int)
	}{
		{"stop", "shim", func(_ *testing.T, _ *exec.Cmd, ask func(), _ []int) { ask() }},
		{"the runtime is killed", "shim", func(t *testing.T, _ *exec.Cmd, ask func(), pids []int) {
			if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			ask()
		}},
		{"the shim is killed below an agent", "agent", func(t *testing.T, _ *exec.Cmd, _ func(), pids []int) {
			if err := syscall.Kill(pids[1], syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			for range rounds {
				file := filepath.Join(t.TempDir(), "pids")
				t.Cleanup(func() { process.KillMarked("SWARM=" + file) }) // if the test fails
				cmd := exec.Command(os.Args[0], "-pids", file, "-grandchild", "swarm")
				cmd.Env = append(os.Environ(), "PROCESS_TEST="+way.as)
				in, err := cmd.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				out, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				pids := ids(t, file)
				if way.as == "agent" {
					line, err := bufio.NewReader(out).ReadString('\n')
					if err != nil {
						t.Fatal(err)
					}
					shim, err := strconv.Atoi(strings.TrimSpace(line))
					if err != nil {
						t.Fatal(err)
					}
					pids = append(pids, shim)
				}
				way.end(t, cmd, func() { _, _ = in.Write([]byte("end\n")) }, pids)
				if err := cmd.Wait(); err != nil {
					t.Fatal(err)
				}
				for range 3 { // one search may miss a process that forks and ends
					if left, err := functionstest.Swarm(file); err != nil || len(left) > 0 {
						t.Fatalf("processes are left: %v, %v", left, err)
					}
				}
			}
		})
	}
}
