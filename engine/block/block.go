// Package block allocates the blocks of a paged KV cache: which are free, how many sequences hold each of the others,
// and which can be found by their contents (the prefix cache).
//
// An inferencer cuts its memory into numbered blocks of a fixed number of positions (PagedAttention, arXiv:2309.06180).
// A sequence has a growing list of them. This package knows block numbers and hashes only.
//
// The life of a block:
//
//  1. Alloc takes a free block, which then has one holder.
//  2. Register names it, once all of its positions have their tokens: a [Hash] of these and of all before. Take
//     finds it.
//  3. Share and Take add holders, for sequences with a common prefix.
//  4. Free removes a holder. After the last one the block is free; a named one stays in the prefix cache until
//     evicted.
//
// Alloc prefers unnamed blocks, the last freed first: a server with little load touches little memory. Otherwise it
// evicts the least recently freed named block. A sequence's last blocks go first: a prefix is of use without its
// continuation.
//
// If two blocks have the same contents, the first one registered has the name: a sequence's list only grows at its end.
//
// Running out of blocks is an outcome: the caller preempts or waits. Freeing a free block panics. A Pool belongs to one
// goroutine.
package block

import "fmt"

// Pool tracks all blocks of one cache.
type Pool struct {
	size  int
	refs  []int32 // holders
	plain []int32 // a stack of free blocks without a name

	// The free named blocks form a ring, in the order in which they were freed. Index Count is a sentinel.
	next, prev []int32
	idle       int // in the ring

	hash      []Hash // by block, if named
	named     []bool
	names     names
	evictions int
}

// New returns a pool of free blocks. It panics unless count and size are positive.
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

// Count counts all blocks.
func (p *Pool) Count() int { return len(p.refs) }

// Size is in positions.
func (p *Pool) Size() int { return p.size }

// Available counts the free blocks.
func (p *Pool) Available() int { return len(p.plain) + p.idle }

// Cached counts the named blocks, free or held.
func (p *Pool) Cached() int { return p.names.len }

// Evictions counts the blocks that lost their name to an Alloc.
func (p *Pool) Evictions() int { return p.evictions }

// Need returns the blocks for n positions.
func (p *Pool) Need(n int) int { return (n + p.size - 1) / p.size }

// Holders returns 0 for a free block.
func (p *Pool) Holders(id int32) int { return int(p.refs[id]) }

// Alloc gives a free block to one holder, if there is one.
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

// AllocN appends n free blocks to dst, or none.
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

// Share adds a holder. It panics if the block is free.
func (p *Pool) Share(id int32) {
	if p.refs[id] <= 0 {
		panic(fmt.Sprintf("block: share of block %d, which is free", id))
	}
	p.refs[id]++
}

// Free removes one holder of each block, the last first: the next sequence gets them in this order. It panics if one is
// free.
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

// Writable makes the last of ids writable for one holder. A shared or named block is replaced in ids, and copied is
// true: the caller must copy from to to first. ok is false, and nothing changes, if no block is free. It panics if ids
// is empty.
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
