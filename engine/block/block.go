// Package block is the block allocator of a paged key-value cache: which blocks are free, how
// many sequences hold each of the others, and which can be found by their content
// (the prefix cache).
//
// The cache's memory belongs to an inferencer, which cuts it into numbered blocks of a
// fixed number of positions (PagedAttention, arXiv:2309.06180). A sequence owns a list of
// block numbers and grows it as it gets longer; it never needs neighbouring blocks, so
// memory does not fragment and at most one block per sequence is partly used. This
// package knows block numbers and hashes only: no memory, no sequences.
//
// The life of a block:
//
//  1. Alloc takes it from the free ones; it has one holder.
//  2. Register gives it a name, once all of its positions have their tokens: a [Hash] of
//     those tokens and of all before them. From then on Take finds it.
//  3. Share and Take add holders, for sequences that begin alike.
//  4. Free removes one. After the last one the block is free; a named block stays in the prefix cache
//     until it is evicted.
//
// Alloc prefers blocks without a name, the one that was freed last first: its memory is
// in use already, so a server with little load touches little of a large cache. When
// there is none it evicts the least recently freed named block, which loses its name.
// Of the blocks of one sequence the last are evicted first, since a prefix
// is of use without what follows it, and not the reverse.
//
// Two blocks may come to hold the same tokens, when two sequences computed them at the same
// time. The first one registered has the name; the other stays nameless. A sequence's list of
// blocks thus only grows at its end, so a copy of the list needs additions only.
//
// No block left is an outcome, not an error: the caller preempts or waits. Freeing a
// block without a holder is a bug of the caller, and panics. A Pool
// belongs to one goroutine.
package block

import "fmt"

// Pool is the account of all blocks of one cache.
type Pool struct {
	size  int
	refs  []int32 // holders of each block
	plain []int32 // a stack of the free blocks without a name

	// The free blocks with a name are a ring in the order in which they were let go. Its
	// last entry, at index Count, is no block but the ring's beginning and end.
	next, prev []int32
	idle       int // blocks in the ring

	hash      []Hash
	named     []bool
	names     names
	evictions int
}

// New makes a pool of count blocks of size positions each, all free. It panics unless
// both are positive.
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

// Count is the number of blocks, free or not.
func (p *Pool) Count() int { return len(p.refs) }

// Size is the number of positions in a block.
func (p *Pool) Size() int { return p.size }

// Available is the number of free blocks, with a name or without.
func (p *Pool) Available() int { return len(p.plain) + p.idle }

// Cached is the number of blocks with a name, free or held.
func (p *Pool) Cached() int { return p.names.len }

// Evictions counts the blocks that lost their name because their place was needed.
func (p *Pool) Evictions() int { return p.evictions }

// Need is how many blocks hold n positions.
func (p *Pool) Need(n int) int { return (n + p.size - 1) / p.size }

// Holders is how many times the block is held; 0 means free.
func (p *Pool) Holders(id int32) int { return int(p.refs[id]) }

// Alloc gives a free block to one holder. ok is false when none is left.
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

// AllocN appends n free blocks to dst, or takes none and returns false when fewer are
// left.
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
		switch {
		case p.refs[id] > 0:
		case p.named[id]:
			p.link(id)
		default:
			p.plain = append(p.plain, id)
		}
	}
}

// Writable makes the last of ids, which one holder is about to write into, that holder's
// own. Held by others too, it is replaced in ids by a free block, and the caller owes
// a copy of from to to before anything is written (copy on write). Else copied is false. ok is false,
// and nothing has changed, when a block is needed and none is free. It panics when there
// are no ids.
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

// link puts a free block at the end of the ring: it was let go last.
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
