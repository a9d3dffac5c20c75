package metrics

// mostBlocks bounds the remembered blocks, some 50 MiB; further ones are not counted.
const mostBlocks = 1 << 20

// kvCache is the content of a server's prefix cache. It belongs to one goroutine. The zero value knows nothing.
type kvCache struct {
	blocks map[uint64]block
	tokens int64
	known  bool
	group  int // whose blocks are counted, the first seen: caches of other layers have the same tokens
}

type block struct {
	size  int32
	media uint8
}

// Tokens returns how many tokens the cache has, in any memory: a block that moved to host memory still counts.
func (c *kvCache) Tokens() (tokens int64, known bool) { return c.tokens, c.known }

func (c *kvCache) begin() { *c = kvCache{blocks: map[uint64]block{}, known: true, group: -1} }

func (c *kvCache) lose() { *c = kvCache{} }

func (c *kvCache) see(e event) {
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

func (c *kvCache) store(h uint64, e event) {
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

func (c *kvCache) remove(h uint64, e event) {
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

// Older servers have one medium and name none.
func bit(medium string) uint8 {
	switch medium {
	case "", "GPU":
		return 1
	case "CPU":
		return 2
	}
	return 4 // disks and other machines
}
