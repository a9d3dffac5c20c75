package vllmsim

import "container/list"

// pool is the KV cache. Named free blocks still hold what a prefix needs.
type pool struct {
	blocks []block
	// the free blocks; the front is taken first
	unused *list.List
	byHash map[uint64]int
	free   int
	// counts how often the weights were lost; blocks of another epoch are stale
	epoch  int
	noting bool
	events []Event
}

type block struct {
	holders int
	hash    uint64
	named   bool
	epoch   int
	at      *list.Element // in unused while no sequence holds it
}

func newPool(n int) *pool {
	p := &pool{blocks: make([]block, n), unused: list.New(), byHash: map[uint64]int{}, free: n}
	for i := range p.blocks {
		p.blocks[i].at = p.unused.PushBack(i)
	}
	return p
}

// take takes the free block that was unused for the longest time; there must be one.
func (p *pool) take() int {
	i := p.unused.Front().Value.(int)
	p.forget(i)
	p.hold(i)
	return i
}

func (p *pool) hold(i int) {
	b := &p.blocks[i]
	if b.holders == 0 {
		p.unused.Remove(b.at)
		b.at = nil
		p.free--
	}
	b.holders++
}

func (p *pool) release(i int) {
	b := &p.blocks[i]
	b.holders--
	if b.holders > 0 {
		return
	}
	p.free++
	if b.named {
		b.at = p.unused.PushBack(i)
	} else {
		b.at = p.unused.PushFront(i) // nothing is lost with it
	}
}

// name returns whether the block is the first with hash.
func (p *pool) name(i int, hash uint64) bool {
	b := &p.blocks[i]
	if b.named {
		return false
	}
	if other, found := p.byHash[hash]; found {
		if p.blocks[other].epoch == p.epoch {
			return false
		}
		p.forget(other)
	}
	b.hash, b.named, b.epoch = hash, true, p.epoch
	p.byHash[hash] = i
	return true
}

func (p *pool) forget(i int) {
	if b := &p.blocks[i]; b.named {
		delete(p.byHash, b.hash)
		b.named = false
		p.note(Event{Kind: Removed, Hash: b.hash})
	}
}

func (p *pool) reset() bool {
	if p.free < len(p.blocks) {
		return false
	}
	for i := range p.blocks {
		p.blocks[i].named = false
	}
	clear(p.byHash)
	p.note(Event{Kind: Cleared})
	return true
}

func (p *pool) usage() float64 {
	return float64(len(p.blocks)-p.free) / float64(len(p.blocks))
}
