package runtime

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/internal/bell"
)

// ollama runs "ollama serve" for one model, on a port of 127.0.0.1, with a folder of the instance as its home.
//
// It sleeps by unloading its model, whatever the level. Requests could do that too, by keep_alive or by naming another model: the field is
// removed, other models are refused.
//
// [ollamaModel] resolves the model; what Ollama lacks is created once it listens. A sidecar needs OLLAMA_KEEP_ALIVE=-1: the OpenAI API's
// requests reset the time to the server's setting.
type ollama struct {
	server
	maker maker

	mu     sync.Mutex // guards the fields below, which belong to this launch
	origin origin
	ready  bool // the server has the model
	embeds bool // it can't generate
}

var ollamaReserved = because(
	noAddress, "OLLAMA_HOST", oneModel, "OLLAMA_MAX_LOADED_MODELS",
	"the platform decides when a model is unloaded; set the function's idle times instead", "OLLAMA_KEEP_ALIVE",
)

func newOllama(cfg Config, c *client) (Runtime, error) {
	spec := cfg.Spec
	switch {
	case len(spec.Args) > 0:
		return nil, errors.New("its server takes no options: set environment variables (OLLAMA_…), or the path of a Modelfile with PARAMETER lines as the model")
	case spec.Model == "":
		return nil, errors.New("no model; set the model's reference: a name (qwen2.5:0.5b), ollama://name, or the path of a GGUF file or Modelfile")
	case cfg.Dir == "" && spec.Endpoint == "":
		return nil, errors.New("no folder for its files")
	}
	if err := spec.CheckAdapters(); err != nil {
		return nil, err
	}
	r := &ollama{
		server: newServer(cfg, c, false),
		maker:  maker{client: c},
	}
	r.origin.name = r.expectedName()
	r.set(r.origin.name)
	return r, nil
}

func (r *ollama) expectedName() string {
	model := r.cfg.Spec.Model
	if name, found := strings.CutPrefix(model, "ollama://"); found {
		return name
	}
	if _, err := os.Stat(model); err == nil || isPath(model) || strings.Contains(model, "://") {
		return madeName(r.clients[0])
	}
	return model
}

func (r *ollama) Traits() Traits { return Traits{Reuses: true, Sleeps: true, Deepens: true} }

func (r *ollama) home() string { return filepath.Join(r.cfg.Dir, "ollama") }

func (r *ollama) Launch(model string) (Launch, error) {
	if l, attached := r.attached(); attached {
		r.begin(origin{name: r.expectedName()})
		return l, nil
	}
	from, err := ollamaModel(model, r.expectedName(), r.store(), filepath.Join(r.home(), "models"))
	if err != nil {
		return Launch{}, unusable(fmt.Errorf("runtime ollama: %w", err))
	}
	if err := os.MkdirAll(r.home(), 0o700); err != nil {
		return Launch{}, fmt.Errorf("runtime ollama: %w", err)
	}
	e, port, err := loopback(0)
	if err != nil {
		return Launch{}, err
	}
	env := []string{
		"OLLAMA_HOST=127.0.0.1:" + port, "HOME=" + r.home(), "OLLAMA_MODELS=" + from.store,
		"OLLAMA_KEEP_ALIVE=-1", "OLLAMA_MAX_LOADED_MODELS=1", "OLLAMA_NOPRUNE=1", "OLLAMA_NO_CLOUD=1",
	}
	env = append(env, r.parallel()...)
	l, err := r.launch(e, nil, env)
	if err != nil {
		return Launch{}, err
	}
	l.Env = append(l.Env, "OLLAMA_MODELS="+from.store) // the user's value says where to find models, not where to create them
	r.begin(from)
	return l, nil
}

func (r *ollama) parallel() []string {
	if r.cfg.Concurrency <= 0 {
		return nil
	}
	return []string{"OLLAMA_NUM_PARALLEL=" + strconv.Itoa(r.cfg.Concurrency)}
}

func (r *ollama) begin(from origin) {
	r.client.forget()
	r.mu.Lock()
	r.origin, r.ready, r.embeds = from, false, false
	r.mu.Unlock()
	r.set(from.name)
}

