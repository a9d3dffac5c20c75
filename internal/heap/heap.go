// Package heap is a priority queue of things that know their place in it, so that one can be moved or taken out when it
// changes. It is for one goroutine.
package heap

import "container/heap"

// Item is a thing that can lie in a heap.
type Item[T any] interface {
	// Before says whether it comes before another.
	Before(T) bool
	// Slot is where the heap notes its place: from 1, 0 if it is in none. Only the heap writes it.
	Slot() *int
}

// Of is a heap of items. The zero value is empty.
type Of[T Item[T]] struct{ items items[T] }

// Len is how many items there are.
func (h *Of[T]) Len() int { return len(h.items) }

// First is the item that no other comes before. The heap must not be empty.
func (h *Of[T]) First() T { return h.items[0] }

// FirstOf is of some items the one that no other of them comes before; false: there is none. It looks at each item.
func (h *Of[T]) FirstOf(some func(T) bool) (first T, found bool) {
	for _, x := range h.items {
		if some(x) && (!found || x.Before(first)) {
			first, found = x, true
		}
	}
	return first, found
}

// Last is an item far behind the first. The heap must not be empty.
func (h *Of[T]) Last() T { return h.items[len(h.items)-1] }

// Put adds an item, or moves one that is there to where it belongs now.
func (h *Of[T]) Put(x T) {
	if slot := *x.Slot(); slot > 0 {
		heap.Fix(&h.items, slot-1)
		return
	}
	heap.Push(&h.items, x)
}

// Remove takes an item out, if it is there.
func (h *Of[T]) Remove(x T) {
	if slot := *x.Slot(); slot > 0 {
		heap.Remove(&h.items, slot-1)
	}
}

// items is a [heap.Interface].
type items[T Item[T]] []T

func (s items[T]) Len() int           { return len(s) }
func (s items[T]) Less(a, b int) bool { return s[a].Before(s[b]) }
func (s items[T]) Swap(a, b int) {
	s[a], s[b] = s[b], s[a]
	*s[a].Slot(), *s[b].Slot() = a+1, b+1
}

func (s *items[T]) Push(x any) {
	i := x.(T)
	*s = append(*s, i)
	*i.Slot() = len(*s)
}

func (s *items[T]) Pop() any {
	last := len(*s) - 1
	i := (*s)[last]
	var none T
	(*s)[last], *s = none, (*s)[:last]
	*i.Slot() = 0
	return i
}
