package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/ggufname"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// llamaCpp runs llama.cpp's llama-server, with one model, on a Unix socket: a host whose name ends with .sock. It does not sleep in place.
//
// It applies all adapters to a request without the field "lora", whatever --lora-init-without-apply says (b11434; tools/server/README.md).
// So each request gets that field, with the adapter that "model" names, or none.
type llamaCpp struct {
	server
}

var llamaCppReserved = because(
	noAddress, "--host LLAMA_ARG_HOST --port LLAMA_ARG_PORT --reuse-port LLAMA_ARG_REUSE_PORT --api-prefix LLAMA_ARG_API_PREFIX",
	noTLS, "--ssl-key-file LLAMA_ARG_SSL_KEY_FILE --ssl-cert-file LLAMA_ARG_SSL_CERT_FILE",
	useModel, "-m --model LLAMA_ARG_MODEL", useNames, "-a --alias LLAMA_ARG_ALIAS",
	noKey, "--api-key --api-key-file LLAMA_API_KEY LLAMA_ARG_API_KEY_FILE",
	adapters, "--lora --lora-scaled", noSwitch, "--lora-init-without-apply",
	oneModel, "--models-dir LLAMA_ARG_MODELS_DIR --models-preset LLAMA_ARG_MODELS_PRESET --models-max LLAMA_ARG_MODELS_MAX --models-autoload --no-models-autoload LLAMA_ARG_MODELS_AUTOLOAD",
	noTools, "--tools LLAMA_ARG_TOOLS --tools-runtime LLAMA_ARG_TOOLS_RUNTIME --agent -ag LLAMA_ARG_AGENT --mcp-servers-config LLAMA_ARG_MCP_SERVERS_CONFIG "+
		"--mcp-servers-json LLAMA_ARG_MCP_SERVERS_JSON --ui-mcp-proxy --webui-mcp-proxy LLAMA_ARG_UI_MCP_PROXY",
	noFiles, "--media-path",
	"the platform decides when it sleeps: set the function's idle times instead", "--sleep-idle-seconds",
)

func newLlamaCpp(cfg Config, c *client) (Runtime, error) {
	return &llamaCpp{server: newServer(cfg, c, cfg.Spec.Endpoint != "")}, nil
}

func (r *llamaCpp) Traits() Traits { return Traits{Reuses: true} }

func (r *llamaCpp) Launch(model string) (Launch, error) {
	r.fresh()
	if l, attached := r.attached(); attached {
		return l, nil
	}
	e, path, err := r.cfg.socket("llama")
	if err != nil {
		return Launch{}, err
	}
	args := []string{"--host", path, "--alias", r.clients[0], "--metrics", "--slots"}
	if model != "" {
		file, err := ggufFile(model)
		if err != nil {
			return Launch{}, unusable(fmt.Errorf("runtime llamacpp: %w", err))
		}
		args = slices.Concat([]string{"--model", file}, args)
	}
	if r.cfg.Concurrency > 0 && !has(r.cfg.Spec.Args, "-np", "--parallel") {
		args = append(args, "--parallel", strconv.Itoa(r.cfg.Concurrency))
	}
	for _, a := range r.cfg.Spec.Adapters {
		if strings.Contains(a.Path, "://") {
			return Launch{}, fmt.Errorf("runtime llamacpp: adapter %s: it takes adapters at its start only, as GGUF files: give the path of one, not %s", a.Name, a.Path)
		}
		if strings.Contains(a.Path, ",") { // it would count as two, and mix up the next adapters
			return Launch{}, fmt.Errorf("runtime llamacpp: adapter %s: llama-server cuts the path %s at its comma: rename the file", a.Name, a.Path)
		}
		args = append(args, "--lora", a.Path)
	}
	return r.launch(e, args, nil)
}

