// Package block counts the blocks of a paged key-value cache: which are free, and
// how many sequences hold each one that is not.
//
// The cache's memory belongs to an inferencer, which cuts it into numbered blocks of a
// fixed number of positions (PagedAttention, arXiv:2309.06180). A sequence owns a list of
// block numbers and grows it as it gets longer; it never needs neighbouring blocks, so
// memory does not fragment and at most one block per sequence is partly used. This
// package knows numbers only: no memory, no tokens, no sequences.
//
// The life of a block:
//
//  1. Alloc takes it off the free list; it has one holder.
//  2. Share adds a holder, for sequences that begin alike.
//  3. Free removes one; the last one puts the block back on the free list.
//
// The block that was freed last is given out first: its memory is in use already, so a
// server with little load touches little of a large cache.
//
// No block left is an outcome, not an error: the caller preempts or waits. Freeing a
// block that nobody holds means that the caller's books are wrong, and panics. A Pool
// belongs to one goroutine.
package block

import "fmt"

// Pool is the account of all blocks of one cache.
type Pool struct {
	size int
	refs []int32 // holders of each block
	free []int32 // a stack of the blocks with refs 0
}

// New makes a pool of count blocks of size positions each, all free. It panics unless
// both are positive.
func New(count, size int) *Pool {
	if count <= 0 || size <= 0 {
		panic(fmt.Sprintf("block: pool of %d blocks of %d positions, want both positive", count, size))
	}
	p := &Pool{size: size, refs: make([]int32, count), free: make([]int32, count)}
	for i := range p.free {
		p.free[i] = int32(count - 1 - i) // block 0 is given out first
	}
	return p
}

// Count is the number of blocks, free or not.
func (p *Pool) Count() int { return len(p.refs) }

// Size is the number of positions in a block.
func (p *Pool) Size() int { return p.size }

// Available is the number of free blocks.
func (p *Pool) Available() int { return len(p.free) }

// Need is how many blocks hold n positions.
func (p *Pool) Need(n int) int { return (n + p.size - 1) / p.size }

// Holders is how many times the block is held; 0 means free.
func (p *Pool) Holders(id int32) int { return int(p.refs[id]) }

// Alloc gives a free block to one holder. ok is false when none is left.
func (p *Pool) Alloc() (id int32, ok bool) {
	n := len(p.free)
	if n == 0 {
		return 0, false
	}
	id = p.free[n-1]
	p.free = p.free[:n-1]
	p.refs[id] = 1
	return id, true
}

// AllocN appends n free blocks to dst, or takes none and returns false when fewer are
// left.
func (p *Pool) AllocN(dst []int32, n int) ([]int32, bool) {
	if n > len(p.free) {
		return dst, false
	}
	for range n {
		id, _ := p.Alloc()
		dst = append(dst, id)
	}
	return dst, true
}

// Share adds a holder to a block that has one. It panics when the block is free.
func (p *Pool) Share(id int32) {
	if p.refs[id] <= 0 {
		panic(fmt.Sprintf("block: share of block %d, which is free", id))
	}
	p.refs[id]++
}

// Free removes one holder of each block, the last block first, so that a sequence which comes
// next gets them in the same order. It panics when a block is free already.
func (p *Pool) Free(ids ...int32) {
	for i := len(ids) - 1; i >= 0; i-- {
		id := ids[i]
		if p.refs[id] <= 0 {
			panic(fmt.Sprintf("block: free of block %d, which is free", id))
		}
		p.refs[id]--
		if p.refs[id] == 0 {
			p.free = append(p.free, id)
		}
	}
}

// Check verifies the books: each block is either held or once on the free list. It looks
// at every block; call it in tests and when idle.
func (p *Pool) Check() error {
	onList := make([]bool, len(p.refs))
	for _, id := range p.free {
		switch {
		case id < 0 || int(id) >= len(p.refs):
			return fmt.Errorf("free list holds block %d of %d", id, len(p.refs))
		case onList[id]:
			return fmt.Errorf("block %d is on the free list twice", id)
		case p.refs[id] != 0:
			return fmt.Errorf("block %d is on the free list and has %d holders", id, p.refs[id])
		}
		onList[id] = true
	}
	for id, n := range p.refs {
		if n < 0 || n == 0 && !onList[id] {
			return fmt.Errorf("block %d has %d holders and is not on the free list", id, n)
		}
	}
	return nil
}
