// Package heap is a priority queue of items that know their position in it, so they can be moved or removed. It is for one
// goroutine.
package heap

import "container/heap"

// Item is an item of a heap.
type Item[T any] interface {
	Before(T) bool
	// Slot points to the position, from 1; 0: in no heap. Only the heap writes it.
	Slot() *int
}

// Of is a heap. The zero value is empty.
type Of[T Item[T]] struct{ items items[T] }

// Len returns the number of items.
func (h *Of[T]) Len() int { return len(h.items) }

// First returns the first item. The heap must not be empty.
func (h *Of[T]) First() T { return h.items[0] }

// All returns the items, the first one first. The slice must not be changed.
func (h *Of[T]) All() []T { return h.items }

// Last returns an item far behind the first. The heap must not be empty.
func (h *Of[T]) Last() T { return h.items[len(h.items)-1] }

// Put adds an item, or updates its position.
func (h *Of[T]) Put(x T) {
	if slot := *x.Slot(); slot > 0 {
		heap.Fix(&h.items, slot-1)
		return
	}
	heap.Push(&h.items, x)
}

// Remove removes an item, if present.
func (h *Of[T]) Remove(x T) {
	if slot := *x.Slot(); slot > 0 {
		heap.Remove(&h.items, slot-1)
	}
}

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
