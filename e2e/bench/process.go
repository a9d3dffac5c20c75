package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// child is a process that is measured.
type child struct {
	cmd    *exec.Cmd
	began  time.Time     // just before the exec
	waited chan struct{} // closed once the process was reaped
	errs   *tail
}

// tail keeps the beginning of what a process writes, for when it fails.
type tail struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

// Write keeps what fits.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.buf.Len() < 16<<10 {
		t.buf.Write(p)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}

// start starts a program and waits for the first line of its output that holds
// word. from chooses the stream that is read.
func start(cmd *exec.Cmd, from func(*exec.Cmd) (io.ReadCloser, error), word string) (*child, string, error) {
	c := &child{cmd: cmd, waited: make(chan struct{}), errs: &tail{}}
	cmd.SysProcAttr = dieWithParent()
	out, err := from(cmd)
	if err != nil {
		return nil, "", err
	}
	if cmd.Stdout == nil {
		cmd.Stdout = c.errs
	}
	if cmd.Stderr == nil {
		cmd.Stderr = c.errs
	}
	c.began = time.Now()
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			go c.wait()
			c.stop()
			return nil, "", fmt.Errorf("%s ended before it said %q: %s%s", cmd.Path, word, line, c.errs)
		}
		if strings.Contains(line, word) {
			go func() {
				_, _ = io.Copy(c.errs, lines) // so that it never blocks
				c.wait()
			}()
			return c, line, nil
		}
		_, _ = c.errs.Write([]byte(line))
	}
}

func (c *child) wait() {
	_ = c.cmd.Wait() // how it ended is not measured
	close(c.waited)
}

// stop ends a process and returns when it is gone.
func (c *child) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.waited:
	case <-time.After(20 * time.Second):
		_ = c.cmd.Process.Kill()
		<-c.waited
	}
}

// engine is "rouse engine serve" alone.
type engine struct {
	*child
	endpoint api.Endpoint
}

// startEngine starts an engine on a Unix socket and returns when it listens.
func (b *bench) startEngine(ctx context.Context) (*engine, error) {
	e := api.Endpoint("unix:" + filepath.Join(b.dir, "e.sock"))
	cmd := exec.CommandContext(ctx, b.rouse, "engine", "serve", "--model", "pico", "--listen", string(e))
	c, _, err := start(cmd, func(c *exec.Cmd) (io.ReadCloser, error) { return c.StdoutPipe() }, "listening on")
	if err != nil {
		return nil, err
	}
	return &engine{c, e}, nil
}

// server is "rouse up".
type server struct {
	*child
	door, admin api.Endpoint
	http        *http.Client
}

// startServer starts "rouse up" on a free port, with the functions of a manifest
// or, if it is empty, with the built-in one, and env besides the environment. It returns when it says that it is ready.
func (b *bench) startServer(ctx context.Context, manifest string, env ...string) (*server, error) {
	args := []string{"up", "--listen", "127.0.0.1:0", "--no-gpu", "--log-format", "json"}
	if manifest != "" {
		path := filepath.Join(b.dir, "functions.yaml")
		if err := os.WriteFile(path, []byte(manifest), 0o600); err != nil {
			return nil, err
		}
		args = append(args, "-f", path)
	}
	cmd := exec.CommandContext(ctx, b.rouse, args...)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+b.dir)
	cmd.Env = append(cmd.Env, env...)
	c, line, err := start(cmd, func(c *exec.Cmd) (io.ReadCloser, error) { return c.StderrPipe() }, `"msg":"ready"`)
	if err != nil {
		return nil, err
	}
	var ready struct{ URL, Admin api.Endpoint }
	if err := json.Unmarshal([]byte(line), &ready); err != nil {
		c.stop()
		return nil, fmt.Errorf("read the line of readiness: %w", err)
	}
	return &server{c, ready.URL, ready.Admin, &http.Client{Transport: api.NewTransport(4)}}, nil
}

// call calls the administrative API about the function name.
func (s *server) call(ctx context.Context, method, name, rest string) (admin.Function, error) {
	var f admin.Function
	req, err := http.NewRequestWithContext(ctx, method, s.admin.URL(admin.PathFunctions+"/default/"+name+rest), nil)
	if err != nil {
		return f, err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return f, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return f, err
	}
	if resp.StatusCode != http.StatusOK {
		return f, fmt.Errorf("%s %s%s: %s: %s", method, name, rest, resp.Status, raw)
	}
	return f, json.Unmarshal(raw, &f)
}

// await asks for the function until it is as wanted.
func (s *server) await(ctx context.Context, name string, wanted func(admin.Function) bool) error {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		f, err := s.call(ctx, http.MethodGet, name, "")
		if err != nil {
			return err
		}
		if wanted(f) {
			return nil
		}
	}
	return errors.New("the function did not come into the state that was waited for")
}

// quiet says that the autoscaler knows of no request: it puts nothing to sleep that is wanted.
func quiet(f admin.Function) bool { return f.Waiting == 0 && f.Running == 0 }

// sleep puts the function to sleep at level 1 and waits for its standing grant.
func (s *server) sleep(ctx context.Context, name string) error {
	if err := s.await(ctx, name, quiet); err != nil {
		return err
	}
	if _, err := s.call(ctx, http.MethodPost, name, "/sleep?level=1"); err != nil {
		return err
	}
	return s.await(ctx, name, func(f admin.Function) bool { return len(f.Granted) > 0 })
}

// stopFunction stops the function and waits until it has no process.
func (s *server) stopFunction(ctx context.Context, name string) error {
	if err := s.await(ctx, name, quiet); err != nil {
		return err
	}
	if _, err := s.call(ctx, http.MethodPost, name, "/stop"); err != nil {
		return err
	}
	return s.await(ctx, name, func(f admin.Function) bool { return len(f.Instances) == 0 })
}

// memory is what a process holds in RAM, in MiB: its own share (Pss), and all (Rss).
func (c *child) memory() (pss, rss float64, err error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", c.cmd.Process.Pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "Pss:" && f[0] != "Rss:" {
			continue
		}
		kib, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			return 0, 0, err
		}
		if f[0] == "Pss:" {
			pss = kib / 1024
		} else {
			rss = kib / 1024
		}
	}
	return pss, rss, nil
}

// ticks is the kernel's unit of processor time on every Linux that Go runs on.
const ticks = 100

// processorTime is what a process has used, in seconds.
func (c *child) processorTime() (float64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(raw), ") ") // the name may hold spaces
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0, errors.New("read the processor time: the line is too short")
	}
	user, err := strconv.ParseFloat(f[11], 64)
	system, err2 := strconv.ParseFloat(f[12], 64)
	return (user + system) / ticks, errors.Join(err, err2)
}
