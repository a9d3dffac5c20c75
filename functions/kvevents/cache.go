package kvevents

// mostBlocks bounds the blocks that are remembered, some 50 MiB; what else is stored is not counted.
const mostBlocks = 1 << 20

// Cache is what a server's prefix cache has. It belongs to one goroutine. The zero value knows nothing.
type Cache struct {
	blocks map[uint64]block
	tokens int64
	known  bool
	group  int // whose blocks are counted, the first that was seen: caches of other layers have the same tokens
}

// block is one block, and where it is.
type block struct {
	size  int32
	media uint8
}

// Tokens is how many tokens the cache has, wherever: a block that moved to the host's memory is still there. known is false where that is
// not known.
func (c *Cache) Tokens() (tokens int64, known bool) { return c.tokens, c.known }

// begin says that the cache is empty.
func (c *Cache) begin() { *c = Cache{blocks: map[uint64]block{}, known: true, group: -1} }

// lose says that some events were not seen.
func (c *Cache) lose() { *c = Cache{} }

// see takes an event in.
func (c *Cache) see(e event) {
	switch {
	case e.kind == cleared:
		c.begin()
	case !c.known:
	case c.group < 0:
		c.group = e.group
		c.see(e)
	case e.group != c.group:
	case e.kind == stored:
		for _, h := range e.hashes {
			c.store(h, e)
		}
	case e.kind == removed:
		for _, h := range e.hashes {
			c.remove(h, e)
		}
	}
}

func (c *Cache) store(h uint64, e event) {
	b, there := c.blocks[h]
	if !there {
		if len(c.blocks) >= mostBlocks || e.size <= 0 || e.size > 1<<16 {
			return
		}
		b.size = int32(e.size)
		c.tokens += int64(b.size)
	}
	b.media |= bit(e.medium)
	c.blocks[h] = b
}

func (c *Cache) remove(h uint64, e event) {
	b, there := c.blocks[h]
	if !there {
		return
	}
	if b.media &^= bit(e.medium); b.media != 0 {
		c.blocks[h] = b
		return
	}
	c.tokens -= int64(b.size)
	delete(c.blocks, h)
}

// bit is a medium's; older servers name none, and have one.
func bit(medium string) uint8 {
	switch medium {
	case "", "GPU":
		return 1
	case "CPU":
		return 2
	}
	return 4 // disks and other machines
}
