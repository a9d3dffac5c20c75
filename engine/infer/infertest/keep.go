package infertest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/rouse-dev/rouse/engine/infer"
)

var _ infer.Keeper = (*Fake)(nil)

// positionBytes is the size of an exported position: token, adapter, and whether it is written.
const positionBytes = 9

// SleepKeeping implements infer.Keeper.
func (f *Fake) SleepKeeping(blocks []int32) error {
	f.Mu.Lock()
	cache, ready := f.Cache, f.Ready()
	f.Mu.Unlock()
	if errors.Is(ready, infer.ErrAsleep) {
		return nil
	}
	if err := f.Sleep(1); err != nil || cache == nil {
		return err
	}
	_, size := f.Blocks()
	for i := range cache {
		if !slices.Contains(blocks, int32(i/size)) {
			cache[i] = position{}
		}
	}
	f.Mu.Lock()
	f.Cache = cache
	f.Mu.Unlock()
	return nil
}

// BlockBytes implements infer.Keeper.
func (f *Fake) BlockBytes() int64 {
	_, size := f.Blocks()
	return int64(size) * positionBytes
}

// Export implements infer.Keeper.
func (f *Fake) Export(block int32, dst []byte) error {
	part, err := f.part(block, dst)
	if err != nil {
		return err
	}
	for i, p := range part {
		if !p.written {
			return fmt.Errorf("block %d is empty", block)
		}
		b := dst[i*positionBytes:]
		binary.LittleEndian.PutUint32(b, uint32(p.token))
		binary.LittleEndian.PutUint32(b[4:], uint32(p.adapter))
		b[8] = 1
	}
	return nil
}

// Import implements infer.Keeper.
func (f *Fake) Import(block int32, src []byte) error {
	part, err := f.part(block, src)
	if err != nil {
		return err
	}
	for i := range part {
		b := src[i*positionBytes:]
		part[i] = position{int32(binary.LittleEndian.Uint32(b)), int32(binary.LittleEndian.Uint32(b[4:])), b[8] == 1}
	}
	return nil
}

func (f *Fake) part(block int32, buf []byte) ([]position, error) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	count, size := f.Blocks()
	if f.Cache == nil && f.Ready() == nil {
		f.Cache = make([]position, count*size)
	}
	if f.Cache == nil {
		return nil, infer.ErrAsleep
	}
	if block < 0 || int(block) >= count || int64(len(buf)) != f.BlockBytes() {
		return nil, fmt.Errorf("block %d of %d, and %d bytes", block, count, len(buf))
	}
	return f.Cache[int(block)*size:][:size], nil
}
