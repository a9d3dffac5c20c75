package process_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/functions/functionstest"
	"github.com/rouse-dev/rouse/functions/process"
)

// TestMain also runs the programs that tests start: a fake runtime, or a shim, which is a supervisor that adopts strays and starts a
// fake runtime.
func TestMain(m *testing.M) {
	switch os.Getenv("PROCESS_TEST") {
	case "runtime":
		os.Exit(functionstest.Main(os.Args[1:], os.Stdout, os.Stderr))
	case "employer":
		os.Exit(employer())
	case "agent":
		os.Exit(agent(os.Args[1:]))
	case "shim":
		os.Exit(shim(os.Args[1:], os.Stdin))
	case "idle shim":
		forever, _, _ := os.Pipe()
		os.Exit(shim(os.Args[1:], forever))
	}
	os.Exit(m.Run())
}

// shim starts a runtime with args and ends it when a line comes from end.
func shim(args []string, end *os.File) int {
	if err := process.Adopt(); err != nil {
		fmt.Println(err)
		return 1
	}
	p, err := process.Start(runtimeSpec(nil, args...))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	_, _ = bufio.NewReader(end).ReadString('\n')
	p.Stop(time.Second)
	fmt.Println(p.Status())
	return 0
}

// employer adopts, and starts programs by os/exec while children of Start come and go: the sweeps must not touch them.
func employer() int {
	if err := process.Adopt(); err != nil {
		fmt.Println(err)
		return 1
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 10 {
			p, err := process.Start(runtimeSpec(nil, "-exit=0"))
			if err != nil {
				fmt.Println(err)
				return
			}
			<-p.Exited()
		}
	}()
	for running := true; running; {
		out, err := exec.Command("/bin/sh", "-c", "sleep 0.01; echo here").Output()
		if err != nil || string(out) != "here\n" {
			fmt.Println("a program of our own:", string(out), err)
			return 1
		}
		select {
		case <-done:
			running = false
		default:
		}
	}
	return 0
}

// agent starts a shim, prints its id and waits for its end: it stands for the process that starts functions on a node.
func agent(args []string) int {
	if err := process.Adopt(); err != nil {
		fmt.Println(err)
		return 1
	}
	spec := runtimeSpec(nil, args...)
	spec.Env[len(spec.Env)-1] = "PROCESS_TEST=idle shim"
	p, err := process.Start(spec)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(p.PID())
	<-p.Exited()
	return 0
}

func runtimeSpec(lines func([]byte), args ...string) process.Spec {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "PROCESS_TEST=") })
	return process.Spec{Path: os.Args[0], Args: args, Env: append(env, "PROCESS_TEST=runtime"), Lines: lines}
}

// ids waits for the file that a fake runtime writes its process ids to.
func ids(t *testing.T, path string) []int {
	t.Helper()
	var out []int
	eventually(t, "the runtime writes "+path, func() bool {
		raw, err := os.ReadFile(path)
		for _, line := range strings.Fields(string(raw)) {
			id, _ := strconv.Atoi(line)
			out = append(out, id)
		}
		return err == nil
	})
	return out
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// eventually polls a condition outside of this process.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for tick := time.NewTicker(time.Millisecond); !ok(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not within 10 s", what)
		}
	}
}

