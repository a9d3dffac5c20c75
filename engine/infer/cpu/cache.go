package cpu

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/kernel"
	"github.com/rouse-dev/rouse/engine/model"
)

// cache is the KV cache of IEEE halves: [count, layers, this rank's heads, 2, …], where 2 is keys [HeadDim, Block]
// and values [Block, HeadDim]. A block's memory is contiguous. Layers that use another's keys and values, or a delta
// net, have none.
type cache struct {
	count    int
	layers   []cacheLayer
	perBlock int // halves

	memory  []byte // nil while asleep
	halves  []uint16
	touched []bool // blocks written since mapping; they take memory
	used    int
}

// cacheLayer is where a layer begins in a block, in halves, and its heads' width.
type cacheLayer struct{ at, dim int }

func (l cacheLayer) perHead() int { return 2 * kernel.Block * l.dim }

// The number of blocks is computed from all heads, so it is the same in all ranks.
func newCache(c model.Config, cfg Config, heads int) (*cache, error) {
	k, all := &cache{}, int64(0)
	for i := range c.Layers {
		dim, kv := c.Shape(i)
		l := cacheLayer{k.perBlock, dim}
		if k.layers = append(k.layers, l); i >= c.Layers-c.SharedKV || c.Delta(i) {
			continue
		}
		all += 2 * int64(l.perHead()) * int64(kv)
		k.perBlock += l.perHead() * (kv - c.KVHeads + heads) // only one rank has layers of different shapes
	}
	most := cfg.CacheBytes / all
	if most < 1 {
		return nil, fmt.Errorf("a cache of %d bytes holds no block of %d positions (%d bytes): raise CacheBytes, which is --kv-cache-memory-bytes of the server", cfg.CacheBytes, kernel.Block, all)
	}
	perSequence := int64((c.Context + kernel.Block - 1) / kernel.Block)
	k.count = int(min(most, perSequence*int64(cfg.Sequences), 1<<31-1))
	return k, nil
}

func (k *cache) blockBytes() int64 { return int64(k.perBlock) * 2 }

// The OS provides zeroed pages on first use.
func (k *cache) open() error {
	if k.memory != nil {
		return nil
	}
	mem, err := mapAnonymous(max(k.count*k.perBlock*2, 1)) // a rank may have no heads
	if err != nil {
		return fmt.Errorf("take memory for a cache of %d blocks of %d bytes (lower CacheBytes, which is --kv-cache-memory-bytes of the server): %w", k.count, k.blockBytes(), err)
	}
	k.memory = mem
	k.halves = unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(mem))), len(mem)/2)
	k.touched = make([]bool, k.count)
	k.used = 0
	return nil
}

func (k *cache) close() error {
	if k.memory == nil {
		return nil
	}
	mem := k.memory
	k.memory, k.halves, k.touched, k.used = nil, nil, nil, 0
	if err := unmap(mem); err != nil {
		return fmt.Errorf("unmap the cache: %w", err)
	}
	return nil
}

func (k *cache) keep(blocks []int32) error {
	if k.memory == nil {
		return nil
	}
	kept := make([]bool, k.count)
	used := 0
	for _, b := range blocks {
		if k.touched[b] && !kept[b] {
			kept[b] = true
			used++
		}
	}
	if used == 0 || !dropsPages {
		return k.close()
	}
	k.touched, k.used = kept, used
	for from := 0; from < k.count; {
		to := from
		for to < k.count && !kept[to] {
			to++
		}
		if inner := innerPages(k.memory[from*k.perBlock*2 : to*k.perBlock*2]); len(inner) > 0 {
			if err := dropPages(inner); err != nil {
				return errors.Join(fmt.Errorf("give back pages of the cache: %w", err), k.close())
			}
		}
		from = to + 1
	}
	return nil
}

// block returns nil if the block was not written since it was mapped or last kept.
func (k *cache) block(id int32) []byte {
	if id < 0 || int(id) >= k.count || !k.touched[id] {
		return nil
	}
	return k.memory[int(id)*k.perBlock*2:][:k.perBlock*2]
}

// pages counts heads from the rank's first.
func (k *cache) pages(layer, head int, blocks []int32) kernel.Pages {
	l := k.layers[layer]
	at := l.at + head*l.perHead()
	return kernel.Pages{Memory: k.halves, Keys: at, Values: at + l.perHead()/2, Stride: k.perBlock, Blocks: blocks, HeadDim: l.dim}
}

func (k *cache) copy(p infer.Copy) {
	k.touch(p.To)
	copy(k.halves[int(p.To)*k.perBlock:][:k.perBlock], k.halves[int(p.From)*k.perBlock:][:k.perBlock])
}

func (k *cache) touch(block int32) {
	if !k.touched[block] {
		k.touched[block] = true
		k.used++
	}
}
