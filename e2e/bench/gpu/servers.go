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
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// patience is how long anything may take: a large model is read from a disk, and compiled for.
const patience = 20 * time.Minute

// child is a process that listens.
type child struct {
	cmd    *exec.Cmd
	waited chan struct{} // closed once it was reaped
	mu     sync.Mutex    // guards said
	said   []byte
	http   *http.Client
	door   api.Endpoint
}

// startChild starts a program, and waits for the line of its output that holds word.
func startChild(cmd *exec.Cmd, from io.Reader, word string) (*child, string, error) {
	c := &child{cmd: cmd, waited: make(chan struct{}), http: &http.Client{Transport: api.NewTransport(4)}}
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	found := make(chan string, 1) // the reader sends the line, or nothing
	go func() {
		defer close(c.waited)
		lines := bufio.NewReader(from)
		seen := false
		for {
			line, err := lines.ReadString('\n')
			c.mu.Lock()
			if c.said = append(c.said, line...); len(c.said) > 64<<10 {
				c.said = c.said[len(c.said)-64<<10:]
			}
			c.mu.Unlock()
			if !seen && strings.Contains(line, word) {
				seen = true
				found <- line
			}
			if err != nil {
				break
			}
		}
		_ = cmd.Wait() // how it ended is not measured
		close(found)
	}()
	line, ok := <-found
	if !ok {
		return nil, "", fmt.Errorf("%s ended before it said %q: %s", cmd.Path, word, c.words())
	}
	return c, line, nil
}

// words is the end of what it said.
func (c *child) words() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.TrimSpace(string(c.said[max(0, len(c.said)-4<<10):]))
}

// stop ends it, and returns when it is gone.
func (c *child) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-c.waited:
	case <-time.After(time.Minute):
		_ = c.cmd.Process.Kill()
		<-c.waited
	}
	c.http.CloseIdleConnections()
}

// startEngine starts `rouse engine serve`.
func (b *bench) startEngine(ctx context.Context, args ...string) (*child, error) {
	socket := api.Endpoint("unix:" + filepath.Join(b.dir, "e.sock"))
	cmd := exec.CommandContext(ctx, b.rouse, append([]string{"engine", "serve", "--exit-with-parent", "--listen", string(socket)}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	c, _, err := startChild(cmd, out, "listening on")
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, lastLine(errs.String()))
	}
	c.door = socket
	return c, nil
}

// chat asks a model for a greedy answer.
func (c *child) chat(ctx context.Context, model, question string) (string, error) {
	body, err := json.Marshal(map[string]any{"model": model, "temperature": 0, "max_tokens": 64, "messages": []map[string]string{{"role": "user", "content": question}}})
	if err != nil {
		return "", err
	}
	raw, err := c.call(ctx, http.MethodPost, c.door.URL("/v1/chat/completions"), body)
	if err != nil {
		return "", err
	}
	var answer struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.Unmarshal(raw, &answer); err != nil || len(answer.Choices) != 1 {
		return "", fmt.Errorf("the answer is %s: %w", raw, err)
	}
	return answer.Choices[0].Message.Content, nil
}

