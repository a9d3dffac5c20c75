// Package block is the block allocator of a paged KV cache: which blocks are free, how many sequences hold each of the
// others, and which can be found by their contents (the prefix cache).
//
// The cache's memory belongs to an inferencer, which cuts it into numbered blocks of a fixed number of positions
// (PagedAttention, arXiv:2309.06180). A sequence owns a growing list of block numbers. They need not be adjacent, so
// memory does not fragment and at most one block per sequence is partly used. This package knows block numbers and
// hashes only: no memory, no sequences.
//
// The life of a block:
//
//  1. Alloc takes a free block, which then has one holder.
//  2. Register names it, once all of its positions have their tokens: a [Hash] of those tokens and of all before
//     them. From then on Take finds it.
//  3. Share and Take add holders, for sequences with a common prefix.
//  4. Free removes a holder. After the last one the block is free; a named block stays in the prefix cache until it
//     is evicted.
//
// Alloc prefers unnamed blocks, the last freed first: its memory is in use already, so a server with little load
// touches little of a large cache. If there is none, it evicts the least recently freed named block, which loses its
// name. The last blocks of a sequence are evicted first, because a prefix is useful without its continuation, but not
// the reverse.
//
// Two sequences that compute the same tokens at the same time get two blocks with the same contents. Only the first
// one registered gets the name. A sequence's list of blocks thus only grows at its end, so a copy of the list needs
// additions only.
//
// Running out of blocks is an outcome, not an error: the caller preempts or waits. Freeing a block without a holder is
// the caller's bug, and panics. A Pool belongs to one goroutine.
package block

import "fmt"

// Pool tracks all blocks of one cache.
type Pool struct {
	size  int
	refs  []int32 // holders of each block
	plain []int32 // a stack of the free blocks without a name

	// The free named blocks form a ring, in the order in which they were freed. Its last entry, at index Count, is a
	// sentinel.
	next, prev []int32
	idle       int // blocks in the ring

	hash      []Hash
	named     []bool
	names     names
	evictions int
}

// New returns a pool of count free blocks of size positions each. It panics unless both are positive.
func New(count, size int) *Pool {
	if count <= 0 || size <= 0 {
		panic(fmt.Sprintf("block: pool of %d blocks of %d positions, want both positive", count, size))
	}
	p := &Pool{
		size: size, refs: make([]int32, count), plain: make([]int32, count),
		next: make([]int32, count+1), prev: make([]int32, count+1),
		hash: make([]Hash, count), named: make([]bool, count), names: newNames(count),
	}
	for i := range p.plain {
		p.plain[i] = int32(count - 1 - i) // block 0 is given out first
	}
	p.next[count], p.prev[count] = int32(count), int32(count)
	return p
}

// Count returns the number of blocks, free or not.
func (p *Pool) Count() int { return len(p.refs) }

// Size returns the number of positions in a block.
func (p *Pool) Size() int { return p.size }

// Available returns the number of free blocks, named or not.
func (p *Pool) Available() int { return len(p.plain) + p.idle }

// Cached returns the number of named blocks, free or held.
func (p *Pool) Cached() int { return p.names.len }

// Evictions returns the number of blocks that lost their name to an Alloc.
func (p *Pool) Evictions() int { return p.evictions }

// Need returns the number of blocks for n positions.
func (p *Pool) Need(n int) int { return (n + p.size - 1) / p.size }

// Holders returns the number of holders of the block; 0 means free.
func (p *Pool) Holders(id int32) int { return int(p.refs[id]) }

// Alloc gives a free block to one holder. ok is false if none is free.
func (p *Pool) Alloc() (id int32, ok bool) {
	if n := len(p.plain); n > 0 {
		id = p.plain[n-1]
		p.plain = p.plain[:n-1]
	} else if p.idle > 0 {
		id = p.next[len(p.refs)]
		p.unlink(id)
		p.forget(id)
		p.evictions++
	} else {
		return 0, false
	}
	p.refs[id] = 1
	return id, true
}

// AllocN appends n free blocks to dst. If fewer are free, it takes none and returns false.
func (p *Pool) AllocN(dst []int32, n int) ([]int32, bool) {
	if n > p.Available() {
		return dst, false
	}
	for range n {
		id, _ := p.Alloc()
		dst = append(dst, id)
	}
	return dst, true
}

// Share adds a holder to a held block. It panics if the block is free.
func (p *Pool) Share(id int32) {
	if p.refs[id] <= 0 {
		panic(fmt.Sprintf("block: share of block %d, which is free", id))
	}
	p.refs[id]++
}

// Free removes one holder of each block, the last block first, so that the next sequence gets them in the same order.
// It panics if a block is already free.
func (p *Pool) Free(ids ...int32) {
	for i := len(ids) - 1; i >= 0; i-- {
		id := ids[i]
		if p.refs[id] <= 0 {
			panic(fmt.Sprintf("block: free of block %d, which is free", id))
		}
		p.refs[id]--
		switch {
		case p.refs[id] > 0:
		case p.named[id]:
			p.link(id)
		default:
			p.plain = append(p.plain, id)
		}
	}
}

// Writable makes the last of ids writable for one holder (copy on write). A block that is shared or named is replaced
// in ids by a free one, and copied is true: the caller must copy from to to before writing. ok is false, and nothing
// has changed, if no block is free. It panics if ids is empty.
func (p *Pool) Writable(ids []int32) (from, to int32, copied, ok bool) {
	last := len(ids) - 1
	from = ids[last]
	if p.refs[from] == 1 && !p.named[from] {
		return from, from, false, true
	}
	to, ok = p.Alloc()
	if !ok {
		return from, from, false, false
	}
	ids[last] = to
	p.Free(from)
	return from, to, true, true
}

// link appends a free block to the ring.
func (p *Pool) link(id int32) {
	end := int32(len(p.refs))
	last := p.prev[end]
	p.next[last], p.prev[id], p.next[id], p.prev[end] = id, last, end, id
	p.idle++
}

func (p *Pool) unlink(id int32) {
	p.next[p.prev[id]], p.prev[p.next[id]] = p.next[id], p.prev[id]
	p.idle--
}
