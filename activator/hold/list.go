package hold

// list is entries in an order. Every operation but an insertion far from both ends is quick.
type list[T any] struct {
	front, back *Entry[T]
}

// neighbor is an entry's place in a list.
type neighbor[T any] struct{ prev, next *Entry[T] }

// byTurn and byAge are an entry's places in the two lists that it is in.
func byTurn[T any](e *Entry[T]) *neighbor[T] { return &e.byTurn }
func byAge[T any](e *Entry[T]) *neighbor[T]  { return &e.byAge }

// insert puts e before the first that is not before it. New entries look from the back
// and entries that return from the front, so both are near.
func (l *list[T]) insert(e *Entry[T], at func(*Entry[T]) *neighbor[T], before func(a, b *Entry[T]) bool) {
	var next *Entry[T]
	if l.back != nil && !before(l.back, e) {
		for next = l.front; before(next, e); {
			next = at(next).next
		}
	}
	prev := l.back
	if next != nil {
		prev = at(next).prev
		at(next).prev = e
	} else {
		l.back = e
	}
	if prev != nil {
		at(prev).next = e
	} else {
		l.front = e
	}
	*at(e) = neighbor[T]{prev, next}
}

// remove takes e out, which is in.
func (l *list[T]) remove(e *Entry[T], at func(*Entry[T]) *neighbor[T]) {
	n := at(e)
	if n.prev == nil {
		l.front = n.next
	} else {
		at(n.prev).next = n.next
	}
	if n.next == nil {
		l.back = n.prev
	} else {
		at(n.next).prev = n.prev
	}
	*n = neighbor[T]{}
}
