package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// sglang runs SGLang's server on a port of 127.0.0.1, with a key that only the instance has, unless the options name a configuration file.
//
// It sleeps by releasing the memory of weights, KV cache and CUDA graphs (SGLang documentation, "--enable-memory-saver"); a busy server
// fails. With --enable-weights-cpu-backup, which we set, weights stay in host memory at both levels; without it (a sidecar) they are read
// from disk at the wake. Only a stop makes level 1 level 2. --no-enable-memory-saver is our own option, for no sleep
// in place.
//
// Not every version chooses an adapter by "model", but all do by "lora_path".
type sglang struct {
	server
	publisher
	sleeps, lora bool
	secret       *keyFile // may be nil

	mu         sync.Mutex // guards the fields below, which belong to this launch
	adapters   []string
	brought    []api.ModelName // loaded by the server itself; replaced, never changed
	batchLoRAs *int            // nil: not asked yet
	weights    string          // to read after a sleep; empty: they are kept
}

var sglangReserved = because(
	noAddress, "--host --port",
	noTLS, "--grpc-mode --smg-grpc-mode --ssl-keyfile --ssl-keyfile-password --ssl-certfile --ssl-ca-certs --enable-ssl-refresh",
	useModel, "--model-path --model", useNames, "--served-model-name", noKey, "--api-key --admin-api-key",
	noTools, "--tool-server", mediaHost, "--allowed-media-domains", adapters, "--lora-paths",
)

const noMemorySaver = "--no-enable-memory-saver"

func newSGLang(cfg Config, c *client) (Runtime, error) {
	spec := cfg.Spec
	r := &sglang{
		sleeps: !has(spec.Args, noMemorySaver),
		lora:   spec.AdapterRoot != "" || len(spec.Adapters) > 0 || has(spec.Args, "--enable-lora"),
	}
	p, args, err := publish(spec.Args, cfg.Dir, has(spec.Args, "--data-parallel-size", "--dp-size", "--dp"))
	if err != nil {
		return nil, err
	}
	r.publisher = p
	cfg.Spec.Args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return option(arg) == noMemorySaver })
	if cfg.Dir != "" && spec.Endpoint == "" && !has(spec.Args, "--config") {
		r.secret = &keyFile{path: filepath.Join(cfg.Dir, "sglang.yaml"), option: "api-key"}
		c.http = &http.Client{Transport: WithKey(cfg.Transport, r)}
	}
	r.server = newServer(cfg, c, spec.Endpoint != "")
	if spec.Endpoint == "" {
		r.set(r.clients[0]) // its only name
	} else {
		r.weights = spec.Model
	}
	return r, nil
}

func (r *sglang) Key() string {
	if r.secret == nil {
		return ""
	}
	return r.secret.Key()
}

func (r *sglang) Traits() Traits {
	return Traits{Reuses: true, Sleeps: r.sleeps, Adapts: r.lora || r.cfg.Spec.Endpoint != "", Brings: r.cfg.Spec.Endpoint != "", Room: numberOf(r.cfg.Spec.Args, "--max-loaded-loras", 0)}
}

func (r *sglang) Launch(model string) (Launch, error) {
	r.mu.Lock()
	r.adapters, r.batchLoRAs = nil, nil
	r.mu.Unlock()
	r.client.forget()
	if l, attached := r.attached(); attached {
		r.names.forget()
		return l, nil
	}
	e, port, err := loopback(0)
	if err != nil {
		return Launch{}, err
	}
	model, revision := hub(model)
	given := r.cfg.Spec.Args
	args := []string{"--model-path", model, "--served-model-name", r.clients[0], "--host", "127.0.0.1", "--port", port, "--enable-metrics"}
	if r.secret != nil {
		if err := r.secret.make(); err != nil {
			return Launch{}, fmt.Errorf("runtime sglang: %w", err)
		}
		args = append(args, "--config", r.secret.path)
	}
	if revision != "" {
		args = append(args, "--revision", revision)
	}
	if len(r.cfg.Spec.MediaHosts) > 0 { // it checks redirects too; older versions lack it, and get no URLs without it
		args = append(args, mediaDomains(r.cfg.Spec.MediaHosts)...)
	}
	env := sharedMemoryEnv(sharedMemory())
	if r.sleeps {
		args, env = append(args, "--enable-memory-saver", "--enable-weights-cpu-backup"), append(env, "SGLANG_MEMORY_SAVER_CUDA_GRAPH=true")
	}
	if r.lora {
		args = append(args, "--enable-lora")
		// Without adapters at its start SGLang needs the shape of later ones.
		if !has(given, "--max-lora-rank") {
			args = append(args, "--max-lora-rank", "64")
		}
		if !has(given, "--lora-target-modules") {
			args = append(args, "--lora-target-modules", "all")
		}
	}
	if r.cfg.Devices > 1 && !has(given, "--tensor-parallel-size", "--tp-size", "--tp", "--pipeline-parallel-size", "--pp-size", "--data-parallel-size", "--dp-size") {
		args = append(args, "--tensor-parallel-size", strconv.Itoa(r.cfg.Devices))
	}
	return r.launch(e, args, env)
}

