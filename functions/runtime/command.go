package runtime

import (
	"context"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/api"
)

// command runs any server with the OpenAI API: on a Unix socket if its command line has $(SOCKET), else on a port of 127.0.0.1. It sleeps
// by vLLM's calls. A model reference that is neither a path nor a URL is the server's name of it; else the server is asked.
type command struct {
	server
}

const (
	portWord   = "$(PORT)"
	socketWord = "$(SOCKET)"
	modelWord  = "$(MODEL)"
)

func newCommand(cfg Config, c *client) (Runtime, error) {
	r := &command{server: newServer(cfg, c, true)}
	if !isPath(cfg.Spec.Model) && !strings.Contains(cfg.Spec.Model, "://") {
		r.declared = cfg.Spec.Model
	}
	r.names.forget()
	return r, nil
}

func isPath(model string) bool {
	return strings.HasPrefix(model, "/") || strings.HasPrefix(model, "./") || strings.HasPrefix(model, "../")
}

func (r *command) Traits() Traits { return Traits{Sleeps: r.cfg.Spec.Sleeps} }

func (r *command) Launch(model string) (Launch, error) {
	r.fresh()
	if l, attached := r.attached(); attached {
		return l, nil
	}
	spec := r.cfg.Spec
	var e api.Endpoint
	var err error
	var env, words []string
	if strings.Contains(strings.Join(slices.Concat(spec.Command, spec.Args, spec.Env), "\n"), socketWord) {
		var path string
		e, path, err = r.socket("server")
		words = []string{socketWord, path}
	} else {
		var port string
		e, port, err = r.listens()
		words, env = []string{portWord, port}, []string{"PORT=" + port}
	}
	if err != nil {
		return Launch{}, err
	}
	return r.launchWith(strings.NewReplacer(append(words, modelWord, model)...), e, env)
}

func (r *command) Sleep(ctx context.Context, e api.Endpoint, level api.Level) error {
	return sleepMode{client: r.client}.sleep(ctx, e, level)
}

func (r *command) Wake(ctx context.Context, e api.Endpoint, level api.Level, serves func()) (Answer, error) {
	return sleepMode{client: r.client}.wake(ctx, e, level, r.Canary, serves)
}

func (r *command) Signals(ctx context.Context, e api.Endpoint) (Signals, error) {
	return scrape(ctx, r.client, e, vllmMetrics, sglangMetrics, llamaCppMetrics)
}
