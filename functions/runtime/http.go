package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// httpServer runs any HTTP server, whether it serves models or not. It is up when its probe succeeds, or, without a probe, when it
// accepts connections. It does not sleep in place: asleep there is no process. It has no canary, since its answers can't be judged.
type httpServer struct {
	Plain
	server command
	http   *http.Client
}

// probeTimeout bounds one attempt of a probe.
const probeTimeout = 5 * time.Second

func newHTTP(cfg Config, c *client) (Runtime, error) {
	client := &http.Client{Transport: cfg.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &httpServer{server: command{server{cfg: cfg, client: c}}, http: client}, nil
}

// Traits returns only Readiness, if there is a probe: its sleep is a stop of its process.
func (r *httpServer) Traits() Traits {
	return Traits{Readiness: r.server.cfg.ProbePath != "" || len(r.server.cfg.ProbeCommand) > 0}
}

// Launch starts the command with its port in PORT, and in place of $(PORT).
func (r *httpServer) Launch(model string) (Launch, error) {
	return r.server.Launch(model)
}

// Probe runs the probe's command, or requests its path, as Kubernetes does: 200 to 399 is success. Without either it connects.
func (r *httpServer) Probe(ctx context.Context, e api.Endpoint) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	path := r.server.cfg.ProbePath
	if words := r.server.cfg.ProbeCommand; len(words) > 0 {
		cmd := exec.CommandContext(ctx, words[0], words[1:]...) //nolint:gosec // it is what the container's own manifest says
		cmd.Env, cmd.WaitDelay = r.server.cfg.Env, time.Second
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("probe by %s: %w: %.200s", words[0], err, out)
		}
		return nil
	}
	if path == "" {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(string(e), "http://"))
		if err != nil {
			return fmt.Errorf("the server takes no connections yet: %w", err)
		}
		return conn.Close()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL(path), nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "kube-probe/rouse")
	resp, err := r.http.Do(req)
	if err != nil {
		return fmt.Errorf("probe %s: %w", path, err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be reused
	if resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("probe %s: status %d", path, resp.StatusCode)
	}
	return nil
}

// Canary is a probe.
func (r *httpServer) Canary(ctx context.Context, e api.Endpoint, _ api.ModelName) (Answer, error) {
	return Answer{}, r.Probe(ctx, e)
}

// Sleep is not supported.
func (r *httpServer) Sleep(context.Context, api.Endpoint, api.Level) error {
	return fmt.Errorf("put the server to sleep in place: it can only be stopped: %w", errors.ErrUnsupported)
}

// Wake is a probe: it never slept in place.
func (r *httpServer) Wake(ctx context.Context, e api.Endpoint, _ api.Level, _ func()) (Answer, error) {
	return r.Canary(ctx, e, "")
}