// Request refuses unknown models and adapters, which the server would answer with the model itself.
func (r *sglang) Request(_ string, body *jsonfield.Object) *api.Error {
	if raw, found := body.Find("lora_path"); !none(raw, found) {
		if name, is := text(raw, found); !is || !r.has(name) {
			e := unknownModel(name, &r.names)
			e.Param, e.Message = "lora_path", "no adapter "+string(raw)+" is loaded: name one in the field model (GET /v1/models lists them)"
			return e
		}
	}
	asked, found := modelOf(body)
	own := r.own.Load()
	if !found || own == nil {
		return nil
	}
	base, adapter, tagged := strings.Cut(asked, ":")
	switch {
	case r.has(asked):
		adapter = asked
	case asked == own.name || r.known(asked):
		r.rename(body)
		return nil
	case !tagged || base != own.name && !r.known(base) || !r.has(adapter):
		return unknownModel(asked, &r.names)
	}
	body.Set("model", own.json)
	body.Set("lora_path", []byte(quote(adapter)))
	return nil
}

func (r *sglang) has(adapter string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.adapters, adapter) || slices.Contains(r.brought, api.ModelName(adapter))
}

func (r *sglang) Canary(ctx context.Context, e api.Endpoint, adapter api.ModelName) (Answer, error) {
	return r.canary(ctx, e, "", string(adapter))
}

// memoryTags are released and restored; versions ignore those that they do not know.
var memoryTags = map[string][]string{"tags": {"kv_cache", "weights", "cuda_graph"}}

func (r *sglang) Sleep(ctx context.Context, e api.Endpoint, _ api.Level) error {
	if err := r.noteWeights(ctx, e); err != nil {
		return err
	}
	_, err := r.client.call(ctx, http.MethodPost, e, "/release_memory_occupation", memoryTags)
	if err != nil {
		return fmt.Errorf("give the memory back (an idle server started with --enable-memory-saver can): %w", err)
	}
	return nil
}

// serverInfo reads the server's options. Servers before 2026 have the second path.
func (r *sglang) serverInfo(ctx context.Context, e api.Endpoint, info any) error {
	err := r.client.ask(ctx, http.MethodGet, e, "/server_info", nil, info)
	if Missing(err) {
		err = r.client.ask(ctx, http.MethodGet, e, "/get_server_info", nil, info)
	}
	return err
}