// call sends a request and returns the whole answer, which is a success.
func (c *child) call(ctx context.Context, method, url string, body []byte) ([]byte, error) {
	resp, err := c.send(ctx, method, url, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

func (c *child) send(ctx context.Context, method, url string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		raw, _ := io.ReadAll(io.LimitReader(resp.Body, 8<<10)) // what there is of it
		return nil, fmt.Errorf("%s %s: %s: %s", method, req.URL.Path, resp.Status, raw)
	}
	return resp, nil
}

// firstByte asks for a stream, reads it to its end, and says when its first event was here.
func (c *child) firstByte(ctx context.Context, body map[string]any) (time.Duration, error) {
	first, _, err := c.turn(ctx, body)
	return first, err
}

// cachedTokens is where usage says how much of the prompt was there already.
var cachedTokens = regexp.MustCompile(`"cached_tokens":\s*(\d+)`)

// turn is firstByte, and how many tokens of the prompt were there already; -1 where the stream does not say.
func (c *child) turn(ctx context.Context, body map[string]any) (first time.Duration, cached int, err error) {
	cached = -1
	raw, err := json.Marshal(body)
	if err != nil {
		return 0, cached, err
	}
	began := time.Now()
	resp, err := c.send(ctx, http.MethodPost, c.door.URL("/v1/completions"), raw)
	if err != nil {
		return 0, cached, err
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadString('\n')
		if first == 0 && strings.HasPrefix(line, "data:") { // comments tell how far a start is
			first = time.Since(began)
		}
		if m := cachedTokens.FindStringSubmatch(line); m != nil {
			cached, _ = strconv.Atoi(m[1]) // it is digits
		}
		switch {
		case strings.Contains(line, `"error"`):
			return 0, cached, fmt.Errorf("the stream has an error: %s", line)
		case errors.Is(err, io.EOF) && first > 0:
			return first, cached, nil
		case err != nil:
			return 0, cached, fmt.Errorf("the stream ended: %w", err)
		}
	}
}

// up is `rouse up`.
type up struct {
	*child
	admin api.Endpoint
}

// startUp starts it with the functions of a manifest, and env besides the environment.
func (b *bench) startUp(ctx context.Context, manifest string, env ...string) (*up, error) {
	dir, err := os.MkdirTemp(b.dir, "up")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "functions.yaml")
	if err := os.WriteFile(path, []byte(manifest), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, b.rouse, "up", "--listen", "127.0.0.1:0", "--log-format", "json", "--no-config", "--record-size", "0", "-f", path)
	cmd.Env = append(os.Environ(), append([]string{"XDG_RUNTIME_DIR=" + dir, "XDG_STATE_HOME=" + dir}, env...)...)
	errs, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	c, line, err := startChild(cmd, errs, `"msg":"ready"`)
	if err != nil {
		return nil, err
	}
	var ready struct{ URL, Admin api.Endpoint }
	if err := json.Unmarshal([]byte(line), &ready); err != nil {
		c.stop()
		return nil, fmt.Errorf("read the line of readiness: %w", err)
	}
	c.door = ready.URL
	return &up{c, ready.Admin}, nil
}

// function asks for all that is known of a function, or orders something of it ("/sleep?level=1").
func (u *up) function(ctx context.Context, name, order string) (f admin.Function, err error) {
	method := http.MethodGet
	if order != "" {
		method = http.MethodPost
	}
	raw, err := u.call(ctx, method, u.admin.URL(admin.PathFunctions+"/default/"+name+order), nil)
	if err == nil {
		err = json.Unmarshal(raw, &f)
	}
	return f, err
}

// await asks for it until it is as wanted.
func (u *up) await(ctx context.Context, name, what string, wanted func(admin.Function) bool) error {
	var f admin.Function
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		var err error
		if f, err = u.function(ctx, name, ""); err != nil || wanted(f) {
			return err
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return fmt.Errorf("%s is not %s after %s: %s", name, what, patience, f.LastError)
}

// sleep puts a function to sleep, and says how long that took.
func (u *up) sleep(ctx context.Context, name string, level api.Level) (time.Duration, error) {
	if err := u.await(ctx, name, "quiet", func(f admin.Function) bool {
		return f.Waiting == 0 && f.Running == 0 && len(f.Instances) == 1 && f.Instances[0].State == api.Awake
	}); err != nil {
		return 0, err
	}
	began := time.Now()
	if _, err := u.function(ctx, name, fmt.Sprintf("/sleep?level=%d", level)); err != nil {
		return 0, err
	}
	err := u.await(ctx, name, "asleep", func(f admin.Function) bool {
		return len(f.Instances) == 1 && f.Instances[0].State == api.Asleep && f.Instances[0].Level == level
	})
	return time.Since(began), err
}

// devices is the ledger.
func (u *up) devices(ctx context.Context) (list []admin.Device, err error) {
	raw, err := u.call(ctx, http.MethodGet, u.admin.URL(admin.PathDevices), nil)
	if err == nil {
		err = json.Unmarshal(raw, &list)
	}
	return list, err
}
