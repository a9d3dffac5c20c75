package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/internal/environ"
	"github.com/rouse-dev/rouse/internal/lazyregexp"
)

// rayServe runs "serve run" of Ray Serve: an application that speaks the OpenAI
// API, given as an import path (module:app) or a configuration file. Its HTTP proxy
// listens on a port of 127.0.0.1; Ray starts a cluster of its own for it, unless
// RAY_ADDRESS says which one to join.
//
// Applications differ: many have no path but /v1/chat/completions. Nothing of theirs
// is relied on but an answer with a token. It does not sleep in place, and its
// metrics are not at its HTTP port.
type rayServe struct {
	server
	names
}

var rayReserved = reserved{
	"--host": noAddress, "--port": noAddress, "-h": noAddress, "-p": noAddress,
	"--non-blocking":              "the function ends Ray Serve with its process, which must go on; remove it",
	"RAY_SERVE_DEFAULT_HTTP_HOST": noAddress, "RAY_SERVE_DEFAULT_HTTP_PORT": noAddress,
}

func newRayServe(cfg Config, c *client) (Runtime, error) {
	spec := cfg.Spec
	if err := rayReserved.refuse(spec); err != nil {
		return nil, err
	}
	if spec.Model == "" && len(spec.Args) == 0 && spec.Endpoint == "" {
		return nil, errors.New("runtime ray-serve: no application; set the model's reference to an import path (module:app) or a configuration file")
	}
	return &rayServe{
		server: server{cfg: cfg, client: c, program: []string{"serve", "run"}},
		names:  names{clients: clientNames(cfg), learn: true},
	}, nil
}

func (r *rayServe) Traits() Traits { return Traits{} }

func (r *rayServe) Launch(model string) (Launch, error) {
	r.fresh(&r.names)
	if l, attached := r.attached(); attached {
		return l, nil
	}
	e, port, err := loopback()
	if err != nil {
		return Launch{}, err
	}
	if isYAML(model) {
		if model, err = r.configure(model, port); err != nil {
			return Launch{}, fmt.Errorf("runtime ray-serve: %w", err)
		}
	}
	env := []string{"RAY_SERVE_DEFAULT_HTTP_HOST=127.0.0.1", "RAY_SERVE_DEFAULT_HTTP_PORT=" + port}
	if environ.Value(r.cfg.Env, "RAY_ADDRESS") == "" {
		env = append(env, "RAY_ADDRESS=local")
	}
	l, err := r.launch(e, nil, env)
	if model != "" {
		l.Args = append(l.Args, model) // click takes arguments behind options
	}
	return l, err
}

func isYAML(path string) bool {
	return strings.HasSuffix(path, ".yaml") || strings.HasSuffix(path, ".yml")
}

// httpOptions begins the block of a configuration that says where it listens.
var httpOptions = lazyregexp.New(`(?m)^http_options\s*:`)

// configure copies a configuration file with the port in it, in the place of
// $(PORT), or in http_options of our own.
func (r *rayServe) configure(path, port string) (string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the configuration: %w", err)
	}
	s := string(raw)
	switch {
	case strings.Contains(s, portWord):
		s = strings.ReplaceAll(s, portWord, port)
	case httpOptions().MatchString(s):
		return "", fmt.Errorf("configuration %s: it has http_options of its own: write host: 127.0.0.1 and port: $(PORT) there, or remove them", path)
	case strings.HasPrefix(strings.TrimSpace(s), "{"):
		return "", fmt.Errorf("configuration %s: it is written in braces: write it in lines, or with http_options that have port: $(PORT)", path)
	default:
		s = strings.TrimRight(s, "\n") + "\nhttp_options:\n  host: 127.0.0.1\n  port: " + port + "\n"
	}
	if r.cfg.Dir == "" {
		return "", errors.New("no folder for a copy of the configuration")
	}
	at := filepath.Join(r.cfg.Dir, "serve.yaml")
	if err := os.WriteFile(at, []byte(s), 0o600); err != nil {
		return "", fmt.Errorf("copy the configuration: %w", err)
	}
	return at, nil
}

func (r *rayServe) Request(path string, body []byte) ([]byte, *api.Error) {
	return r.named(path, body), nil
}

func (r *rayServe) Probe(ctx context.Context, e api.Endpoint) error { return r.probe(ctx, e, &r.names) }

func (r *rayServe) Sleep(context.Context, api.Endpoint, api.Level) error {
	return fmt.Errorf("an application of Ray Serve does not sleep in place: %w", errors.ErrUnsupported)
}

func (r *rayServe) Canary(ctx context.Context, e api.Endpoint) (Answer, error) {
	return r.canary(ctx, e, &r.names)
}

func (r *rayServe) Wake(ctx context.Context, e api.Endpoint, _ api.Level, _ func()) (Answer, error) {
	return r.Canary(ctx, e)
}
