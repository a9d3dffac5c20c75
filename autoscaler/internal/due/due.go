// Package due keeps things in the order of the times at which they are due: what has to be looked at when its time comes,
// though nothing happens to it. A thing is in a queue once at most; its time may be changed. It is for one goroutine.
package due

import (
	"container/heap"
	"time"
)

// Queue orders things by their times. The zero value is empty.
type Queue[T any] struct{ items items[T] }

// Item is the place of one thing in a queue. The zero value is in none.
type Item[T any] struct {
	thing T
	at    time.Time
	slot  int // from 1
}

// At is when the thing is due, zero if it is in no queue.
func (i *Item[T]) At() time.Time { return i.at }

// Set has a thing, whose place is i, be due at t. Zero takes it out.
func (q *Queue[T]) Set(i *Item[T], thing T, t time.Time) {
	switch {
	case i.slot == 0 && t.IsZero():
	case i.slot == 0:
		i.thing, i.at = thing, t
		heap.Push(&q.items, i)
	case t.IsZero():
		heap.Remove(&q.items, i.slot-1)
	case !t.Equal(i.at):
		i.at = t
		heap.Fix(&q.items, i.slot-1)
	}
}

// First is when the first thing is due, zero if there is none.
func (q *Queue[T]) First() time.Time {
	if len(q.items) == 0 {
		return time.Time{}
	}
	return q.items[0].at
}

// Pop takes out the first thing that is due at now; false says that there is none.
func (q *Queue[T]) Pop(now time.Time) (thing T, found bool) {
	if len(q.items) == 0 || q.items[0].at.After(now) {
		return thing, false
	}
	thing = q.items[0].thing
	heap.Pop(&q.items)
	return thing, true
}

// items is a [heap.Interface].
type items[T any] []*Item[T]

func (s items[T]) Len() int           { return len(s) }
func (s items[T]) Less(a, b int) bool { return s[a].at.Before(s[b].at) }
func (s items[T]) Swap(a, b int) {
	s[a], s[b] = s[b], s[a]
	s[a].slot, s[b].slot = a+1, b+1
}

func (s *items[T]) Push(x any) {
	i := x.(*Item[T])
	*s = append(*s, i)
	i.slot = len(*s)
}

func (s *items[T]) Pop() any {
	last := len(*s) - 1
	i := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	*i = Item[T]{}
	return i
}
