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
	"github.com/rouse-dev/rouse/functions/internal/environ"
)

// models brings the model, and adapters that are references, to this machine. It
// is safe for many goroutines: adapters are registered while a start fetches.
type models struct {
	spec     api.Runtime
	open     func() (*fetch.Cache, error) // opens the cache, once
	progress func(fetch.Progress)         // nil: nobody
	placed   bool                         // somebody has said where the cache is

	mu   sync.Mutex             // guards held
	held map[string]fetch.Model // by reference: what may not be evicted; nil: the instance has ended
}

// here says that the model needs no fetch: it is a path, the runtime's own
// business, or that of whoever started the runtime.
func here(spec api.Runtime) bool {
	return spec.Model == "" || spec.Endpoint != "" || fetch.Local(spec.Model)
}

// fetches says whether a start has to fetch something.
func (m *models) fetches() bool {
	return !here(m.spec) || slices.ContainsFunc(m.spec.Adapters, func(a api.Adapter) bool { return strings.Contains(a.Path, "://") })
}

// newModels opens the cache of models, if a start has to fetch something; else the first adapter
// that has to be fetched opens it.
func newModels(cfg Config) (*models, error) {
	spec := cfg.Function.Runtime
	m := &models{spec: spec, progress: cfg.Fetching, held: map[string]fetch.Model{}}
	m.placed = cfg.Models != "" || environ.Value(slices.Concat(cfg.Env, spec.Env), "ROUSE_CACHE") != ""
	m.open = sync.OnceValues(func() (*fetch.Cache, error) { return cacheOf(cfg) })
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

// tiles is the folder of weights that our own engine has repacked: in the cache of models, where somebody has said where that is. So
// instances that have the cache in common, and no others, have the weights in memory once, and they stay when the instances go.
// "": the engine's own folder, for its user, also where there is no cache to be had and none is needed.
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

// cacheOf opens the cache of an instance.
func cacheOf(cfg Config) (*fetch.Cache, error) {
	env := slices.Concat(cfg.Env, cfg.Function.Runtime.Env)
	from := fetch.Environment(func(name string) string { return environ.Value(env, name) })
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
	return openCache(from, cfg.Models != "" || environ.Value(env, "ROUSE_CACHE") != "")
}

// prepare is the hook of the supervisor before each start.
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
		return "", fmt.Errorf("%s has no GGUF file, or several of which none stands out, and %s loads one: name the file in the reference, or narrow it with ?include=NAME", m.spec.Model, m.spec.Kind)
	}
	return model.GGUF, nil
}

// adapter brings an adapter.
func (m *models) adapter(ctx context.Context, ref string) (string, error) {
	model, err := m.fetch(ctx, ref, nil)
	return model.Path, err
}

// fetch holds what it fetches in place of what the reference meant before.
func (m *models) fetch(ctx context.Context, ref string, progress func(fetch.Progress)) (fetch.Model, error) {
	cache, err := m.open()
	if err != nil {
		return fetch.Model{}, err
	}
	model, err := cache.Fetch(ctx, ref, progress)
	if err != nil {
		return model, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held == nil {
		model.Release()
		return model, errors.New("the instance has ended")
	}
	m.held[ref].Release()
	m.held[ref] = model
	return model, nil
}

// release lets go of everything.
func (m *models) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, model := range m.held {
		model.Release()
	}
	m.held = nil
}
