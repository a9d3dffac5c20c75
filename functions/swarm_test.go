//go:build linux

package functions_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/functionstest"
	"github.com/rouse-dev/rouse/functions/process"
)

// A runtime's descendants leave its group, its session and every parent, ignore signals and fork while they are killed. However the
// function ends, none is left.
func TestNothingIsLeftOfASwarm(t *testing.T) {
	kill := func(t *testing.T, pid int) {
		t.Helper()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	for _, way := range []struct {
		name, as, flag string
		end            func(*testing.T, *spawned)
	}{
		{"a stop", "function", "--shim=false", func(t *testing.T, s *spawned) {
			if _, err := s.api.Stop(t.Context(), s.at, control.StopRequest{}); err != nil {
				t.Fatal(err)
			}
		}},
		{"SIGTERM", "function", "--shim=false", func(t *testing.T, s *spawned) {
			if err := syscall.Kill(s.cmd.Process.Pid, syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}},
		{"the function is killed, and has a shim", "function", "--shim", func(t *testing.T, s *spawned) { kill(t, s.cmd.Process.Pid) }},
		{"the process that it is in is killed", "host", "", func(t *testing.T, s *spawned) { kill(t, s.cmd.Process.Pid) }},
	} {
		t.Run(way.name, func(t *testing.T) {
			s := begin(t, way.as, way.flag, "-grandchild=swarm", "-ignore-term")
			t.Cleanup(func() { process.KillMarked("SWARM=" + s.file) }) // if the test fails
			s.untilAwake()
			way.end(t, s)
			_ = s.cmd.Wait() // another test checks how it ends
			wantGone(t, append(s.pids, s.cmd.Process.Pid)...)
			wantNoSwarm(t, s.file)
		})
	}
	t.Run("the runtime is killed", func(t *testing.T) {
		s := begin(t, "function", "--shim=false", "-grandchild=swarm")
		t.Cleanup(func() { process.KillMarked("SWARM=" + s.file) }) // if the test fails
		s.untilAwake()
		kill(t, s.pids[0])
		s.until(api.Unhealthy)
		wantGone(t, s.pids...)
		s.until(api.Awake) // with a swarm of its own
		if _, err := s.api.Stop(t.Context(), s.at, control.StopRequest{}); err != nil {
			t.Fatal(err)
		}
		_ = s.cmd.Wait()
		wantNoSwarm(t, s.file)
	})
}

// wantNoSwarm waits until nothing of a swarm is left: three searches must find nothing, as one may miss a process that forks and ends.
func wantNoSwarm(t *testing.T, mark string) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for quiet := 0; quiet < 3; quiet++ {
		left, err := functionstest.Swarm(mark)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) > 0 {
			quiet = -1
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("processes are left after 10 s: %v", left)
		}
	}
}
