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
	var at, word string
	var env []string
	var err error
	if strings.Contains(strings.Join(slices.Concat(spec.Command, spec.Args, spec.Env), "\n"), socketWord) {
		word = socketWord
		e, at, err = r.cfg.socket("server")
	} else {
		word = portWord
		e, at, err = loopback(r.cfg.Port)
		env = []string{"PORT=" + at}
	}
	if err != nil {
		return Launch{}, err
	}
	return r.launchWith(strings.NewReplacer(word, at, modelWord, model), e, env)
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
