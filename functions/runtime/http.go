package runtime

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// httpServer runs any HTTP server. It is up when its probe succeeds or, without one, when it accepts connections. It does not sleep in
// place, and has no canary.
type httpServer struct {
	Plain
	server command
	http   *http.Client
}

const probeTimeout = 5 * time.Second

func newHTTP(cfg Config, c *client) (Runtime, error) {
	client := &http.Client{Transport: cfg.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &httpServer{server: command{server{cfg: cfg, client: c}}, http: client}, nil
}

func (r *httpServer) Traits() Traits {
	return Traits{Readiness: r.server.cfg.ProbePath != "" || len(r.server.cfg.ProbeCommand) > 0}
}

func (r *httpServer) Launch(model string) (Launch, error) {
	return r.server.Launch(model)
}

// Probe takes 200 to 399 for success, as Kubernetes does.
func (r *httpServer) Probe(ctx context.Context, e api.Endpoint) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	path := r.server.cfg.ProbePath
	if words := r.server.cfg.ProbeCommand; len(words) > 0 {
		cmd := exec.CommandContext(ctx, words[0], words[1:]...) // the container's own manifest says it
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

func (r *httpServer) Canary(ctx context.Context, e api.Endpoint, _ api.ModelName) (Answer, error) {
	return Answer{}, r.Probe(ctx, e)
}

func (r *httpServer) Wake(ctx context.Context, e api.Endpoint, _ api.Level, _ func()) (Answer, error) {
	return r.Canary(ctx, e, "")
}

// Keyed is a [Runtime] whose server requires a key, see [WithKey].
type Keyed interface{ Key() string }

// WithKey returns a transport that adds k's key, if there is one.
func WithKey(by http.RoundTripper, k Keyed) http.RoundTripper { return withKey{by, k} }

type withKey struct {
	by  http.RoundTripper
	key Keyed
}

func (t withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	if key := t.key.Key(); key != "" {
		out := *r
		out.Header = r.Header.Clone()
		out.Header["Authorization"] = []string{"Bearer " + key}
		r = &out
	}
	return t.by.RoundTrip(r)
}

// keyFile is a server's configuration file with its key, which a command line would show. It outlives this process, as the server may.
type keyFile struct {
	path, option string

	mu  sync.Mutex // guards key
	key string     // empty: not read, or none
}

// make creates the file, unless it exists.
func (f *keyFile) make() error {
	if f.Key() != "" {
		return nil
	}
	if err := os.WriteFile(f.path, []byte(f.option+": "+rand.Text()+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the server's key: %w", err)
	}
	return nil
}

func (f *keyFile) Key() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.key == "" {
		raw, err := os.ReadFile(f.path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "" // the server reports it
		}
		f.key = strings.TrimSpace(strings.TrimPrefix(string(raw), f.option+":"))
	}
	return f.key
}
