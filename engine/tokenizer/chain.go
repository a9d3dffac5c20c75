package tokenizer

import (
	"math"
	"math/bits"
	"slices"
	"sync"
)

// chain is a word whose neighbours are merged: best rank first, then leftmost, in O(n log n) for n places. A place
// takes at most placeBytes, and nothing grows during merging.
//
// A part is places merged into one symbol, which its first place holds. If it has more, the second and the last hold
// its negative length.
type chain struct {
	text  string // the bytes of the places, for lookups
	parts []int32
	ranks []int32 // of merging the part that begins there with the next one, or never
	// least is a tree of minima over ranks: node i is the minimum of nodes 2i and 2i+1; the leaves are its second half.
	least  []int32
	leaves int32
}

const never = math.MaxInt32

// A leaf has 1 << leafBits ranks.
const leafBits = 4

// placeBytes includes a place's share of the tree.
const placeBytes = 4 + 4 + 1

type merges interface {
	// rank is of merging the parts at left and right, which ends before end, or never.
	rank(c *chain, left, right, end int32) int32
	made(rank int32) int32
}

type chains struct{ usual, large sync.Pool }

// Chains are large from manyPlaces on.
const manyPlaces = 1 << 14

func (p *chains) take(places int) *chain {
	pool := &p.usual
	if places >= manyPlaces {
		pool = &p.large
	}
	if c, ok := pool.Get().(*chain); ok {
		return c
	}
	return &chain{}
}

func (p *chains) put(c *chain) {
	c.text = ""
	if cap(c.parts) >= manyPlaces {
		p.large.Put(c)
		return
	}
	p.usual.Put(c)
}

func (c *chain) reset(places int) {
	full := (max(places, 64)-1)>>leafBits<<leafBits + 1<<leafBits
	if cap(c.parts) < places { // append would overallocate
		c.parts, c.ranks = make([]int32, places, full), make([]int32, full)
	}
	c.parts, c.ranks = c.parts[:places], c.ranks[:full]
}

// parts, and all ranks but the last, must be set.
func (c *chain) merge(j *job, m merges) {
	n := int32(len(c.parts))
	if n < 2 {
		return
	}
	c.plant()
	for {
		at := c.best()
		if at < 0 {
			return
		}
		j.step(1)
		right := c.next(at)
		end := c.next(right)
		c.parts[at] = m.made(c.ranks[at])
		c.parts[at+1], c.parts[end-1] = at-end, at-end
		c.set(right, never)
		rank := int32(never)
		if end < n {
			rank = m.rank(c, at, end, c.next(end))
		}
		c.set(at, rank)
		if at > 0 {
			before := c.prev(at)
			c.set(before, m.rank(c, before, at, end))
		}
	}
}

func (c *chain) rankAll(j *job, m merges) {
	c.ranks = c.ranks[:len(c.parts)]
	for i := range c.ranks {
		c.ranks[i] = never
	}
	n := int32(len(c.parts))
	for left := int32(0); ; {
		right := c.next(left)
		if right >= n {
			return
		}
		j.step(1)
		c.ranks[left] = m.rank(c, left, right, c.next(right))
		left = right
	}
}

func (c *chain) plant() {
	n := len(c.parts)
	leaves := int32((n-1)>>leafBits + 1)
	c.leaves = 1 << bits.Len32(uint32(leaves-1))
	c.ranks = c.ranks[:leaves<<leafBits]
	for i := n - 1; i < len(c.ranks); i++ {
		c.ranks[i] = never
	}
	if leaves == 1 {
		return
	}
	if size := int(2 * c.leaves); cap(c.least) < size {
		c.least = make([]int32, size)
	}
	c.least = c.least[:2*c.leaves]
	for i := range c.leaves {
		c.least[c.leaves+i] = never
		if i < leaves {
			c.least[c.leaves+i] = slices.Min(c.leaf(i))
		}
	}
	for i := c.leaves - 1; i > 0; i-- {
		c.least[i] = min(c.least[2*i], c.least[2*i+1])
	}
}

func (c *chain) leaf(i int32) []int32 { return c.ranks[i<<leafBits : (i+1)<<leafBits] }

// best returns the next part to merge, or -1.
func (c *chain) best() int32 {
	if c.leaves == 1 {
		at := int32(0)
		for i, r := range c.ranks {
			if r < c.ranks[at] {
				at = int32(i)
			}
		}
		if c.ranks[at] == never {
			return -1
		}
		return at
	}
	rank := c.least[1]
	if rank == never {
		return -1
	}
	i := int32(1)
	for i < c.leaves {
		if i *= 2; c.least[i] != rank {
			i++
		}
	}
	i -= c.leaves
	return i<<leafBits + int32(slices.Index(c.leaf(i), rank))
}

func (c *chain) set(at, rank int32) {
	old := c.ranks[at]
	c.ranks[at] = rank
	if c.leaves == 1 || rank == old {
		return
	}
	i := c.leaves + at>>leafBits
	switch least := c.least[i]; {
	case rank < least:
	case old > least:
		return
	default:
		rank = slices.Min(c.leaf(at >> leafBits))
	}
	for c.least[i] != rank {
		c.least[i] = rank
		if i == 1 {
			return
		}
		rank = min(rank, c.least[i^1])
		i /= 2
	}
}

func (c *chain) next(at int32) int32 {
	if at+1 < int32(len(c.parts)) && c.parts[at+1] < 0 {
		return at - c.parts[at+1]
	}
	return at + 1
}

// prev needs a part before.
func (c *chain) prev(at int32) int32 {
	if n := c.parts[at-1]; n < 0 {
		return at + n
	}
	return at - 1
}
