//go:build linux

package shim_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// program is a program that a test has started.
type program struct {
	t   *testing.T
	cmd *exec.Cmd
	out *bufio.Reader
	in  func()
}

func start(t *testing.T, what string, args ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command(os.Args[0], args...)}
	p.cmd.Env, p.cmd.Stderr = as(what), os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.out, p.in = bufio.NewReader(out), func() { _ = in.Close() }
	t.Cleanup(p.kill)
	return p
}

func (p *program) line() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// kill kills it; it may have ended.
func (p *program) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// eventually polls a condition outside of this process.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

// ids waits for the process ids of a fake runtime and its grandchild.
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

// alive reports whether one of the test's processes runs; a zombie does not. All of them are this program, so that another process with
// a reused ID does not count.
func alive(pid int) bool {
	name, rest := stat(pid)
	own, _ := stat(os.Getpid())
	return rest != nil && rest[0] != "Z" && rest[0] != "X" && command(name) == command(own)
}

// command returns the name in "PID (NAME".
func command(name string) string {
	_, name, _ = strings.Cut(name, "(")
	return name
}

// stat returns the name and the further fields of /proc/PID/stat.
func stat(pid int) (name string, rest []string) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", nil
	}
	before, after, _ := strings.Cut(string(raw), ") ")
	return before, strings.Fields(after)
}

func parent(pid int) int {
	if _, rest := stat(pid); rest != nil {
		id, _ := strconv.Atoi(rest[1])
		return id
	}
	return 0
}

func wantGone(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		eventually(t, fmt.Sprintf("process %d ends", pid), func() bool { return !alive(pid) })
	}
}
