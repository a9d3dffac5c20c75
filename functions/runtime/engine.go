package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/rouse-dev/rouse/api"
)

// engine runs "PROGRAM engine serve" on a Unix socket. It announces itself after its first token; /sleep drains, and /wake_up answers after
// a token.
type engine struct {
	Plain
	cfg    Config
	client *client
	kept   atomic.Int64
}

var engineReserved = because(noAddress, "--listen", useModel, "--model", useNames, "--name --served-model-name", noSwitch, "--exit-with-parent")

func newEngine(cfg Config, c *client) (Runtime, error) {
	switch {
	case cfg.Engine == "":
		return nil, errors.New("no program to run it; set the engine's binary")
	case cfg.Spec.Model == "":
		return nil, errors.New("no model; set the model's reference, such as pico or a path to a GGUF file")
	}
	if _, _, err := cfg.socketPath("engine"); err != nil {
		return nil, err
	}
	r := &engine{cfg: cfg, client: c}
	if most := r.most(); most > 0 {
		switch given := r.given(); {
		case given > most:
			return nil, fmt.Errorf("%d adapters by --lora, and --max-loras lets %d be loaded at once: raise it, or declare them with the function, which loads them as requests name them", given, most)
		case given == most && len(cfg.Spec.Adapters) > 0:
			return nil, fmt.Errorf("--lora takes all of --max-loras %d, and leaves no room for the adapters that are declared: raise it", most)
		}
	}
	return r, nil
}

// most returns how many adapters may be loaded at once; 0: no bound.
func (r *engine) most() int { return numberOf(r.cfg.Spec.Args, "--max-loras", 0) }

// given returns the number of adapters in the options: name=path, separated by commas.
func (r *engine) given() int {
	n := 0
	for _, value := range ValuesOf(r.cfg.Spec.Args, "--lora", "--lora-modules") {
		n += 1 + strings.Count(value, ",")
	}
	return n
}

func (r *engine) room() int {
	switch most, given := r.most(), r.given(); {
	case most <= 0:
		return 0
	case given >= most:
		return -1
	default:
		return most - given
	}
}

// Failure only changes the shape: the engine's errors are ours.
func (r *engine) Failure(path string, status int, body []byte) []byte {
	if isMessages(path) {
		return failure(path, status, body)
	}
	return body
}

func (r *engine) Traits() Traits {
	return Traits{Reuses: true, Sleeps: true, Deepens: true, Adapts: true, Room: r.room()}
}

func (r *engine) Launch(model string) (Launch, error) {
	e, _, err := r.cfg.socket("engine")
	if err != nil {
		return Launch{}, err
	}
	args := []string{"engine", "serve", "--model", model, "--listen", string(e)}
	for _, name := range clientNames(r.cfg) {
		args = append(args, "--name", name)
	}
	if r.cfg.MaxBody > 0 {
		args = append(args, "--max-body", strconv.FormatInt(int64(r.cfg.MaxBody), 10))
	}
	if r.cfg.Tiles != "" {
		args = append(args, "--tile-dir", r.cfg.Tiles) // the function's own options follow, and win
	}
	return Launch{
		Path:     r.cfg.Engine,
		Args:     slices.Concat(args, r.cfg.Spec.Args),
		Env:      slices.Concat(r.cfg.Env, r.cfg.Spec.Env),
		Endpoint: e,
		Announce: "listening on",
	}, nil
}

func (r *engine) Probe(ctx context.Context, e api.Endpoint) error {
	return r.client.probe(ctx, e, string(r.cfg.Model))
}

func (r *engine) Sleep(ctx context.Context, e api.Endpoint, level api.Level) error {
	return r.sleep(ctx, e, fmt.Sprintf("/sleep?level=%d", level))
}

func (r *engine) Move(ctx context.Context, e api.Endpoint, level api.Level) error {
	return r.sleep(ctx, e, fmt.Sprintf("/sleep?level=%d&mode=move", level))
}

func (r *engine) sleep(ctx context.Context, e api.Endpoint, path string) error {
	r.kept.Store(0)
	raw, err := r.client.call(ctx, http.MethodPost, e, path, nil)
	if err != nil {
		return err
	}
	var asleep struct {
		Kept int64 `json:"kept_tokens"`
	}
	if json.Unmarshal(raw, &asleep) == nil && asleep.Kept > 0 {
		r.kept.Store(asleep.Kept)
	}
	return nil
}

func (r *engine) Kept() api.Tokens { return api.Tokens(r.kept.Load()) }

func (r *engine) Wake(ctx context.Context, e api.Endpoint, _ api.Level, _ func()) (Answer, error) {
	raw, err := r.client.call(ctx, http.MethodPost, e, "/wake_up", nil)
	if err != nil || r.cfg.CanaryTokens <= 0 {
		return Answer{}, err
	}
	var woken struct {
		Token *int32 `json:"token"`
	}
	if json.Unmarshal(raw, &woken) != nil || woken.Token == nil {
		return Answer{}, nil
	}
	return Answer{By: "/wake_up", Text: strconv.Itoa(int(*woken.Token))}, nil
}

// Canary generates the token of a wake. Adapters have none.
func (r *engine) Canary(ctx context.Context, e api.Endpoint, adapter api.ModelName) (Answer, error) {
	if adapter != "" {
		return Answer{}, nil
	}
	return r.Wake(ctx, e, api.LevelAwake, nil)
}

func (r *engine) LoadAdapter(ctx context.Context, e api.Endpoint, a api.Adapter) error {
	return r.client.loadAdapter(ctx, e, a, "of this name is loaded")
}

func (r *engine) UnloadAdapter(ctx context.Context, e api.Endpoint, name api.ModelName) error {
	return r.client.unloadAdapter(ctx, e, name, "no such adapter")
}

func (r *engine) Describe(ctx context.Context, e api.Endpoint) (api.ModelFacts, error) {
	var said struct {
		api.ModelFacts
		Parameters string // the first is num_ctx
	}
	err := r.client.ask(ctx, http.MethodPost, e, "/api/show", map[string]any{"model": r.cfg.Model}, &said)
	if words := strings.Fields(said.Parameters); len(words) > 1 && words[0] == "num_ctx" {
		said.Context, _ = strconv.Atoi(words[1])
	}
	return said.ModelFacts, err
}

func (r *engine) Signals(ctx context.Context, e api.Endpoint) (Signals, error) {
	return scrape(ctx, r.client, e, vllmMetrics)
}
