// Package fair orders requests that wait for the same slots. Each of three levels divides what the level above it gives:
//
//  1. The source that was served the least goes first: the clients that come directly, or an operator of front doors.
//  2. Within a source a higher priority goes first, but waiting for [control.Aging] is worth one step.
//  3. Within a priority the client that was served the least goes first.
//
// A client's own requests go by when they are due, then by ticket. Who returns from a pause starts level with the
// least-served that waits. (Virtual token counters: Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024.)
package fair

import (
	"cmp"
	"time"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/heap"
)

// Priorities are clamped to this range: clients must not grow the memory.
const (
	lowest  = -8
	highest = 8
)

// Client identifies a client by hashes. A Source of 0: it comes directly.
type Client struct{ Source, Name uint64 }

// Item is a request. Its owner does not change it while it waits.
type Item struct {
	Client   Client
	Priority int
	Arrived  time.Time
	Due      time.Time // zero: after all others
	Ticket   uint64
	Of       any

	at   *node // nil: it does not wait
	slot int
}

// Queue is guarded by its owner's mutex. The zero value is empty.
type Queue struct {
	root  node
	count int
}

// node is the whole, a source in it, a priority of that source, or a client in that priority.
type node struct {
	parent   *node // nil: the whole
	priority bool
	counter  float64 // what it was served
	running  int     // requests that are charged and not settled
	slot     int
	items    heap.Of[*Item]
	children map[uint64]*node // by source, priority or name
	waiting  heap.Of[*node]   // the children with items
	// floor is the counter of the child served last: the least counter of a new one when no other waits.
	floor float64
	// most is the number of children at which to sweep.
	most int
}

// Clamp returns a priority within the bounds.
func Clamp(priority int) int { return min(max(priority, lowest), highest) }

func (q *Queue) client(c Client, priority int) *node {
	band := q.root.child(c.Source).child(uint64(Clamp(priority)))
	band.priority = true
	return band.child(c.Name)
}

// child raises the counter of a child without items to the next child's.
func (n *node) child(key uint64) *node {
	c := n.children[key]
	if c == nil {
		n.sweep()
		if n.children == nil {
			n.children = make(map[uint64]*node)
		}
		c = &node{parent: n}
		n.children[key] = c
	}
	if c.slot == 0 {
		least := n.floor
		if n.waiting.Len() > 0 {
			least = n.waiting.First().counter
		}
		c.counter = max(c.counter, least)
	}
	return c
}

// A sweep drops idle children whose counter is at or below the floor, and all if there are mostIdle.
const (
	manyIdle = 1 << 10
	mostIdle = 1 << 14
)

func (n *node) sweep() {
	if len(n.children) < max(n.most, manyIdle) {
		return
	}
	many := len(n.children)-n.waiting.Len() >= mostIdle
	for key, c := range n.children {
		if c.slot == 0 && c.running == 0 && (c.counter <= n.floor || many) {
			delete(n.children, key)
		}
	}
	n.most = 2 * len(n.children)
}

// fix restores the positions of a client and its parents.
func (n *node) fix() {
	for ; n.parent != nil; n = n.parent {
		if n.items.Len()+n.waiting.Len() > 0 {
			n.parent.waiting.Put(n)
		} else {
			n.parent.waiting.Remove(n)
		}
	}
}

// charge adds a cost for more running requests.
func (n *node) charge(cost float64, more int) {
	for at := n; at.parent != nil; at = at.parent {
		if cost > 0 && more >= 0 {
			at.parent.floor = max(at.parent.floor, at.counter)
		}
		at.counter += cost
		at.running += more
	}
	n.fix()
}

// Charge charges the expected cost of a request that gets a slot.
func (q *Queue) Charge(c Client, priority int, cost float64) { q.client(c, priority).charge(cost, 1) }

// Settle ends a charged request, whose cost was so much more than charged.
func (q *Queue) Settle(c Client, priority int, more float64) {
	q.root.children[c.Source].children[uint64(Clamp(priority))].children[c.Name].charge(more, -1)
}

// Elsewhere charges a client for requests in other queues for the same slots; a negative cost corrects that.
func (q *Queue) Elsewhere(c Client, priority int, cost float64) {
	q.client(c, priority).charge(cost, 0)
}

// Put adds an item, which must not wait yet, and clamps its priority.
func (q *Queue) Put(i *Item) {
	i.Priority = Clamp(i.Priority)
	i.at = q.client(i.Client, i.Priority)
	i.at.items.Put(i)
	i.at.fix()
	q.count++
}

