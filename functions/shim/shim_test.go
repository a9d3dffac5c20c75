//go:build linux

package shim_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/functionstest"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/shim"
	"github.com/rouse-dev/rouse/functions/supervise"
)

const variable = "SHIM_TEST"

// TestMain also runs the programs that tests start: a shim, a runtime, and a function that starts a runtime below a shim.
func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(variable) {
	case "shim":
		err = shim.Run(context.Background(), shim.Config{In: os.Stdin})
	case "runtime":
		os.Exit(functionstest.Main(os.Args[1:], os.Stdout, os.Stderr))
	case "function":
		err = function(os.Args[1], os.Args[2:])
	case "bystander":
		err = bystander(os.Args[1])
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func as(what string) []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, variable+"=") })
	return append(env, variable+"="+what)
}

func config(socket string) shim.ClientConfig {
	return shim.ClientConfig{Command: append([]string{os.Args[0]}, shim.Args()...), Env: as("shim"), Socket: socket}
}

func runtimeSpec(lines func([]byte), args ...string) process.Spec {
	return process.Spec{Path: os.Args[0], Args: args, Env: as("runtime"), Lines: lines}
}

// function runs a runtime below a shim until its standard input ends.
func function(socket string, args []string) error {
	if err := process.Adopt(); err != nil {
		return err
	}
	c, err := shim.Open(context.Background(), config(socket))
	if err != nil {
		return err
	}
	defer c.Close()
	child, err := c.Start(runtimeSpec(nil, args...))
	if err != nil {
		return err
	}
	c.Save(supervise.Note{State: api.Awake, Endpoint: "http://somewhere:1"})
	go func() {
		<-child.Exited()
		fmt.Println("the runtime ended:", child.Status())
	}()
	fmt.Println(child.PID())
	go func() {
		for c.Peers() == 0 {
			time.Sleep(time.Millisecond) // in a separate process, which waits for nothing else
		}
		fmt.Println("attended")
	}()
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	return nil
}

// bystander attends until the instance is over.
func bystander(socket string) error {
	if err := process.Adopt(); err != nil {
		return err
	}
	err := shim.Attend(context.Background(), socket, func() {})
	if errors.Is(err, shim.ErrEnded) {
		fmt.Println("ended")
		return nil
	}
	return err
}

var kinds = []string{"group", "session", "orphan"}

func TestFunctionIsKilled(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "pids")
			f := start(t, "function", "", "-pids", file, "-grandchild", kind, "-ignore-term")
			pid, _ := strconv.Atoi(f.line())
			pids := ids(t, file)
			if pids[0] != pid || !alive(pids[1]) {
				t.Fatalf("the function says %d runs, the runtime %v", pid, pids)
			}
			shim := parent(pid)
			if parent(shim) != f.cmd.Process.Pid {
				t.Fatalf("the runtime's parent %d is no shim below the function", shim)
			}
			f.kill()
			wantGone(t, append(pids, shim)...)
		})
	}
}

func TestShimIsKilled(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "pids")
			f := start(t, "function", "", "-pids", file, "-grandchild", kind, "-ignore-term")
			pid, _ := strconv.Atoi(f.line())
			pids := ids(t, file)
			if err := syscall.Kill(parent(pid), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if got, want := f.line(), "the runtime ended: the shim of the runtime has ended (signal: killed)"; got != want {
				t.Errorf("the function says %q, want %q", got, want)
			}
			for _, pid := range pids {
				if alive(pid) {
					t.Errorf("process %d is alive after the runtime's end was reported", pid)
				}
			}
		})
	}
}

// The function that started the shim is gone: another worker kills the shim's remains, although they are not its children.
func TestShimIsKilledWithoutItsFunction(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			socket, file := filepath.Join(dir, "s"), filepath.Join(dir, "pids")
			f := start(t, "function", socket, "-pids", file, "-grandchild", kind, "-ignore-term")
			pid, _ := strconv.Atoi(f.line())
			pids := ids(t, file)
			shim := parent(pid)
			start(t, "bystander", socket)
			f.line()
			f.kill()
			if !alive(pid) || !alive(shim) {
				t.Fatal("the runtime died with one of two workers")
			}
			if err := syscall.Kill(shim, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			wantGone(t, pids...)
		})
	}
}

