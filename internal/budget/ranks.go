package budget

import "math/bits"

// maxRank is that of all that is a TiB or more.
const maxRank = 41

// rank is a size in powers of two.
func rank(n int64) int { return min(bits.Len64(uint64(max(n, 0))), maxRank) }

// ranks holds things by the rank of their size, in the order in which they came to
// it. The zero value is empty. Every operation takes constant time.
type ranks[T any] struct {
	lists [maxRank + 1]list[T]
	most  int // no list above it has anything
}

type list[T any] struct{ front, back *place[T] }

// place is where a thing is in [ranks].
type place[T any] struct {
	thing      *T
	rank       int
	prev, next *place[T]
	in         bool
}

// put adds a thing that is not in.
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

// remove takes out what is in.
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

// move puts a thing that is in where its new size belongs.
func (r *ranks[T]) move(t *T, p *place[T], size int64) {
	if rank(size) == p.rank {
		return
	}
	r.remove(p)
	r.put(t, p, size)
}

// top is the largest; of equals the one that has been so for the longest; nil: there is none.
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