// ggufFile returns path itself, or the only model in that folder, as one file or in shards; a projector is none.
func ggufFile(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("model: want the path of a GGUF file, or a reference that is fetched, such as hf://org/name: %w", err)
	}
	if !info.IsDir() {
		return ggufname.Parts(path)[0], nil
	}
	files, err := filepath.Glob(filepath.Join(path, "*.gguf"))
	if err != nil {
		return "", fmt.Errorf("model: %w", err)
	}
	models := ggufname.Models(files)
	if len(models) != 1 {
		return "", fmt.Errorf("model: the folder %s has %d models as GGUF files: give the path of one", path, len(models))
	}
	if err := ggufname.Missing(models[0], files); err != nil {
		return "", fmt.Errorf("model: %w", err)
	}
	return models[0], nil
}

// scales returns the field "lora" that applies only that adapter.
func (r *llamaCpp) scales(name string) []byte {
	text := []byte("[")
	for i, a := range r.cfg.Spec.Adapters {
		scale := 0
		if string(a.Name) == name {
			scale = 1
		}
		text = fmt.Appendf(text, `{"id":%d,"scale":%d},`, i, scale)
	}
	text[len(text)-1] = ']'
	return text
}

// Request refuses adapters of Anthropic's requests, in which llama-server drops "lora".
func (r *llamaCpp) Request(path string, body *jsonfield.Object) *api.Error {
	if adapters := r.cfg.Spec.Adapters; len(adapters) > 0 {
		asked, _ := modelOf(body)
		if path == "/v1/messages" && slices.ContainsFunc(adapters, func(a api.Adapter) bool { return string(a.Name) == asked }) {
			return api.BadRequest("model", "llama.cpp applies no adapter to requests of %s: ask %s by /v1/chat/completions or /v1/responses", path, asked)
		}
		body.Set("lora", r.scales(asked))
	}
	r.rename(body)
	return nil
}

// Probe resets the adapters of a server that we have started: requests without "lora" get none.
func (r *llamaCpp) Probe(ctx context.Context, e api.Endpoint) error {
	if len(r.cfg.Spec.Adapters) > 0 && r.cfg.Spec.Endpoint == "" {
		if _, err := r.client.call(ctx, http.MethodPost, e, "/lora-adapters", json.RawMessage(r.scales(""))); err != nil {
			return err
		}
	}
	return r.server.Probe(ctx, e)
}

func (r *llamaCpp) LoadAdapter(_ context.Context, _ api.Endpoint, a api.Adapter) error {
	if slices.ContainsFunc(r.cfg.Spec.Adapters, func(d api.Adapter) bool { return d.Name == a.Name }) {
		return nil
	}
	return fmt.Errorf("llama-server takes adapters at its start only: declare it with the function: %w", errors.ErrUnsupported)
}

func (r *llamaCpp) Signals(ctx context.Context, e api.Endpoint) (Signals, error) {
	s, err := scrape(ctx, r.client, e, llamaCppMetrics)
	if err != nil {
		return s, err
	}
	s.MaxAdapters = len(r.cfg.Spec.Adapters)
	r.readSlots(ctx, e, &s)
	s.complete()
	return s, nil
}

// readSlots adds what the metrics lack: the capacity and, since 2026, the tokens in the slots.
func (r *llamaCpp) readSlots(ctx context.Context, e api.Endpoint, s *Signals) {
	var slots []struct {
		Context    float64  `json:"n_ctx"`
		Processing bool     `json:"is_processing"`
		Tokens     *float64 `json:"n_prompt_tokens"` // including generated ones
	}
	if r.client.ask(ctx, http.MethodGet, e, "/slots", nil, &slots) != nil || len(slots) == 0 {
		return // without --slots
	}
	capacity, tokens := 0.0, 0.0
	for _, slot := range slots {
		capacity += slot.Context
		switch {
		case !slot.Processing:
		case slot.Tokens == nil:
			tokens = math.NaN()
		default:
			tokens += *slot.Tokens
		}
	}
	if !math.IsNaN(tokens) {
		s.Tokens = tokens
	}
	args := r.cfg.Spec.Args
	switch unified := has(args, "-kvu", "--kv-unified"); {
	case unified || len(slots) == 1:
		s.Capacity = slots[0].Context
	case r.cfg.Spec.Endpoint == "" && (r.cfg.Concurrency > 0 || has(args, "-np", "--parallel")): // a number of slots divides the cache
		s.Capacity = capacity
	}
}
