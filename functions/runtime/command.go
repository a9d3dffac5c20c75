package runtime

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/rouse-dev/rouse/api"
)

// command runs any server that speaks the OpenAI API and listens on a port of
// 127.0.0.1 that we choose. Where it sleeps, it does so by vLLM's calls (vLLM
// documentation, "Sleep Mode"): they need its developer mode, which is why its
// port must be ours alone.
type command struct {
	Plain
	cfg    Config
	client *client

	mu    sync.Mutex // guards model
	model string     // the name to probe with; empty until the server was asked
}

func newCommand(cfg Config, c *client) (Runtime, error) {
	if len(cfg.Spec.Command) == 0 {
		return nil, errors.New("runtime command: no command line; give the server's command, with $(PORT) where the port goes")
	}
	return &command{cfg: cfg, client: c, model: cfg.Spec.Model}, nil
}

// portWord in the command, its args and its environment becomes the port. A
// server that reads PORT from its environment needs none.
const portWord = "$(PORT)"

func (r *command) Traits() Traits { return Traits{Sleeps: r.cfg.Spec.Sleeps} }

func (r *command) Launch(string) (Launch, error) {
	port, err := freePort()
	if err != nil {
		return Launch{}, err
	}
	fill := func(in []string) []string {
		out := make([]string, len(in))
		for i, s := range in {
			out[i] = strings.ReplaceAll(s, portWord, port)
		}
		return out
	}
	r.forget()
	argv := fill(slices.Concat(r.cfg.Spec.Command, r.cfg.Spec.Args))
	return Launch{
		Path:     argv[0],
		Args:     argv[1:],
		Env:      slices.Concat(r.cfg.Env, []string{"PORT=" + port}, fill(r.cfg.Spec.Env)),
		Endpoint: api.Endpoint("http://127.0.0.1:" + port),
	}, nil
}

// freePort finds a port of 127.0.0.1 that nobody listens on now. Another process
// can take it before the runtime does; the runtime then fails and is started
// again with another port.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port for the runtime: %w", err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port), nil
}

func (r *command) Probe(ctx context.Context, e api.Endpoint) error {
	model, err := r.name(ctx, e)
	if err != nil {
		return err
	}
	return r.client.generate(ctx, e, model)
}

// name is the model's name at the server: the declared reference, else the first
// that the server lists, else the name that clients use.
func (r *command) name(ctx context.Context, e api.Endpoint) (string, error) {
	r.mu.Lock()
	model := r.model
	r.mu.Unlock()
	if model != "" {
		return model, nil
	}
	model, err := r.client.firstModel(ctx, e)
	switch {
	case err != nil && !answered(err):
		return "", err
	case err != nil:
		return string(r.cfg.Model), nil // asked again by the next probe
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.model = model
	return model, nil
}

// forget lets the next start be asked for its model again.
func (r *command) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.model = r.cfg.Spec.Model
}

func (r *command) Sleep(ctx context.Context, e api.Endpoint, level api.Level) error {
	_, err := r.client.call(ctx, http.MethodPost, e, fmt.Sprintf("/sleep?level=%d&mode=wait", level), nil)
	return err
}

// Wake follows vLLM's documented order for level 2: the memory of the weights,
// the weights, the memory of the KV cache, and then nothing cached may be left of
// what the lost weights made.
func (r *command) Wake(ctx context.Context, e api.Endpoint, level api.Level) error {
	type step struct {
		path string
		body any
	}
	steps := []step{{path: "/wake_up"}}
	if level >= api.Level2 {
		steps = []step{
			{path: "/wake_up?tags=weights"},
			{path: "/collective_rpc", body: map[string]string{"method": "reload_weights"}},
			{path: "/wake_up?tags=kv_cache"},
			{path: "/reset_prefix_cache"},
		}
	}
	for _, s := range steps {
		if _, err := r.client.call(ctx, http.MethodPost, e, s.path, s.body); err != nil {
			return err
		}
	}
	return r.Probe(ctx, e)
}
