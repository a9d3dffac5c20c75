// Package real runs model servers that are not ours, as they are installed from their registries, behind Rouse. `make real` installs them, once;
// without them each test is skipped, and says so.
//
// A fault that these tests find and the simulators (e2e/vllmsim) do not is a fault of the simulators too.
// A start takes minutes, so a test shares one among all that it asks. Nothing is timed; every wait has a generous bound.
//
//	install NAME   installs one into the cache: NAME.txt are its packages, NAME.py makes what they lack
//	NAME_test.go   its tests
//	record_test.go writes what vLLM says for the tests of packages: make real NAME=vllm RECORD=1
package real

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// patience bounds a wait: far above what a start takes on a machine that does much else.
const patience = 15 * time.Minute

// bin holds the programs under test.
var bin string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e/real:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "rouse-real-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	bin = dir
	if out, err := exec.Command("go", "build", "-o", bin+"/", "../../cmd/rouse").CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build rouse: %w\n%s", err, out)
	}
	return m.Run(), nil
}

// installed is the folder of a server's installation. CI does without them while a start takes minutes.
func installed(t *testing.T, name string) string {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Skipf("CI starts no real %s: run make real", name)
	}
	out, err := exec.Command("./install", "-path", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimSpace(string(out))
	if dir == "" {
		t.Skipf("no real %s is installed: run make real", name)
	}
	return dir
}

// up is a running `rouse up`. It ends with its test, and leaves no process.
type up struct {
	t       *testing.T
	pid     int
	runtime string // its XDG_RUNTIME_DIR
	url     string // of the front door
	log     string // the file of all that it prints
}

// start starts `rouse up` with the manifests, and with more in its environment; what is installed in dir is found first.
func start(t *testing.T, dir, manifests string, env ...string) *up {
	t.Helper()
	runtime, err := os.MkdirTemp("", "r") // a Unix socket's path has 107 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	u := &up{t: t, runtime: runtime, log: filepath.Join(t.TempDir(), "up.log")}
	file := filepath.Join(t.TempDir(), "functions.yaml")
	if err := os.WriteFile(file, []byte(manifests), 0o600); err != nil {
		t.Fatal(err)
	}
	logs, err := os.Create(u.log)
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close()
	cmd := exec.Command(filepath.Join(bin, "rouse"), "up", "--listen", "127.0.0.1:0", "--no-gpu", "--log-format", "json", "-f", file)
	cmd.Env = append(append(u.env(), "PATH="+filepath.Join(dir, "venv/bin")+":"+os.Getenv("PATH")), env...)
	cmd.Dir = runtime // programs in Python look for modules in their folder, and here is one called vllm
	cmd.Stdout, cmd.Stderr = logs, logs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	u.pid = cmd.Process.Pid
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		all := u.processes("")
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(time.Minute):
			_ = cmd.Process.Kill()
			t.Error("rouse up does not end")
		}
		u.eventually("the processes of rouse up end", func() error {
			maps.DeleteFunc(all, func(pid int, command string) bool { return commandOf(pid) != command })
			if len(all) > 0 {
				return fmt.Errorf("left: %v", all)
			}
			return nil
		})
		if t.Failed() {
			t.Logf("rouse up printed:\n%s", u.output())
		}
		_ = os.RemoveAll(u.runtime)
	})
	u.eventually("rouse up is ready", func() error {
		for line := range strings.Lines(u.output()) {
			var l struct{ Msg, URL string }
			if json.Unmarshal([]byte(line), &l) == nil && l.Msg == "ready" {
				u.url = l.URL
				return nil
			}
		}
		select {
		case err := <-ended:
			ended <- err // for the end of the test
			t.Fatalf("rouse up ends at its start: %v", err)
		default:
		}
		return fmt.Errorf("it says\n%s", u.output())
	})
	return u
}

func (u *up) env() []string {
	return append(os.Environ(), "XDG_RUNTIME_DIR="+u.runtime, "HOME="+u.runtime, "XDG_CACHE_HOME=", "XDG_CONFIG_HOME=", "XDG_STATE_HOME=", "ROUSE_CACHE=", "ROUSE_SERVER=")
}

func (u *up) output() string {
	raw, err := os.ReadFile(u.log)
	if err != nil {
		u.t.Error(err)
	}
	return string(raw)
}

// eventually asks until the answer is nil.
func (u *up) eventually(what string, ask func() error) {
	u.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			u.t.Fatalf("%s: not yet: %v", what, err)
		}
		time.Sleep(100 * time.Millisecond) // other processes have their own clocks
	}
}

