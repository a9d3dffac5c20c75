package cpu

import (
	"fmt"

	"github.com/rouse-dev/rouse/engine/infer"
)

var _ infer.Keeper = (*Runner)(nil)

// BlockBytes implements infer.Keeper. Of several ranks each has its own heads' part.
func (r *Runner) BlockBytes() int64 { return r.cache.blockBytes() }

// Export implements infer.Keeper.
func (r *Runner) Export(block int32, dst []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.reachable(block, dst, false); err != nil {
		return err
	}
	src := r.cache.block(block)
	if src == nil {
		return fmt.Errorf("block %d is empty", block)
	}
	copy(dst, src)
	return nil
}

// Import implements infer.Keeper.
func (r *Runner) Import(block int32, src []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.reachable(block, src, true); err != nil {
		return err
	}
	r.cache.touch(block)
	copy(r.cache.block(block), src)
	return nil
}

// reachable returns an error if a block can't be copied. mu is held.
func (r *Runner) reachable(block int32, buf []byte, awake bool) error {
	switch {
	case r.closed:
		return infer.ErrClosed
	case r.cache.memory == nil, awake && r.level > 0:
		return infer.ErrAsleep
	case block < 0 || int(block) >= r.cache.count:
		return fmt.Errorf("block %d is outside the cache of %d blocks", block, r.cache.count)
	case int64(len(buf)) != r.cache.blockBytes():
		return fmt.Errorf("a block has %d bytes, got %d", r.cache.blockBytes(), len(buf))
	}
	return nil
}
