package hold

import (
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/heap"
)

// OutputWeight is what a token of output is worth in tokens of input: it takes a step of the model of its own.
const OutputWeight = 2

// Cost is what a request costs its client, in tokens of input.
func Cost(input, output api.Tokens) float64 { return float64(input) + OutputWeight*float64(output) }

// band is the requests of one priority, by client. A client's counter is the sum of what its requests have
// cost; who has the least is next. (Virtual token counters: Sheng et al., "Fairness in Serving Large
// Language Models", OSDI 2024.)
type band[T any] struct {
	lanes   map[string]*lane[T]
	waiting heap.Of[*lane[T]] // those with entries
	// floor is the counter of the client that was served last: where one begins that nobody waits beside.
	floor float64
	// most is how many clients are remembered before the next sweep.
	most int
}

// lane is what one client has in a band.
type lane[T any] struct {
	client  string
	counter float64
	entries heap.Of[*Entry[T]]
	running int // requests that are charged and not settled
	slot    int // in the band's waiting, from 1; 0: it has no entries
}

// Charge is what a request that was served is charged. The zero value is nothing.
type Charge[T any] struct {
	lane *lane[T]
	in   *band[T]
	cost float64
}

// lane is the client's. One of which nothing waited begins no further behind than the one that is next: who was
// away has saved nothing, and who was ahead stays ahead.
func (b *band[T]) lane(client string) *lane[T] {
	l := b.lanes[client]
	if l == nil {
		b.sweep()
		if b.lanes == nil {
			b.lanes = make(map[string]*lane[T])
		}
		l = &lane[T]{client: client}
		b.lanes[client] = l
	}
	if l.slot == 0 {
		least := b.floor
		if b.waiting.Len() > 0 {
			least = b.waiting.First().counter
		}
		l.counter = max(l.counter, least)
	}
	return l
}

// Clients without a request are remembered, but no more than mostIdle: those are forgotten who would not be ahead if they
// came back, and where there are too many of the others, all.
const (
	manyIdle = 1 << 10
	mostIdle = 1 << 14
)

// sweep forgets clients, once their number has doubled since the last time.
func (b *band[T]) sweep() {
	if len(b.lanes) < max(b.most, manyIdle) {
		return
	}
	many := len(b.lanes)-b.waiting.Len() >= mostIdle
	for client, l := range b.lanes {
		if l.slot == 0 && l.running == 0 && (l.counter <= b.floor || many) {
			delete(b.lanes, client)
		}
	}
	b.most = 2 * len(b.lanes)
}

// insert puts an entry into its client's lane.
func (b *band[T]) insert(e *Entry[T]) {
	l := b.lane(e.Client)
	e.lane = l
	l.entries.Put(e)
	b.reorder(l)
}

// remove takes an entry out of its lane.
func (b *band[T]) remove(e *Entry[T]) {
	l := e.lane
	l.entries.Remove(e)
	e.lane = nil
	b.reorder(l)
}

// reorder puts a lane where it belongs, after its counter or its entries have changed.
func (b *band[T]) reorder(l *lane[T]) {
	if l.entries.Len() > 0 {
		b.waiting.Put(l)
		return
	}
	b.waiting.Remove(l)
}

// first is the entry whose turn it is, nil if there is none.
func (b *band[T]) first() *Entry[T] {
	if b.waiting.Len() == 0 {
		return nil
	}
	return b.waiting.First().entries.First()
}

// firstOf is, of those entries that may, the one whose turn it is, nil if there is none. It looks at each client that waits, and at each of its entries
// where they differ.
func (b *band[T]) firstOf(may func(*Entry[T]) bool, differ bool) *Entry[T] {
	of := func(l *lane[T]) (*Entry[T], bool) {
		if differ {
			return l.entries.FirstOf(may)
		}
		e := l.entries.First()
		return e, may(e)
	}
	l, found := b.waiting.FirstOf(func(l *lane[T]) bool { _, found := of(l); return found })
	if !found {
		return nil
	}
	e, _ := of(l)
	return e
}

// last is an entry whose turn is far away: the end of a heap is no root. Nil: there is none.
func (b *band[T]) last() *Entry[T] {
	if b.waiting.Len() == 0 {
		return nil
	}
	return b.waiting.Last().entries.Last()
}

// Charge charges a client what a request of it is expected to cost, when it is sent to an instance. Whether
// it has waited makes no difference.
func (q *Queue[T]) Charge(client string, priority int, cost float64) Charge[T] {
	b := q.band(priority)
	l := b.lane(client)
	b.floor = max(b.floor, l.counter)
	l.counter += cost
	l.running++
	b.reorder(l)
	return Charge[T]{l, b, cost}
}

// Settle replaces the estimate of a charge by what the request has cost: 0 where an instance gave it back. It is called once.
func (q *Queue[T]) Settle(c Charge[T], cost float64) {
	if c.lane == nil {
		return
	}
	c.lane.running--
	c.lane.counter += cost - c.cost
	c.in.reorder(c.lane)
}

// Elsewhere takes what requests of a client have cost in other queues for the same slots; negative where an estimate was too high.
func (q *Queue[T]) Elsewhere(client string, priority int, cost float64) {
	b := q.band(priority)
	l := b.lane(client)
	if cost > 0 {
		b.floor = max(b.floor, l.counter)
	}
	l.counter += cost
	b.reorder(l)
}

// Before implements [heap.Item]: the nearest deadline first, then the lowest ticket.
func (e *Entry[T]) Before(other *Entry[T]) bool {
	if de, do := e.due(), other.due(); !de.Equal(do) {
		return !de.IsZero() && (do.IsZero() || de.Before(do))
	}
	return e.Ticket < other.Ticket
}

// Slot implements [heap.Item].
func (e *Entry[T]) Slot() *int { return &e.slot }

func (e *Entry[T]) due() time.Time {
	if e.Due.IsZero() || !e.Deadline.IsZero() && e.Deadline.Before(e.Due) {
		return e.Deadline
	}
	return e.Due
}

// Before implements [heap.Item]: the lowest counter first, then whose first entry came first.
func (l *lane[T]) Before(other *lane[T]) bool {
	if l.counter != other.counter {
		return l.counter < other.counter
	}
	return l.entries.First().Ticket < other.entries.First().Ticket
}

// Slot implements [heap.Item].
func (l *lane[T]) Slot() *int { return &l.slot }
