package cpu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/kernel"
	"github.com/rouse-dev/rouse/engine/model"
)

var _ infer.Inferencer = (*Runner)(nil)

// Runner computes a model's logits on the CPU. It implements infer.Inferencer.
type Runner struct {
	path  string // "": the file was given
	cfg   Config
	conf  model.Config
	share share
	store tileCache

	// mu is held from start to end by all exported methods but Config, Blocks and BlockBytes.
	mu       sync.Mutex
	file     *gguf.File
	model    *model.Model // for the angles of positions; does not refer to the file's memory
	weights  *weights
	tiles    *tiles
	cache    *cache
	states   *states
	exchange *exchange
	adapters map[int32]*adapter
	level    int // 0 awake, 1 or 2 asleep
	closed   bool
	team     team
	step     *step        // nil while asleep
	out      infer.Result // of the last Forward

	projector *Runner // of images; may be nil
	seen      []seen  // the latest first
}

// Open loads the model file at path and packs its matrices, or maps them if that was done before.
func Open(path string, cfg Config) (*Runner, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	r, err := open(f, path, cfg)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("model file %s: %w", path, err), f.Close())
	}
	return r, nil
}

// New uses an open model, which the Runner closes; on error f stays the caller's. Sleep at level 2 does the same as
// level 1, and packed matrices are not kept in a file.
func New(f *gguf.File, cfg Config) (*Runner, error) { return open(f, "", cfg) }

func open(f *gguf.File, path string, cfg Config) (r *Runner, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	r = &Runner{cfg: cfg, path: path, file: f, tiles: &tiles{}, adapters: map[int32]*adapter{}}
	if cfg.Projector != "" {
		if r.projector, err = openProjector(cfg); err != nil {
			return nil, err
		}
		defer func(p *Runner) {
			if err != nil {
				err = errors.Join(err, p.Close())
			}
		}(r.projector)
	}
	m, err := r.load(f)
	if err != nil {
		return nil, err
	}
	if !m.Config.Plain() && cfg.Shard.Of > 1 {
		return nil, fmt.Errorf("models of the architecture %s are not divided among processes: leave out --shards", m.Config.Arch)
	}
	r.model, r.conf = m, m.Config
	r.states = newStates(&r.conf)
	r.share = newShare(r.conf, cfg.Shard)
	r.store = tileCache{dir: cfg.TileDir, limit: cfg.TileLimit, log: cfg.Log}
	r.team.size = cfg.Threads
	r.team.guarded = func(p uintptr) bool { return r.tiles.contains(p) }
	if r.cache, err = newCache(r.conf, cfg, r.share.kvHeads.hi-r.share.kvHeads.lo); err != nil {
		return nil, err
	}
	if r.exchange, err = newExchange(r.conf, cfg.Shard); err != nil {
		return nil, err
	}
	if err := r.acquire(background); err != nil {
		return nil, errors.Join(err, r.cache.close(), r.tiles.close(), r.exchange.close())
	}
	return r, nil
}

// load reads a model's shape and lays out its matrices; again, it only sets their sources. It copies what
// is needed after packing.
func (r *Runner) load(f *gguf.File) (*model.Model, error) {
	var m *model.Model
	var w *weights
	err := guard(func() (err error) {
		load := model.Load
		if r.cfg.projects {
			load = model.LoadProjector
		}
		if m, err = load(f); err == nil {
			err = r.shows(&m.Config)
		}
		if err != nil {
			return err
		}
		m.Limit(r.cfg.Context)
		w, err = newWeights(m)
		return err
	})
	if err != nil {
		return nil, err
	}
	if r.weights != nil && !r.weights.sameLayout(w) {
		return nil, errAnother
	}
	r.weights = w
	return m.Rotations(), nil
}

// Config implements infer.Inferencer.
func (r *Runner) Config() model.Config { return r.conf }

// Blocks implements infer.Inferencer.
func (r *Runner) Blocks() (count, size int) { return r.cache.count, kernel.Block }

// MemoryBytes implements infer.Inferencer.
func (r *Runner) MemoryBytes() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0
	}
	n := int64(r.cache.used) * r.cache.blockBytes()
	if r.projector != nil {
		n += r.projector.MemoryBytes()
	}
	if r.level > 0 {
		return n
	}
	n += r.step.bytes() + r.states.bytes()
	for _, x := range r.seen {
		n += int64(len(x.vectors)) * 4
	}
	for _, p := range r.share.resident(r.weights) {
		n += int64(len(p))
	}
	for _, a := range r.adapters {
		n += a.bytes
	}
	return n
}

// Close implements infer.Inferencer.
func (r *Runner) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	r.adapters, r.model = nil, nil
	var err error
	if r.projector != nil {
		err = r.projector.Close()
	}
	// A second Close of a file does nothing.
	return errors.Join(err, r.rest(), r.cache.close(), r.tiles.close(), r.exchange.close(), r.file.Close())
}

func tileDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "rouse", "tiles")
}
