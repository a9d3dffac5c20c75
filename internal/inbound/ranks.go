package inbound

import "math/bits"

// maxRank is the rank of sizes of a TiB or more.
const maxRank = 41

// rank returns the number of bits of a size, at most maxRank.
func rank(n int64) int { return min(bits.Len64(uint64(max(n, 0))), maxRank) }

// ranks holds items by the rank of their size, in order of arrival at that rank. The zero value is empty. Every
// operation takes constant time.
type ranks[T any] struct {
	lists [maxRank + 1]rankList[T]
	most  int // all higher lists are empty
}

type rankList[T any] struct{ front, back *place[T] }

type place[T any] struct {
	thing      *T
	rank       int
	prev, next *place[T]
	in         bool
}

// put adds an item that is not present.
func (r *ranks[T]) put(t *T, p *place[T], size int64) {
	*p = place[T]{thing: t, rank: rank(size), in: true}
	r.most = max(r.most, p.rank)
	l := &r.lists[p.rank]
	if p.prev = l.back; p.prev == nil {
		l.front = p
	} else {
		p.prev.next = p
	}
	l.back = p
}

func (r *ranks[T]) remove(p *place[T]) {
	l := &r.lists[p.rank]
	if p.prev == nil {
		l.front = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		l.back = p.prev
	} else {
		p.next.prev = p.prev
	}
	*p = place[T]{}
}

// move updates the position of a present item to a new size.
func (r *ranks[T]) move(t *T, p *place[T], size int64) {
	if rank(size) == p.rank {
		return
	}
	r.remove(p)
	r.put(t, p, size)
}

// top returns the item of the highest rank, and of equals the one that reached it first; nil: none.
func (r *ranks[T]) top() *T {
	for ; r.most > 0; r.most-- {
		if f := r.lists[r.most].front; f != nil {
			return f.thing
		}
	}
	if f := r.lists[0].front; f != nil {
		return f.thing
	}
	return nil
}
