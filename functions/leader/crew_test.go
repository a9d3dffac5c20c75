//go:build linux

package leader_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/functionstest"
)

// crew is the workers of one instance.
type crew struct {
	t    *testing.T
	dir  string
	http *http.Client
	pids string // file with the ids of the runtime and its grandchild
}

type member struct {
	crew *crew
	door api.Endpoint
	cmd  *exec.Cmd
}

func newCrew(t *testing.T) *crew {
	t.Helper()
	dir, err := os.MkdirTemp("", "lead") // shorter than the test's own: sockets lie in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	transport := api.NewTransport(32)
	t.Cleanup(transport.CloseIdleConnections)
	return &crew{t: t, dir: dir, http: &http.Client{Transport: transport}, pids: filepath.Join(dir, "pids")}
}

// hire starts a worker.
func (c *crew) hire(name string, args ...string) *member {
	c.t.Helper()
	m := &member{crew: c, door: api.Endpoint("unix:" + filepath.Join(c.dir, name))}
	path, _ := m.door.Socket()
	m.cmd = exec.Command(os.Args[0], append([]string{filepath.Join(c.dir, "shared"), path, "-pids=" + c.pids, "-grandchild=orphan"}, args...)...)
	m.cmd.Env, m.cmd.Stderr = as("worker"), os.Stderr
	if err := m.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(m.kill)
	eventually(c.t, "a worker listens", func() bool {
		conn, err := net.Dial("unix", path)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return m
}

// kill kills it; it may have ended.
func (m *member) kill() {
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait()
}

func (m *member) state() (s api.InstanceStatus, err error) {
	resp, err := m.crew.http.Get(m.door.URL("/state"))
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	return s, json.NewDecoder(resp.Body).Decode(&s)
}

// until waits for a state and returns the runtime's process.
func (m *member) until(state api.State) (pid int) {
	m.crew.t.Helper()
	eventually(m.crew.t, "the instance is "+string(state), func() bool {
		s, err := m.state()
		pid = s.PID
		return err == nil && s.State == state
	})
	return pid
}

const (
	whole  = `{"model":"fake","max_tokens":4}`
	stream = `{"model":"fake","max_tokens":400,"stream":true}`
)

func (m *member) ask(body, fault string) (*http.Response, error) {
	req, err := http.NewRequest(http.MethodPost, m.door.URL("/v1/completions"), strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set(functionstest.HeaderFault, fault)
	return m.crew.http.Do(req)
}

// leading returns the worker that holds the lock.
func leading(t *testing.T, members ...*member) *member {
	t.Helper()
	for _, m := range members {
		links, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fdinfo", m.cmd.Process.Pid))
		for _, link := range links {
			info, _ := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%s", m.cmd.Process.Pid, link.Name()))
			if bytes.Contains(info, []byte("FLOCK")) {
				return m
			}
		}
	}
	t.Fatal("nobody leads")
	return nil
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(raw), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

func (c *crew) wantGone() {
	c.t.Helper()
	raw, err := os.ReadFile(c.pids)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, field := range strings.Fields(string(raw)) {
		pid, _ := strconv.Atoi(field)
		eventually(c.t, fmt.Sprintf("process %d ends", pid), func() bool { return !alive(pid) })
	}
}

// load sends requests through a door until it is told to stop, and counts answers and failures.
type load struct {
	end      chan struct{}
	done     sync.WaitGroup
	mu       sync.Mutex // guards the fields below
	answers  int
	failures []string
}

func startLoad(clients int, members ...*member) *load {
	l := &load{end: make(chan struct{})}
	for _, m := range members {
		for range clients {
			l.done.Go(func() { l.ask(m) })
		}
	}
	return l
}

func (l *load) ask(m *member) {
	for {
		select {
		case <-l.end:
			return
		default:
		}
		resp, err := m.ask(whole, "pause=1ms")
		failure := fmt.Sprint(err)
		if err == nil {
			raw, readErr := io.ReadAll(resp.Body)
			resp.Body.Close()
			if failure = ""; readErr != nil || resp.StatusCode != http.StatusOK || !bytes.Contains(raw, []byte("t3")) {
				failure = fmt.Sprintf("%d %v %s", resp.StatusCode, readErr, raw)
			}
		}
		l.mu.Lock()
		if failure == "" {
			l.answers++
		} else {
			l.failures = append(l.failures, failure)
		}
		l.mu.Unlock()
	}
}

func (l *load) stop() (answers int, failures []string) {
	close(l.end)
	l.done.Wait()
	return l.answers, l.failures
}

func parent(pid int) int {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(raw), ") ")
	if fields := strings.Fields(rest); len(fields) > 1 {
		id, _ := strconv.Atoi(fields[1])
		return id
	}
	return 0
}