func TestRuntimeOutlivesItsFunction(t *testing.T) {
	dir := t.TempDir()
	socket, file := filepath.Join(dir, "s"), filepath.Join(dir, "pids")
	f := start(t, "function", socket, "-pids", file, "-grandchild", "orphan", "-announce")
	pid, _ := strconv.Atoi(f.line())
	pids := ids(t, file)
	fewer := make(chan struct{}, 9)
	attended := make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { attended <- shim.Attend(ctx, socket, func() { fewer <- struct{}{} }) }()
	f.line()
	f.kill()
	<-fewer // the worker's end is reported

	lines := make(chan string, 100)
	cfg := config(socket)
	cfg.Lines = func(line []byte) { lines <- string(line) }
	c, err := shim.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-attended; err != nil {
		t.Error(err)
	}
	child, launch, note, found := c.Adopt()
	if !found || child == nil || child.PID() != pid || launch.Endpoint != "http://somewhere:1" || note.State != api.Awake {
		t.Fatalf("adopted %v, %+v, %+v, %v; want the runtime %d and its note", child, launch, note, found, pid)
	}
	if line := <-lines; line != "fake runtime starts" {
		t.Errorf("the first line is %q, want what it wrote before", line)
	}
	if used, _, err := child.Memory(); err != nil || used < api.MiB {
		t.Errorf("memory %v, %v; want more than a MiB", used, err)
	}
	if _, err := child.(*shim.Child).CPU(); err != nil {
		t.Error(err)
	}
	child.Stop(10 * time.Second)
	if got := child.Status(); got != "exit status 0" {
		t.Errorf("status %q, want exit status 0", got)
	}
	wantGone(t, pids...)
	// It can start another one.
	again, err := c.Start(runtimeSpec(nil))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	wantGone(t, again.PID())
}

func TestShimIsReplaced(t *testing.T) {
	c, err := shim.Open(t.Context(), config(filepath.Join(t.TempDir(), "s")))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3 {
		child, err := c.Start(runtimeSpec(nil))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(parent(child.PID()), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-child.Exited()
	}
}

func TestOutputAndExit(t *testing.T) {
	c, err := shim.Open(t.Context(), config(""))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 20 {
		var lines []string
		child, err := c.Start(runtimeSpec(func(line []byte) { lines = append(lines, string(line)) }, "-exit=3"))
		if err != nil {
			t.Fatal(err)
		}
		<-child.Exited()
		want := []string{"fake runtime starts", "cannot load the model: exits as told"}
		if child.Status() != "exit status 3" || !slices.Equal(lines, want) {
			t.Errorf("%q, %q; want exit status 3, %q", child.Status(), lines, want)
		}
	}
}

// The shim ignores signals, but its runtime does not.
func TestRuntimeHeedsSignals(t *testing.T) {
	c, err := shim.Open(t.Context(), config(""))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	child, err := c.Start(process.Spec{Path: "sleep", Args: []string{"300"}})
	if err != nil {
		t.Fatal(err)
	}
	child.Stop(5 * time.Minute)
	if child.Status() != "signal: terminated" {
		t.Errorf("it ended by %q, want SIGTERM", child.Status())
	}
}

func TestStartSaysWhy(t *testing.T) {
	c, err := shim.Open(t.Context(), config(""))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no program"), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		err  error
		text string
	}{
		"/no/such/program": {fs.ErrNotExist, "start /no/such/program: "},
		"no-such-program":  {exec.ErrNotFound, "start no-such-program: "},
		text:               {nil, "exec format error"},
	} {
		if _, err := c.Start(process.Spec{Path: path}); err == nil || (want.err != nil && !errors.Is(err, want.err)) || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%s: %v, want %v and %q", path, err, want.err, want.text)
		}
	}
}

// A stopped instance is over for all workers, and a new one can begin.
func TestEnd(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	c, err := shim.Open(t.Context(), config(socket))
	if err != nil {
		t.Fatal(err)
	}
	attended := make(chan error)
	go func() { attended <- shim.Attend(t.Context(), socket, func() {}) }()
	eventually(t, "we attend", func() bool { return c.Peers() == 1 })
	c.Save(supervise.Note{State: api.Gone})
	c.Close()
	if err := <-attended; !errors.Is(err, shim.ErrEnded) {
		t.Errorf("Attend: %v, want ErrEnded", err)
	}
	next, err := shim.Open(t.Context(), config(socket))
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if _, _, _, found := next.Adopt(); found {
		t.Error("the next instance finds a note of the last one")
	}
}

func TestRunByHand(t *testing.T) {
	in, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	if err := shim.Run(t.Context(), shim.Config{In: in}); err == nil || !strings.Contains(err.Error(), "a function starts this command") {
		t.Errorf("error %v, want one that says who starts it", err)
	}
}

// A shim that does not answer is not left behind.
func TestOpenFails(t *testing.T) {
	mark := "SHIM_OPEN=" + rand.Text()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := shim.Open(ctx, shim.ClientConfig{Command: []string{"sleep", "300"}, Env: []string{mark}, Socket: filepath.Join(t.TempDir(), "s")})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v, want that the time is up", err)
	}
	eventually(t, "the shim has ended", func() bool {
		files, _ := filepath.Glob("/proc/[0-9]*/environ")
		return !slices.ContainsFunc(files, func(f string) bool {
			env, _ := os.ReadFile(f) // a process may have ended
			return strings.Contains(string(env), mark)
		})
	})
}
