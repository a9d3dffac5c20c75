// Package due keeps things in the order of the times at which they are due: what has to be inspected when its time comes,
// though nothing happens to it. A thing is in a queue once at most; its time may be changed. It is for one goroutine.
package due

import (
	"time"

	"github.com/rouse-dev/rouse/internal/heap"
)

// Queue orders things by their times. The zero value is empty.
type Queue[T any] struct{ items heap.Of[*Item[T]] }

// Item is the place of one thing in a queue. The zero value is in none.
type Item[T any] struct {
	thing T
	at    time.Time
	slot  int
}

// At is when the thing is due, zero if it is in no queue.
func (i *Item[T]) At() time.Time { return i.at }

// Before implements [heap.Item].
func (i *Item[T]) Before(other *Item[T]) bool { return i.at.Before(other.at) }

// Slot implements [heap.Item].
func (i *Item[T]) Slot() *int { return &i.slot }

// Set has a thing, whose place is i, be due at t. Zero takes it out.
func (q *Queue[T]) Set(i *Item[T], thing T, t time.Time) {
	switch {
	case t.IsZero():
		q.remove(i)
	case i.slot == 0 || !t.Equal(i.at):
		i.thing, i.at = thing, t
		q.items.Put(i)
	}
}

func (q *Queue[T]) remove(i *Item[T]) {
	q.items.Remove(i)
	*i = Item[T]{}
}

// First is when the first thing is due, zero if there is none.
func (q *Queue[T]) First() time.Time {
	if q.items.Len() == 0 {
		return time.Time{}
	}
	return q.items.First().at
}

// Pop takes out the first thing that is due at now; false says that there is none.
func (q *Queue[T]) Pop(now time.Time) (thing T, found bool) {
	if q.items.Len() == 0 {
		return thing, false
	}
	i := q.items.First()
	if i.at.After(now) {
		return thing, false
	}
	thing = i.thing
	q.remove(i)
	return thing, true
}
