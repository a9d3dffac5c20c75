package cpu

import (
	"fmt"
	"unsafe"

	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/model"
)

// cache is the key-value memory: [count, layers, KVHeads, 2, size, HeadDim], the 2 being
// keys and values. A block's memory is contiguous.
type cache struct {
	count, size int // blocks, positions in a block
	dim         int // HeadDim
	perHead     int // values of one head in one layer of one block
	perLayer    int
	perBlock    int

	memory  []byte // nil while asleep
	values  []float32
	touched []bool // blocks written since mapping: they take memory
	used    int    // number of touched blocks
}

func newCache(c model.Config, cfg Config) (*cache, error) {
	k := &cache{size: cfg.BlockSize, dim: c.HeadDim}
	k.perHead = 2 * k.size * c.HeadDim
	k.perLayer = k.perHead * c.KVHeads
	k.perBlock = k.perLayer * c.Layers
	most := cfg.CacheBytes / k.blockBytes()
	if most < 1 {
		return nil, fmt.Errorf("a cache of %d bytes holds no block of %d positions (%d bytes): raise CacheBytes or lower BlockSize",
			cfg.CacheBytes, k.size, k.blockBytes())
	}
	perSequence := int64((c.Context + k.size - 1) / k.size)
	k.count = int(min(most, perSequence*int64(cfg.Sequences), 1<<31-1))
	return k, nil
}

func (k *cache) blockBytes() int64 { return int64(k.perBlock) * 4 }

// open takes the address space. The system provides zeroed pages on first use.
func (k *cache) open() error {
	mem, err := mapAnonymous(k.count * k.perBlock * 4)
	if err != nil {
		return fmt.Errorf("map a cache of %d blocks of %d bytes: %w", k.count, k.blockBytes(), err)
	}
	k.memory = mem
	k.values = unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(mem))), len(mem)/4)
	k.touched = make([]bool, k.count)
	k.used = 0
	return nil
}

// close gives the memory back.
func (k *cache) close() error {
	if k.memory == nil {
		return nil
	}
	mem := k.memory
	k.memory, k.values, k.touched, k.used = nil, nil, nil, 0
	if err := unmapAnonymous(mem); err != nil {
		return fmt.Errorf("unmap the cache: %w", err)
	}
	return nil
}

// head is the memory of one head in one layer of a block: keys and values, [size, dim]
// each.
func (k *cache) head(block int32, layer, head int) (keys, values []float32) {
	at := int(block)*k.perBlock + layer*k.perLayer + head*k.perHead
	m := k.values[at : at+k.perHead]
	return m[:k.perHead/2], m[k.perHead/2:]
}

// copy copies a whole block.
func (k *cache) copy(p infer.Copy) {
	k.touch(p.To)
	copy(k.values[int(p.To)*k.perBlock:][:k.perBlock], k.values[int(p.From)*k.perBlock:][:k.perBlock])
}

func (k *cache) touch(block int32) {
	if !k.touched[block] {
		k.touched[block] = true
		k.used++
	}
}
