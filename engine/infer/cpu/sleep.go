package cpu

import (
	"context"
	"errors"
	"fmt"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer"
)

var errAnother = errors.New("the file holds another model than before: restart to use it")

// Sleep implements infer.Inferencer.
func (r *Runner) Sleep(level int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sleep(level, nil)
}

// SleepKeeping implements infer.Keeper.
func (r *Runner) SleepKeeping(blocks []int32) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range blocks {
		if b < 0 || int(b) >= r.cache.count {
			return fmt.Errorf("block %d to keep is outside the cache of %d blocks", b, r.cache.count)
		}
	}
	return r.sleep(1, blocks)
}

// sleep is called with mu held. At level 2 it keeps no block.
func (r *Runner) sleep(level int, keep []int32) error {
	switch {
	case r.closed:
		return infer.ErrClosed
	case level != 1 && level != 2:
		return fmt.Errorf("sleep level %d is unknown: want 1 or 2", level)
	case level <= r.level:
		return nil
	}
	r.level = level
	err := errors.Join(r.rest(), r.cache.keep(keep))
	if r.projector != nil {
		err = errors.Join(err, r.projector.Sleep(level))
	}
	if level == 2 {
		err = errors.Join(err, r.tiles.close())
		r.weights.bind(nil)
		if r.path != "" {
			err = errors.Join(err, r.file.Close())
		}
	}
	if err != nil {
		return fmt.Errorf("sleep: %w", err)
	}
	return nil
}

// rest frees everything except the files and the cache.
func (r *Runner) rest() error {
	r.team.stop()
	r.step, r.out, r.seen = nil, infer.Result{}, nil
	err := errors.Join(r.states.close(), r.tiles.rest(), r.file.Release())
	if r.tiles.mem == nil {
		r.weights.bind(nil)
	}
	return err
}

// Wake implements infer.Inferencer.
func (r *Runner) Wake(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return infer.ErrClosed
	case r.level == 0:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("wake: %w", context.Cause(ctx))
	}
	if r.level == 2 && r.path != "" {
		if err := r.reopen(); err != nil {
			return fmt.Errorf("wake: %w", err)
		}
		r.level = 1 // the open files are those of level 1
	}
	err := r.acquire(ctx)
	if err == nil && r.projector != nil {
		err = r.projector.Wake(ctx)
	}
	if err != nil {
		return fmt.Errorf("wake: %w", errors.Join(err, r.rest(), r.cache.close()))
	}
	r.level = 0
	return nil
}

func (r *Runner) reopen() error {
	f, err := gguf.Open(r.path)
	if err != nil {
		return err
	}
	m, err := r.load(f)
	if err == nil && m.Config != r.conf {
		err = errAnother
	}
	if err != nil {
		return errors.Join(fmt.Errorf("model file %s: %w", r.path, err), f.Close())
	}
	r.file, r.model = f, m
	return nil
}

var background = context.Background()

func (r *Runner) acquire(ctx context.Context) error {
	if err := r.tiles.check(); err != nil {
		r.cfg.Log.Warn("a tile file has changed and is opened again", "error", err)
		if err := r.tiles.close(); err != nil {
			return err
		}
	}
	if r.tiles.mem == nil {
		if err := r.openTiles(); err != nil {
			return err
		}
	}
	if err := r.tiles.readIn(ctx, r.share.resident(r.weights), r.cfg.Threads); err != nil {
		return err
	}
	if err := r.cache.open(); err != nil {
		return err
	}
	r.step = newStep(r)
	return nil
}

func (r *Runner) openTiles() error {
	if r.path != "" && r.weights.size >= r.cfg.TileFrom {
		t, err := r.store.open(r.path, r.weights, r.cfg.Threads)
		if err == nil {
			r.tiles = t
			return r.file.Release()
		}
		r.cfg.Log.Warn("the packed model cannot be kept in a file: it takes memory of its own, and each start packs it again",
			"model", r.path, "bytes", r.weights.size, "error", err)
	}
	t := &tiles{}
	if err := t.pack(r.weights, &r.share, r.cfg.Threads); err != nil {
		return err
	}
	r.tiles = t
	r.weights.bind(t.mem)
	return r.file.Release()
}
