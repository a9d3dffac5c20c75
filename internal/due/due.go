// Package due is a timer queue for one goroutine: it orders things by the time at which they must be looked at, even
// if no event occurs. A thing is in a queue at most once; its time may change.
package due

import (
	"time"

	"github.com/rouse-dev/rouse/internal/heap"
)

// Queue orders things by their times. The zero value is empty.
type Queue[T any] struct{ items heap.Of[*Item[T]] }

// Item is the place of one thing in a queue. The zero value is in no queue.
type Item[T any] struct {
	thing T
	at    time.Time
	slot  int
}

// At returns when the thing is due; zero: it is in no queue.
func (i *Item[T]) At() time.Time { return i.at }

// Before implements [heap.Item].
func (i *Item[T]) Before(other *Item[T]) bool { return i.at.Before(other.at) }

// Slot implements [heap.Item].
func (i *Item[T]) Slot() *int { return &i.slot }

// Set sets the due time of a thing, whose place is i. A zero time removes it.
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

// First returns when the first thing is due; zero: the queue is empty.
func (q *Queue[T]) First() time.Time {
	if q.items.Len() == 0 {
		return time.Time{}
	}
	return q.items.First().at
}

// Pop removes and returns the first thing that is due at now, and reports whether there is one.
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
