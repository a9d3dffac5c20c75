package inbound

import (
	"container/list"
	"math/bits"
)

// maxRank is the rank of sizes of a TiB or more.
const maxRank = 41

// rank returns the number of bits of a size, at most maxRank.
func rank(n int64) int { return min(bits.Len64(uint64(max(n, 0))), maxRank) }

// ranks holds items by the rank of their size, in order of arrival at that rank. The zero value is empty. Every
// operation takes constant time.
type ranks[T any] struct {
	lists [maxRank + 1]list.List
	most  int // all higher lists are empty
}

type place struct {
	rank int
	at   *list.Element // nil: in no list
}

// put adds an item that is not present.
func (r *ranks[T]) put(t *T, p *place, size int64) {
	p.rank = rank(size)
	p.at = r.lists[p.rank].PushBack(t)
	r.most = max(r.most, p.rank)
}

func (r *ranks[T]) remove(p *place) {
	r.lists[p.rank].Remove(p.at)
	p.at = nil
}

// move updates the position of a present item to a new size.
func (r *ranks[T]) move(t *T, p *place, size int64) {
	if rank(size) == p.rank {
		return
	}
	r.remove(p)
	r.put(t, p, size)
}

// top returns the item of the highest rank, and of equals the one that reached it first; nil: none.
func (r *ranks[T]) top() *T {
	for r.most > 0 && r.lists[r.most].Len() == 0 {
		r.most--
	}
	if f := r.lists[r.most].Front(); f != nil {
		return f.Value.(*T)
	}
	return nil
}