// Remove removes an item; false: it does not wait.
func (q *Queue) Remove(i *Item) bool {
	if i.at == nil {
		return false
	}
	i.at.items.Remove(i)
	i.at.fix()
	i.at = nil
	q.count--
	return true
}

// Len returns the number of items.
func (q *Queue) Len() int { return q.count }

// First returns the item whose turn it is; nil: none waits.
func (q *Queue) First() *Item {
	if q.count == 0 {
		return nil
	}
	return q.root.first()
}

func (n *node) first() *Item {
	for n.items.Len() == 0 {
		n = n.waiting.First()
	}
	return n.items.First()
}

// FirstOf returns the next item for which may returns true; nil: none. It checks only the first item of each client unless
// they differ. In each priority, the items for which below, if not nil, returns true go first.
func (q *Queue) FirstOf(may, below func(*Item) bool, differ bool) *Item {
	return q.root.firstOf(may, below, differ)
}

func (n *node) firstOf(may, below func(*Item) bool, differ bool) (first *Item) {
	if n.priority && below != nil {
		if i := n.first(); below(i) && may(i) {
			return i
		}
		both := func(i *Item) bool { return below(i) && may(i) }
		return cmp.Or(n.firstOf(both, nil, differ), n.firstOf(may, nil, differ))
	}
	items := n.items.All()
	if !differ {
		items = items[:min(len(items), 1)]
	}
	for _, i := range items {
		if may(i) && (first == nil || i.Before(first)) {
			first = i
		}
	}
	var of *node
	for _, c := range n.waiting.All() {
		if i := c.firstOf(may, below, differ); i != nil && (first == nil || c.precedes(of, i, first)) {
			first, of = i, c
		}
	}
	return first
}

// Last returns a late item of the lowest priority, if that is below a priority; nil: none.
func (q *Queue) Last(below int) (last *Item) {
	for _, source := range q.root.waiting.All() {
		for _, n := range source.waiting.All() {
			if i := n.waiting.Last().items.Last(); i.Priority < below {
				last, below = i, i.Priority
			}
		}
	}
	return last
}

func (i *Item) Before(other *Item) bool {
	if !i.Due.Equal(other.Due) {
		return !i.Due.IsZero() && (other.Due.IsZero() || i.Due.Before(other.Due))
	}
	return i.Ticket < other.Ticket
}

func (i *Item) Slot() *int { return &i.slot }

func (n *node) Before(other *node) bool { return n.precedes(other, n.first(), other.first()) }

// precedes orders priorities by the wait of their first items, others by what they were served.
func (n *node) precedes(other *node, i, o *Item) bool {
	switch x, y := i.since(), o.since(); {
	case n.priority && !x.Equal(y):
		return x.Before(y)
	case n.priority:
		return i.Priority > o.Priority
	case n.counter != other.counter:
		return n.counter < other.counter
	}
	return i.Ticket < o.Ticket
}

func (i *Item) since() time.Time { return i.Arrived.Add(-control.Aging * time.Duration(i.Priority)) }

func (n *node) Slot() *int { return &n.slot }

// MostGivesWay is the most that [GivesWayAfter] returns.
const MostGivesWay = 10 * time.Second

// GivesWayAfter is how long a request of a client below its share waits before another client's stream gives up its slot,
// which took begins to begin. So beginning again costs a fifth of the time.
func GivesWayAfter(begins time.Duration) time.Duration {
	return min(max(4*begins, time.Second), MostGivesWay)
}

// Shares divides slots equally between the clients with requests. A client that has its share gets no further slot while
// one below its share waits. A mutex of its owner guards it.
type Shares[C comparable] struct{ clients map[C]shared }

type shared struct{ waiting, slots int }

// Add adds to a client's waiting requests, and to the slots of its running ones.
func (s *Shares[C]) Add(client C, waiting, slots int) {
	c := s.clients[client]
	if c.waiting, c.slots = c.waiting+waiting, c.slots+slots; c == (shared{}) {
		delete(s.clients, client)
		return
	}
	if s.clients == nil {
		s.clients = make(map[C]shared)
	}
	s.clients[client] = c
}

// Share returns a share of all slots, rounded up.
func (s *Shares[C]) Share(slots int) int {
	n := max(len(s.clients), 1)
	return (slots + n - 1) / n
}

// Slots returns the number of slots that a client has.
func (s *Shares[C]) Slots(client C) int { return s.clients[client].slots }

// Clients returns the number of clients.
func (s *Shares[C]) Clients() int { return len(s.clients) }