// store returns where models may be: the environment's folder, else the defaults of Ollama's command line and Linux package.
func (r *ollama) store() []string {
	env := slices.Concat(r.cfg.Env, r.cfg.Spec.Env)
	if dir := process.Variable(env, "OLLAMA_MODELS"); dir != "" {
		return []string{dir}
	}
	var dirs []string
	if home := process.Variable(env, "HOME"); home != "" {
		dirs = append(dirs, filepath.Join(home, ".ollama", "models"))
	}
	return append(dirs, "/usr/share/ollama/.ollama/models")
}

func (r *ollama) Probe(ctx context.Context, e api.Endpoint) error {
	_, err := r.ask(ctx, e, probePrompt, map[string]any{"num_predict": 1})
	return err
}

func (r *ollama) Canary(ctx context.Context, e api.Endpoint, _ api.ModelName) (Answer, error) {
	if r.cfg.CanaryTokens <= 0 {
		return Answer{}, r.Probe(ctx, e)
	}
	return r.ask(ctx, e, canaryPrompt, map[string]any{"num_predict": r.cfg.CanaryTokens, "temperature": 0, "seed": 1})
}

func (r *ollama) ask(ctx context.Context, e api.Endpoint, prompt string, options map[string]any) (Answer, error) {
	name, err := r.ensure(ctx, e)
	if err != nil {
		return Answer{}, err
	}
	r.mu.Lock()
	embeds := r.embeds
	r.mu.Unlock()
	if !embeds {
		answer, err := r.generate(ctx, e, name, prompt, options)
		if !incapable(err) || Missing(err) {
			return answer, err
		}
	}
	answer, err := r.embed(ctx, e, name, prompt)
	if err != nil {
		return Answer{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.embeds = true
	return answer, nil
}

// ensure creates a missing model, and returns its name.
func (r *ollama) ensure(ctx context.Context, e api.Endpoint) (string, error) {
	r.mu.Lock()
	from, ready := r.origin, r.ready
	r.mu.Unlock()
	if ready {
		return from.name, nil
	}
	_, err := r.client.call(ctx, http.MethodPost, e, "/api/show", map[string]string{"model": from.name})
	switch {
	case Missing(err) && from.recipe != nil:
		err = r.maker.make(ctx, e, from)
	case Missing(err):
		err = fmt.Errorf("the server does not have the model %s: pull it there, or set the reference ollama://%s to have it fetched: %w", from.name, from.name, err)
	case err != nil && !answered(err) && from.recipe != nil:
		// Until it listens, compute the digests.
		err = errors.Join(err, r.maker.measure(ctx, from.recipe))
	}
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ready = true
	return from.name, nil
}

func (r *ollama) generate(ctx context.Context, e api.Endpoint, name, prompt string, options map[string]any) (Answer, error) {
	var answer struct {
		Text   string `json:"response"`
		Done   bool   `json:"done"`
		Reason string `json:"done_reason"`
		Tokens int    `json:"eval_count"`
	}
	err := r.client.ask(ctx, http.MethodPost, e, "/api/generate", map[string]any{
		"model": name, "prompt": prompt, "raw": true, "stream": false, "keep_alive": -1, "options": options,
	}, &answer)
	if err == nil && (!answer.Done || answer.Tokens == 0 && answer.Reason != "stop" && answer.Reason != "length") {
		err = errors.New("probe by /api/generate: the answer has no token")
	}
	if err != nil {
		return Answer{}, err
	}
	return inText("/api/generate", answer.Text), nil
}

func (r *ollama) embed(ctx context.Context, e api.Endpoint, name, prompt string) (Answer, error) {
	var answer struct {
		Embeddings [][]float64 `json:"embeddings"`
	}
	err := r.client.ask(ctx, http.MethodPost, e, "/api/embed", map[string]any{"model": name, "input": prompt, "keep_alive": -1}, &answer)
	if err == nil && (len(answer.Embeddings) == 0 || len(answer.Embeddings[0]) == 0) {
		err = errors.New("probe by /api/embed: the answer has no embedding")
	}
	if err != nil {
		return Answer{}, err
	}
	return inNumbers("/api/embed", answer.Embeddings[0]), nil
}

// Pauses between looks at the loaded models, which double.
const (
	firstLook  = 5 * time.Millisecond
	laterLooks = 100 * time.Millisecond
)

// Sleep blocks until the model's runner has ended.
func (r *ollama) Sleep(ctx context.Context, e api.Endpoint, _ api.Level) error {
	r.mu.Lock()
	name := r.origin.name
	r.mu.Unlock()
	if _, err := r.client.call(ctx, http.MethodPost, e, "/api/generate", map[string]any{"model": name, "keep_alive": 0, "stream": false}); err != nil {
		return err
	}
	for pause := firstLook; ; pause = min(2*pause, laterLooks) {
		loaded, err := r.loaded(ctx, e, name)
		if err != nil || loaded == nil {
			return err
		}
		if err := bell.Sleep(ctx, pause); err != nil {
			return fmt.Errorf("wait until %s is unloaded: %w", name, err)
		}
	}
}

func (r *ollama) Wake(ctx context.Context, e api.Endpoint, _ api.Level, _ func()) (Answer, error) {
	return r.Canary(ctx, e, "")
}

type ollamaListed struct {
	Name    string           `json:"name"`
	Model   string           `json:"model"`
	Size    api.Bytes        `json:"size"`           // in memory (/api/ps), or of the files
	Context int              `json:"context_length"` // of one request; in /api/ps since Ollama 0.11
	Details api.ModelDetails `json:"details"`
}

func (r *ollama) Describe(ctx context.Context, e api.Endpoint) (facts api.ModelFacts, err error) {
	r.mu.Lock()
	name := r.origin.name
	r.mu.Unlock()
	m, err := r.listed(ctx, e, "/api/tags", name)
	if err != nil || m == nil {
		return facts, err
	}
	facts.Size, facts.Details = m.Size, m.Details
	if m, err = r.loaded(ctx, e, name); m != nil {
		facts.Context = m.Context
	}
	return facts, err
}

// loaded returns nil for a model that is not in memory.
func (r *ollama) loaded(ctx context.Context, e api.Endpoint, name string) (*ollamaListed, error) {
	return r.listed(ctx, e, "/api/ps", name)
}

func (r *ollama) listed(ctx context.Context, e api.Endpoint, path, name string) (*ollamaListed, error) {
	var list struct {
		Models []ollamaListed `json:"models"`
	}
	if err := r.client.ask(ctx, http.MethodGet, e, path, nil, &list); err != nil {
		return nil, err
	}
	for i, m := range list.Models {
		if canonical(m.Name) == canonical(name) || canonical(m.Model) == canonical(name) {
			return &list.Models[i], nil
		}
	}
	return nil, nil
}

// alone are the families whose requests Ollama runs one at a time, whatever its settings (Ollama 0.17, server/sched.go).
var alone = []string{"mllama", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "qwen3next", "lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe", "nemotron_h_omni"}

// Signals returns the KV cache's tokens, one context per concurrent request: Ollama reports nothing else.
func (r *ollama) Signals(ctx context.Context, e api.Endpoint) (Signals, error) {
	r.mu.Lock()
	name, embeds := r.origin.name, r.embeds
	r.mu.Unlock()
	m, err := r.loaded(ctx, e, name)
	switch {
	case err != nil && !Missing(err):
		return Signals{}, fmt.Errorf("read the runtime's metrics: %w", err)
	case err != nil || m == nil || m.Context <= 0:
		return Signals{}, fmt.Errorf("read the runtime's metrics: it does not say how long a context is: %w", errors.ErrUnsupported)
	}
	parallel, err := strconv.Atoi(process.Variable(slices.Concat(r.cfg.Env, r.parallel(), r.cfg.Spec.Env), "OLLAMA_NUM_PARALLEL"))
	switch {
	case embeds || slices.Contains(alone, m.Details.Family):
		parallel = 1
	case r.cfg.Spec.Endpoint != "" || err != nil:
		return Signals{}, fmt.Errorf("read the runtime's metrics: how many requests it computes at once is not known: %w", errors.ErrUnsupported)
	}
	s := Unknown()
	s.Capacity = float64(m.Context * max(1, parallel))
	return s, nil
}
