package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

type Engine struct {
	*Process
	*Client
}

// StartEngine starts an engine; an empty listen is a free port.
func StartEngine(ctx context.Context, rouse string, listen api.Endpoint, args ...string) (*Engine, error) {
	all := []string{"engine", "serve", "--exit-with-parent"}
	if listen != "" {
		all = append(all, "--listen", string(listen))
	}
	p, line, err := Start(exec.CommandContext(ctx, rouse, append(all, args...)...), "listening on")
	if err != nil {
		return nil, fmt.Errorf("%w: has make build made %s?", err, rouse)
	}
	if listen == "" {
		listen = Listening(line)
	}
	return &Engine{p, NewClient(listen)}, nil
}

func Listening(line string) api.Endpoint {
	_, at, _ := strings.Cut(strings.TrimSpace(line), "listening on ")
	return api.Endpoint(at)
}

func (s *Engine) Stop() {
	s.Process.Stop()
	s.Close()
}

func (s *Engine) Chat(ctx context.Context, model, question string) (string, error) {
	var answer struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := s.Call(ctx, http.MethodPost, "/v1/chat/completions", map[string]any{
		"model": model, "temperature": 0, "max_tokens": 64, "messages": []map[string]string{{"role": "user", "content": question}},
	}, &answer); err != nil {
		return "", err
	}
	if len(answer.Choices) != 1 {
		return "", fmt.Errorf("%s answers %d times", model, len(answer.Choices))
	}
	return answer.Choices[0].Message.Content, nil
}

type Up struct {
	*Process
	Door     *Client
	admin    *Client
	patience time.Duration // how long anything may take
}

type UpConfig struct {
	Rouse    string
	Dir      string // for sockets and the manifest; short, a socket's path has 107 bytes
	Manifest string // "": the built-in one
	Args     []string
	Env      []string // besides the environment
	// Patience is how long anything may take; 0: a minute.
	Patience time.Duration
}

// StartUp starts it on a free port, without this machine's configuration.
func StartUp(ctx context.Context, cfg UpConfig) (*Up, error) {
	args := append([]string{"up", "--listen", "127.0.0.1:0", "--log-format", "json", "--no-config"}, cfg.Args...)
	if cfg.Manifest != "" {
		path := filepath.Join(cfg.Dir, "functions.yaml")
		if err := os.WriteFile(path, []byte(cfg.Manifest), 0o600); err != nil {
			return nil, err
		}
		args = append(args, "-f", path)
	}
	cmd := exec.CommandContext(ctx, cfg.Rouse, args...)
	cmd.Env = append(append(os.Environ(), "XDG_RUNTIME_DIR="+cfg.Dir, "XDG_STATE_HOME="+cfg.Dir), cfg.Env...)
	p, line, err := Start(cmd, `"msg":"ready"`)
	if err != nil {
		return nil, err
	}
	var ready struct{ URL, Admin api.Endpoint }
	if err := json.Unmarshal([]byte(line), &ready); err != nil {
		p.Stop()
		return nil, fmt.Errorf("read the line of readiness: %w", err)
	}
	if cfg.Patience == 0 {
		cfg.Patience = time.Minute
	}
	return &Up{p, NewClient(ready.URL), NewClient(ready.Admin), cfg.Patience}, nil
}

func (u *Up) Stop() {
	u.Process.Stop()
	u.Door.Close()
	u.admin.Close()
}

func (u *Up) Function(ctx context.Context, name string) (f admin.Function, err error) {
	err = u.admin.Call(ctx, http.MethodGet, admin.PathFunctions+"/default/"+name, nil, &f)
	return f, err
}

// Order gives a function an order such as "stop" or "sleep?level=1".
func (u *Up) Order(ctx context.Context, name, what string) error {
	return u.admin.Post(ctx, admin.PathFunctions+"/default/"+name+"/"+what, nil)
}

func (u *Up) Devices(ctx context.Context) (list []admin.Device, err error) {
	err = u.admin.Call(ctx, http.MethodGet, admin.PathDevices, nil, &list)
	return list, err
}

func (u *Up) Await(ctx context.Context, name, what string, wanted func(admin.Function) bool) error {
	var f admin.Function
	ctx, cancel := context.WithTimeout(ctx, u.patience)
	defer cancel()
	err := await(ctx, time.Millisecond, func() (is bool, err error) {
		f, err = u.Function(ctx, name)
		return err == nil && wanted(f), err
	})
	if err != nil {
		return fmt.Errorf("wait until %s is %s: %w: %s", name, what, err, f.LastError)
	}
	return nil
}

func await(ctx context.Context, every time.Duration, ask func() (bool, error)) error {
	for {
		if is, err := ask(); is || err != nil {
			return err
		}
		if err := sleep(ctx, every); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// orderQuiet orders something once a function has no request, and waits until it is as wanted, which state names. took
// is from the order on.
func (u *Up) orderQuiet(ctx context.Context, name, what, state string, wanted func(admin.Function) bool) (took time.Duration, err error) {
	if err := u.Await(ctx, name, "quiet", Quiet); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := u.Order(ctx, name, what); err != nil {
		return 0, err
	}
	err = u.Await(ctx, name, state, wanted)
	return time.Since(began), err
}

// rest puts a function to sleep, and waits for its grant.
func (u *Up) rest(ctx context.Context, name string) error {
	_, err := u.orderQuiet(ctx, name, "sleep?level=1", "granted", func(f admin.Function) bool { return len(f.Granted) > 0 })
	return err
}

func (u *Up) stopFunction(ctx context.Context, name string) error {
	_, err := u.orderQuiet(ctx, name, "stop", "gone", func(f admin.Function) bool { return len(f.Instances) == 0 })
	return err
}

// Quiet reports whether the autoscaler knows of no request.
func Quiet(f admin.Function) bool { return f.Waiting == 0 && f.Running == 0 }
