package queue

import (
	"time"

	"github.com/rouse-dev/rouse/internal/heap"
)

// band holds the requests of one priority, by client. A client's counter is the total cost of its requests; the
// client with the lowest counter is next. (Virtual token counters: Sheng et al., "Fairness in Serving Large Language
// Models", OSDI 2024.)
type band struct {
	lanes   map[string]*lane
	waiting heap.Of[*lane] // lanes with entries
	// floor is the counter of the client served last: the least counter of a new client when no other waits.
	floor float64
	// most is the number of lanes at which the next sweep happens.
	most int
}

// lane is one client's state in a band.
type lane struct {
	client  string
	counter float64
	entries heap.Of[*entry]
	running int // requests that are charged and not settled
	slot    int // the index in the band's waiting, from 1; 0: no entries
}

// Charge is the charge for a served request. The zero value charges nothing.
type charge struct {
	lane *lane
	in   *band
	cost float64
}

// lane returns the client's lane. If the client has no waiting requests, its counter is raised to the next client's: a
// pause earns no credit, and a client that has used more keeps its higher counter.
func (b *band) lane(client string) *lane {
	l := b.lanes[client]
	if l == nil {
		b.sweep()
		if b.lanes == nil {
			b.lanes = make(map[string]*lane)
		}
		l = &lane{client: client}
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

// Clients without a request are remembered, up to mostIdle. A sweep drops those whose counter is at or below the
// floor, and all of them if there are too many.
const (
	manyIdle = 1 << 10
	mostIdle = 1 << 14
)

// sweep forgets idle clients, once the number of clients has doubled since the last sweep.
func (b *band) sweep() {
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

func (b *band) insert(e *entry) {
	l := b.lane(e.Client)
	e.lane = l
	l.entries.Put(e)
	b.reorder(l)
}

func (b *band) remove(e *entry) {
	l := e.lane
	l.entries.Remove(e)
	e.lane = nil
	b.reorder(l)
}

// reorder restores a lane's position after its counter or entries have changed.
func (b *band) reorder(l *lane) {
	if l.entries.Len() > 0 {
		b.waiting.Put(l)
		return
	}
	b.waiting.Remove(l)
}

// first returns the entry whose turn it is, or nil.
func (b *band) first() *entry {
	if b.waiting.Len() == 0 {
		return nil
	}
	return b.waiting.First().entries.First()
}

// firstOf returns the next entry for which may returns true, or nil. It checks each waiting client, and each of its
// entries if differ is true.
func (b *band) firstOf(may func(*entry) bool, differ bool) *entry {
	of := func(l *lane) (*entry, bool) {
		if differ {
			return l.entries.FirstOf(may)
		}
		e := l.entries.First()
		return e, may(e)
	}
	l, found := b.waiting.FirstOf(func(l *lane) bool { _, found := of(l); return found })
	if !found {
		return nil
	}
	e, _ := of(l)
	return e
}

// last returns an entry from the end of the heaps, whose turn is late but not always last; nil: none.
func (b *band) last() *entry {
	if b.waiting.Len() == 0 {
		return nil
	}
	return b.waiting.Last().entries.Last()
}

// Charge charges a client the expected cost of a request that is sent to an instance, whether or not it has waited.
func (q *waitQueue) Charge(client string, priority int, cost float64) charge {
	b := q.band(priority)
	l := b.lane(client)
	b.floor = max(b.floor, l.counter)
	l.counter += cost
	l.running++
	b.reorder(l)
	return charge{l, b, cost}
}

// Settle replaces a charge's estimate with the actual cost: 0 if an instance gave the request back. Call it once.
func (q *waitQueue) Settle(c charge, cost float64) {
	if c.lane == nil {
		return
	}
	c.lane.running--
	c.lane.counter += cost - c.cost
	c.in.reorder(c.lane)
}

// Elsewhere charges a client for requests in other queues for the same slots; negative corrects an estimate that was
// too high.
func (q *waitQueue) Elsewhere(client string, priority int, cost float64) {
	b := q.band(priority)
	l := b.lane(client)
	if cost > 0 {
		b.floor = max(b.floor, l.counter)
	}
	l.counter += cost
	b.reorder(l)
}

// Before implements [heap.Item]: the earliest deadline first, then the lowest ticket.
func (e *entry) Before(other *entry) bool {
	if de, do := e.due(), other.due(); !de.Equal(do) {
		return !de.IsZero() && (do.IsZero() || de.Before(do))
	}
	return e.Ticket < other.Ticket
}

// Slot implements [heap.Item].
func (e *entry) Slot() *int { return &e.slot }

func (e *entry) due() time.Time {
	if e.Due.IsZero() || !e.Deadline.IsZero() && e.Deadline.Before(e.Due) {
		return e.Deadline
	}
	return e.Due
}

// Before implements [heap.Item]: the lowest counter first, then the lane whose first entry came first.
func (l *lane) Before(other *lane) bool {
	if l.counter != other.counter {
		return l.counter < other.counter
	}
	return l.entries.First().Ticket < other.entries.First().Ticket
}

// Slot implements [heap.Item].
func (l *lane) Slot() *int { return &l.slot }
