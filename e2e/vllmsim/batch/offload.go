package batch

import "container/list"

// offload is what a connector keeps of the cache in the host's memory: the contents of full blocks by their names, those that were
// used last.
type offload struct {
	most   int
	order  *list.List // of *kept; the front was used last
	byHash map[uint64]*list.Element
}

// kept is a block. Weights that were dropped and read again are the same, so it stays good; one that was computed between the two is
// spoiled.
type kept struct {
	hash    uint64
	epoch   int
	spoiled bool
}

func newOffload(most int) *offload {
	return &offload{most: most, order: list.New(), byHash: map[uint64]*list.Element{}}
}

// put keeps a block, and forgets the one that was not used for longest where there is no room.
func (o *offload) put(hash uint64, epoch int) {
	if o.most <= 0 {
		return
	}
	if at, found := o.byHash[hash]; found {
		at.Value.(*kept).epoch, at.Value.(*kept).spoiled = epoch, false
		o.order.MoveToFront(at)
		return
	}
	if o.order.Len() >= o.most {
		last := o.order.Back()
		delete(o.byHash, last.Value.(*kept).hash)
		o.order.Remove(last)
	}
	o.byHash[hash] = o.order.PushFront(&kept{hash: hash, epoch: epoch})
}

// has says whether a block is kept, and is worth something.
func (o *offload) has(hash uint64) (good, found bool) {
	at, found := o.byHash[hash]
	if !found {
		return false, false
	}
	o.order.MoveToFront(at)
	return !at.Value.(*kept).spoiled, true
}

// SpoilOffloaded marks what was kept since the last [Batch.Spoil] as computed without weights.
func (b *Batch) SpoilOffloaded() {
	for _, at := range b.host.byHash {
		if k := at.Value.(*kept); k.epoch == b.pool.epoch {
			k.spoiled = true
		}
	}
}

// ResetOffloaded forgets what is kept in the host's memory.
func (b *Batch) ResetOffloaded() { b.host = newOffload(b.cfg.Offloaded) }

// Offloaded is how many blocks are kept there.
func (b *Batch) Offloaded() int { return b.host.order.Len() }

// offloaded is how many blocks of s after its first from, which the cache has, can be loaded from the host, and which of them are worth something.
func (b *Batch) offloaded(s *Sequence, from int) (good []bool) {
	if b.cfg.NoPrefixCache {
		return nil
	}
	for i := from; (i+1)*b.cfg.BlockTokens < s.target(); i++ {
		is, found := b.host.has(b.hash(s, i))
		if !found {
			break
		}
		good = append(good, is)
	}
	return good
}

// recall gives blocks of s, which are in the pool and empty, their contents. Its result is how many of their tokens are stale.
func (b *Batch) recall(s *Sequence, from int, good []bool) (stale int) {
	for k, is := range good {
		i := from + k
		b.pool.name(s.blocks[i], b.hash(s, i))
		if !is {
			b.pool.blocks[s.blocks[i]].epoch = -1 // no weights have it
			stale += b.cfg.BlockTokens
		}
	}
	return stale
}
