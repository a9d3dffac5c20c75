package functions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/fetch"
	"github.com/rouse-dev/rouse/functions/process"
)

// models is safe for many goroutines: adapters are registered while a start fetches.
type models struct {
	spec     api.Runtime
	open     func() (*fetch.Cache, error)
	progress func(fetch.Progress)
	placed   bool // the configuration names the cache's folder

	mu   sync.Mutex             // guards held
	held map[string]fetch.Model // by reference, and the folder Compiled: not to be evicted; nil: the instance has ended
}

// here reports whether the model needs no fetch: it is a path, or the runtime or its owner loads it.
func here(spec api.Runtime) bool {
	return spec.Model == "" || spec.Endpoint != "" || fetch.Local(spec.Model)
}

func (m *models) fetches() bool {
	return !here(m.spec) || slices.ContainsFunc(m.spec.Adapters, func(a api.Adapter) bool { return strings.Contains(a.Path, "://") })
}

// newModels opens the cache at once only if a start has to fetch something.
func newModels(cfg Config) (*models, error) {
	spec := cfg.Function.Runtime
	m := &models{spec: spec, progress: cfg.Fetching, held: map[string]fetch.Model{}}
	m.placed = cfg.Models != "" || process.Variable(slices.Concat(cfg.Env, spec.Env), "ROUSE_CACHE") != ""
	m.open = sync.OnceValues(func() (*fetch.Cache, error) { return cacheOf(cfg, m.placed) })
	if !m.fetches() {
		return m, nil
	}
	if !here(spec) {
		if _, err := fetch.Parse(spec.Model); err != nil {
			return nil, err
		}
	}
	if _, err := m.open(); err != nil {
		return nil, err
	}
	return m, nil
}

// tiles returns the folder for weights that our own engine has repacked, in the cache of models: instances with a common cache share them
// in memory. "": the engine's default.
func (m *models) tiles() string {
	if m.spec.Kind != api.RuntimeEngine || !m.placed {
		return ""
	}
	cache, err := m.open()
	if err != nil {
		return ""
	}
	return filepath.Join(cache.Dir(), "tiles")
}

// compiled returns variables that keep compiled code in the cache of models. Variables that are set elsewhere win. Each function has its
// own folder, since compiled code is run; it is held until release.
func (m *models) compiled(ctx context.Context, name api.FunctionName) (env []string) {
	if !m.placed || m.spec.Endpoint != "" || !slices.Contains([]string{api.RuntimeVLLM, api.RuntimeSGLang, api.RuntimeCommand}, m.spec.Kind) {
		return nil
	}
	cache, err := m.open()
	if err != nil {
		return nil
	}
	folder, err := cache.HoldFolder(ctx, fetch.Compiled, fileName(name), false)
	if err == nil {
		err = m.hold(fetch.Compiled, folder)
	}
	if err != nil {
		return nil
	}
	for _, key := range []string{"VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE"} {
		env = append(env, key+"="+filepath.Join(folder.Path, strings.ToLower(key)))
	}
	return env
}

func fileName(name api.FunctionName) string { return strings.ReplaceAll(string(name), "/", ".") }

func cacheOf(cfg Config, placed bool) (*fetch.Cache, error) {
	env := slices.Concat(cfg.Env, cfg.Function.Runtime.Env)
	from := fetch.Environment(func(name string) string { return process.Variable(env, name) })
	if cfg.Models != "" {
		from.Dir = cfg.Models
	}
	if cfg.HubTokenFile != "" {
		if _, err := os.Stat(cfg.HubTokenFile); err != nil {
			return nil, fmt.Errorf("the file with the hub's token: %w", err)
		}
		from.Hub.TokenFile = cfg.HubTokenFile
	}
	from.Share.SecretFile = cmp.Or(cfg.Share.SecretFile, from.Share.SecretFile)
	from.Share.Listen = cmp.Or(cfg.Share.Listen, from.Share.Listen)
	if len(cfg.Share.Peers) > 0 {
		from.Share.Peers = cfg.Share.Peers
	}
	from.Limit, from.Logger = cfg.ModelsLimit, cfg.Logger
	return openCache(from, placed)
}

func (m *models) prepare(ctx context.Context, report func(share float64)) (path string, err error) {
	if here(m.spec) {
		return m.spec.Model, nil
	}
	model, err := m.fetch(ctx, m.spec.Model, func(p fetch.Progress) {
		if p.Total > 0 {
			report(float64(p.Done) / float64(p.Total))
		}
		if m.progress != nil {
			m.progress(p)
		}
	})
	if err != nil {
		return "", err
	}
	file := m.spec.Kind == api.RuntimeEngine || m.spec.Kind == api.RuntimeLlamaCpp
	if m.spec.Kind == api.RuntimeOllama && !strings.HasPrefix(m.spec.Model, "ollama://") {
		file = true
	}
	switch {
	case !file:
		return model.Path, nil
	case model.GGUF == "":
		return "", fmt.Errorf("%s has no GGUF file, or several without a main one, and %s loads one file: name the file in the reference, or narrow it with ?include=NAME", m.spec.Model, m.spec.Kind)
	}
	return model.GGUF, nil
}

func (m *models) adapter(ctx context.Context, ref string) (string, error) {
	model, err := m.fetch(ctx, ref, nil)
	return model.Path, err
}

// fetch fetches a model and holds it in place of the one that ref meant before.
func (m *models) fetch(ctx context.Context, ref string, progress func(fetch.Progress)) (fetch.Model, error) {
	cache, err := m.open()
	if err != nil {
		return fetch.Model{}, err
	}
	model, err := cache.Fetch(ctx, ref, progress)
	if err != nil {
		return model, err
	}
	return model, m.hold(ref, model)
}

func (m *models) hold(ref string, model fetch.Model) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held == nil {
		model.Release()
		return errors.New("the instance has ended")
	}
	m.held[ref].Release()
	m.held[ref] = model
	return nil
}

func (m *models) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, model := range m.held {
		model.Release()
	}
	m.held = nil
}