// rouse runs a command and returns what it prints.
func (u *up) rouse(args ...string) string {
	u.t.Helper()
	cmd := exec.Command(filepath.Join(bin, "rouse"), args...)
	cmd.Env = u.env()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		u.t.Fatalf("rouse %s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// instance is the state of a function's only instance.
type instance struct {
	State, Message string
	PID, Restarts  int
	Load           struct {
		Cached     int64
		CacheKnown bool
	}
}

func (u *up) instance(name string) instance {
	u.t.Helper()
	var f struct{ Instances []instance }
	if err := json.Unmarshal([]byte(u.rouse("describe", name, "-o", "json")), &f); err != nil {
		u.t.Fatal(err)
	}
	if len(f.Instances) != 1 {
		u.t.Fatalf("%s has %d instances, want one", name, len(f.Instances))
	}
	return f.Instances[0]
}

// processes are the descendants of rouse up, by their ids, whose command lines have the words. A mark in the environment would not find all: vLLM
// gives its processes titles, and these overwrite it.
func (u *up) processes(words string) map[int]string {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		u.t.Fatal(err)
	}
	children := map[int][]int{}
	for _, entry := range entries {
		stat, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "stat")) // one that has ended can't be read
		_, rest, found := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); found && len(fields) > 1 {
			pid, _ := strconv.Atoi(entry.Name())
			parent, _ := strconv.Atoi(fields[1])
			children[parent] = append(children[parent], pid)
		}
	}
	found := map[int]string{}
	for next := children[u.pid]; len(next) > 0; next = append(next[1:], children[next[0]]...) {
		if command := commandOf(next[0]); command != "" && strings.Contains(command, words) { // none: it has ended
			found[next[0]] = command
		}
	}
	return found
}

// commandOf is the command line of a process; empty: it has ended.
func commandOf(pid int) string {
	command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.ReplaceAll(string(command), "\x00", " ")
}

// listening finds the Unix socket of that name, in the folders of the instances, that a server listens at.
func (u *up) listening(name string) string {
	u.t.Helper()
	var found []string
	_ = filepath.WalkDir(u.runtime, func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Base(path) != name {
			return nil // a folder may go meanwhile
		}
		if conn, err := net.Dial("unix", path); err == nil {
			conn.Close()
			found = append(found, path)
		}
		return nil
	})
	if len(found) != 1 {
		u.t.Fatalf("servers listen at %v, want one at a socket %s", found, name)
	}
	return found[0]
}

// client asks one server.
type client struct {
	t    *testing.T
	url  string
	http *http.Client
	sent *atomic.Int64 // POST requests that were answered with 200, or have begun to be
}

// front asks Rouse.
func (u *up) front() client {
	return client{u.t, u.url, &http.Client{Timeout: patience}, new(atomic.Int64)}
}

// past asks the server at a Unix socket, past Rouse.
func (u *up) past(socket string) client {
	return client{u.t, "http://localhost", &http.Client{Timeout: patience, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}, new(atomic.Int64)}
}

// send returns the status and the whole answer to a request; body "" is a GET.
func (c client) send(path, body string) (status int, answer string, err error) {
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	req, err := http.NewRequest(method, c.url+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	if body != "" && resp.StatusCode == http.StatusOK {
		c.sent.Add(1)
	}
	raw, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(raw), err
}

// ask is send for an answer that is to be 200.
func (c client) ask(path, body string) string {
	c.t.Helper()
	status, answer, err := c.send(path, body)
	if err != nil || status != http.StatusOK {
		c.t.Fatalf("%s %s: status %d, %v: %s", path, body, status, err, answer)
	}
	return answer
}

// stream reads a stream of server-sent events, and calls seen after each with how many there were. It returns their data.
func (c client) stream(ctx context.Context, path, body string, seen func(n int)) (events []string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		c.sent.Add(1)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if data, found := strings.CutPrefix(lines.Text(), "data: "); found {
			events = append(events, data)
			seen(len(events))
		}
	}
	return events, lines.Err()
}

// plain is JSON without what differs from answer to answer: ids and times, wherever they are.
func plain(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return text // as the last line of a stream is
	}
	return strip(v)
}

func strip(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for _, own := range []string{"id", "created", "created_at", "completed_at", "item_id", "call_id", "system_fingerprint", "timings"} {
			delete(v, own)
		}
		for k := range v {
			v[k] = strip(v[k])
		}
	case []any:
		for k := range v {
			v[k] = strip(v[k])
		}
	}
	return v
}

// fold makes streams comparable that were cut into events differently: for each kind and index of an event it joins the texts, and keeps each other
// value of a field once.
func fold(events []any) map[string]string {
	all, seen := map[string]string{}, map[string]bool{}
	for _, e := range events {
		foldValue("", "", e, func(path, field, value string) {
			at := path + "." + field
			switch {
			case field == "sequence_number":
			case slices.Contains([]string{"text", "content", "arguments", "partial_json", "delta"}, field):
				all[at] += value
			case !seen[at+"="+value]:
				seen[at+"="+value] = true
				all[at] += value + "|"
			}
		})
	}
	return all
}

func foldValue(path, field string, v any, add func(path, field, value string)) {
	switch v := v.(type) {
	case nil:
	case map[string]any:
		for _, which := range []string{"type", "object", "index", "output_index", "content_index"} {
			if is, found := v[which]; found {
				path += fmt.Sprintf(" %v", is)
			}
		}
		for k, value := range v {
			foldValue(path+"."+field, k, value, add)
		}
	case []any:
		for _, value := range v {
			foldValue(path, field, value, add)
		}
	default:
		add(path, field, fmt.Sprint(v))
	}
}