func TestOutputAndStatus(t *testing.T) {
	log := process.NewLog(2, nil)
	p, err := process.Start(runtimeSpec(log.Write, "-exit", "3"))
	if err != nil {
		t.Fatal(err)
	}
	<-p.Exited()
	if got := p.Status(); got != "exit status 3" {
		t.Errorf("status %q, want exit status 3", got)
	}
	want := []string{"fake runtime starts", "cannot load the model: exits as told"}
	if diff := cmp.Diff(want, log.Tail(-1)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestStartSaysWhy(t *testing.T) {
	_, err := process.Start(process.Spec{Path: "/no/such/program"})
	if err == nil || !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "/no/such/program") {
		t.Errorf("error %v, want one that names the program and is os.ErrNotExist", err)
	}
}

func TestStopKillsWhoIgnoresSIGTERM(t *testing.T) {
	ready := make(chan struct{})
	ignored := make(chan struct{}, 2) // it is told twice
	p, err := process.Start(runtimeSpec(func(line []byte) {
		switch {
		case strings.HasPrefix(string(line), "listening on"):
			close(ready)
		case strings.Contains(string(line), "ignores SIGTERM"):
			ignored <- struct{}{}
		}
	}, "-announce", "-ignore-term"))
	if err != nil {
		t.Fatal(err)
	}
	<-ready
	if err := syscall.Kill(p.PID(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ignored // however slow it is
	p.Stop(100 * time.Millisecond)
	if got := p.Status(); got != "signal: killed" {
		t.Errorf("status %q, want signal: killed", got)
	}
}

// A grandchild in the runtime's group dies with the runtime, whatever the cause.
func TestGroupDiesWithTheRuntime(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pids")
	p, err := process.Start(runtimeSpec(nil, "-pids", file, "-grandchild", "group"))
	if err != nil {
		t.Fatal(err)
	}
	pids := ids(t, file)
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-p.Exited()
	eventually(t, "the grandchild dies", func() bool { return !alive(pids[1]) })
}

// startShim starts a shim as a child of this process, a subreaper like the node agent.
func startShim(t *testing.T, kind string) (cmd *exec.Cmd, end func(), pids []int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pids")
	cmd = exec.Command(os.Args[0], "-pids", file, "-grandchild", kind)
	cmd.Env = append(os.Environ(), "PROCESS_TEST=shim")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, func() { _, _ = in.Write([]byte("end\n")) }, ids(t, file)
}

// A shim that adopts leaves nothing: neither a grandchild in its own session nor one whose parent ended long ago.
func TestShimSweepsStrays(t *testing.T) {
	for _, kind := range []string{"group", "session", "orphan"} {
		t.Run(kind, func(t *testing.T) {
			cmd, end, pids := startShim(t, kind)
			if !alive(pids[0]) || !alive(pids[1]) {
				t.Fatal("the runtime or its grandchild does not run")
			}
			end()
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			for _, pid := range pids {
				if alive(pid) {
					t.Errorf("process %d outlives the shim's Stop", pid)
				}
			}
		})
	}
}

// The shim gets SIGKILL: the kernel kills the runtime.
func TestKilledShim(t *testing.T) {
	cmd, _, pids := startShim(t, "group")
	defer func() { _ = syscall.Kill(pids[1], syscall.SIGKILL) }() // nobody above this shim adopts
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the error is "signal: killed"
	eventually(t, "the runtime dies with its shim", func() bool { return !alive(pids[0]) })
}

// The shim gets SIGKILL and its parent adopts: nothing is left, not even a grandchild in its own session.
func TestKilledShimBelowAnAgent(t *testing.T) {
	for _, kind := range []string{"group", "session", "orphan"} {
		t.Run(kind, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "pids")
			cmd := exec.Command(os.Args[0], "-pids", file, "-grandchild", kind)
			cmd.Env = append(os.Environ(), "PROCESS_TEST=agent")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			shim, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil {
				t.Fatal(err)
			}
			pids := ids(t, file)
			if err := syscall.Kill(shim, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			for _, pid := range append(pids, shim) {
				if alive(pid) {
					t.Errorf("process %d outlives the agent's wait for the shim", pid)
				}
			}
		})
	}
}

func TestSweepsSpareOurOwnPrograms(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "PROCESS_TEST=employer")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestLogFollow(t *testing.T) {
	log := process.NewLog(3, nil)
	for _, line := range []string{"a", "b", "c", "d"} {
		log.Write([]byte(line))
	}
	if diff := cmp.Diff([]string{"c", "d"}, log.Tail(2)); diff != "" {
		t.Errorf("tail (-want +got):\n%s", diff)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var got []string
	err := log.Follow(ctx, 2, func(line string) error {
		got = append(got, line)
		switch line {
		case "d":
			log.Write([]byte("e"))
		case "e":
			cancel()
		}
		return nil
	})
	if diff := cmp.Diff([]string{"c", "d", "e"}, got); err != nil || diff != "" {
		t.Errorf("followed, error %v (-want +got):\n%s", err, diff)
	}
}

func TestMemoryIsMeasured(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pids")
	p, err := process.Start(runtimeSpec(nil, "-pids", file, "-grandchild", "session"))
	if err != nil {
		t.Fatal(err)
	}
	pids := ids(t, file)
	defer func() { _ = syscall.Kill(pids[1], syscall.SIGKILL) }() // this test does not adopt
	both, _, err := p.Memory()
	if err != nil || both < 1<<20 {
		t.Errorf("memory of the runtime and its grandchild: %v, %v; want at least 1 MiB", both, err)
	}
	p.Stop(0)
	if _, _, err := p.Memory(); err == nil {
		t.Error("memory of a process that has gone: no error")
	}
}