// noteWeights finds out whether a wake restores the weights.
func (r *sglang) noteWeights(ctx context.Context, e api.Endpoint) error {
	var info struct {
		Saver *bool  `json:"enable_memory_saver"`
		Kept  bool   `json:"enable_weights_cpu_backup"`
		Model string `json:"model_path"`
	}
	info.Kept = r.cfg.Spec.Endpoint == "" // of older servers, which do not say it
	err := r.serverInfo(ctx, e, &info)
	if Missing(err) {
		err, info.Model = nil, r.cfg.Spec.Model
	}
	switch {
	case err != nil:
		return err
	case !info.Kept && info.Model == "":
		return errors.New("the server was started without --enable-weights-cpu-backup, and does not say where its weights are: start it with that")
	case info.Saver != nil && !*info.Saver:
		return errors.New("the server was started without --enable-memory-saver: start it with that and --enable-weights-cpu-backup")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.weights = info.Model; info.Kept {
		r.weights = ""
	}
	return nil
}

func (r *sglang) Wake(ctx context.Context, e api.Endpoint, _ api.Level, serves func()) (Answer, error) {
	if _, err := r.client.call(ctx, http.MethodPost, e, "/resume_memory_occupation", memoryTags); err != nil {
		return Answer{}, err
	}
	r.mu.Lock()
	weights := r.weights
	r.mu.Unlock()
	if weights != "" {
		if err := r.loadWeights(ctx, e, weights); err != nil {
			return Answer{}, err
		}
	}
	return shown(ctx, e, r.Canary, serves)
}

// loadWeights also discards what the undefined weights computed. SGLang keeps the revision that it was started with.
func (r *sglang) loadWeights(ctx context.Context, e api.Endpoint, path string) error {
	name, _ := hub(path)
	var answer outcome
	err := r.client.ask(ctx, http.MethodPost, e, "/update_weights_from_disk", map[string]string{"model_path": name}, &answer)
	if err = cmp.Or(err, answer.err()); err != nil {
		return fmt.Errorf("load the weights again: %w", err)
	}
	_, err = r.client.call(ctx, http.MethodPost, e, "/flush_cache", nil)
	return err
}

type outcome struct {
	Success *bool  `json:"success"`
	Message string `json:"message"`
	Error   string `json:"error_message"`
}

func (o outcome) err() error {
	if o.Success == nil || *o.Success {
		return nil
	}
	return errors.New("the server says: " + o.Message + o.Error)
}

func (r *sglang) LoadAdapter(ctx context.Context, e api.Endpoint, a api.Adapter) error {
	if !r.lora && r.cfg.Spec.Endpoint == "" {
		return fmt.Errorf("the function declares no adapters and no folder of adapters, so SGLang was started without them; set one: %w", errors.ErrUnsupported)
	}
	err := r.changeAdapter(ctx, e, "/load_lora_adapter", map[string]string{"lora_name": string(a.Name), "lora_path": a.Path})
	if err != nil && !says(err, "already") {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.adapters, string(a.Name)) {
		r.adapters = append(r.adapters, string(a.Name))
	}
	return nil
}

func (r *sglang) KnowAdapters(names []api.ModelName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.brought = names
}

func (r *sglang) UnloadAdapter(ctx context.Context, e api.Endpoint, name api.ModelName) error {
	err := r.changeAdapter(ctx, e, "/unload_lora_adapter", map[string]string{"lora_name": string(name)})
	if err != nil && !says(err, "not loaded", "not found", "does not exist", "not exist") {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.adapters = slices.DeleteFunc(r.adapters, func(n string) bool { return n == string(name) })
	return nil
}

func (r *sglang) changeAdapter(ctx context.Context, e api.Endpoint, path string, body any) error {
	var answer outcome
	err := r.client.ask(ctx, http.MethodPost, e, path, body, &answer)
	if noRoute(err) {
		return fmt.Errorf("start SGLang with --enable-lora: %w: %w", errors.ErrUnsupported, err)
	}
	return cmp.Or(err, answer.err())
}

func (r *sglang) Signals(ctx context.Context, e api.Endpoint) (Signals, error) {
	s, err := scrape(ctx, r.client, e, sglangMetrics)
	if err == nil {
		s.MaxAdapters = r.maxAdapters(ctx, e)
	}
	return s, err
}

// maxAdapters is a batch's bound, which no metric reports. A server that somebody else starts is asked once.
func (r *sglang) maxAdapters(ctx context.Context, e api.Endpoint) int {
	const loras = 8 // SGLang's default
	if r.cfg.Spec.Endpoint == "" {
		if !r.lora {
			return 0
		}
		return numberOf(r.cfg.Spec.Args, "--max-loras-per-batch", loras)
	}
	r.mu.Lock()
	most := r.batchLoRAs
	r.mu.Unlock()
	if most != nil {
		return *most
	}
	var info struct {
		LoRA *bool `json:"enable_lora"`
		Most int   `json:"max_loras_per_batch"`
	}
	if r.serverInfo(ctx, e, &info) != nil || info.LoRA == nil || !*info.LoRA {
		info.Most = 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batchLoRAs = &info.Most
	return info.Most
}
