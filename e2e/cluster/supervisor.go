package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Service is a program that the node's first process runs, and restarts.
type Service struct {
	Name string   `json:"name"`
	Path string   `json:"path"`
	Args []string `json:"args"`
	Env  []string `json:"env,omitempty"` // before the first process's own: the first of a name counts
	Log  string   `json:"log"`           // its output is appended to it
}

// ServiceStatus is a report on a service.
type ServiceStatus struct {
	Service
	PID      int    `json:"pid,omitempty"` // inside the node; 0: it does not run
	Stopped  bool   `json:"stopped"`       // on purpose
	Restarts int    `json:"restarts"`      // how often it ended by itself
	Last     string `json:"last,omitempty"`
}

type supervisor struct{ client *http.Client }

func dialSupervisor(socket string) supervisor {
	return supervisor{&http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}}
}

// run defines and starts a service; one of that name is stopped first.
func (s supervisor) run(ctx context.Context, service Service) error {
	return s.call(ctx, http.MethodPut, service.Name, service, nil)
}

func (s supervisor) start(ctx context.Context, name string) error {
	return s.call(ctx, http.MethodPost, name+"/start", nil, nil)
}

// stop returns when the service has ended: SIGTERM, and after 10 s SIGKILL.
func (s supervisor) stop(ctx context.Context, name string) error {
	return s.call(ctx, http.MethodPost, name+"/stop", nil, nil)
}

func (s supervisor) list(ctx context.Context) (all []ServiceStatus, err error) {
	return all, s.call(ctx, http.MethodGet, "", nil, &all)
}

func (s supervisor) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://init/services/"+path, body)
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return fmt.Errorf("ask the node's first process: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("ask the node's first process: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(string(bytes.TrimSpace(answer)))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}
