// Package hold keeps requests while no instance can take them. A [Queue] holds those of one
// function. It is bounded by the number of requests and by the memory of their bodies. The
// order of requests:
//
//   - A higher priority goes first, but waiting counts too: [Aging] is worth one step.
//   - Within a priority the client goes first that has been served the least: [Queue.Charge] counts
//     what each request costs, [Queue.Settle] corrects it once that is known. Who comes back from
//     a pause begins where the least of the others is.
//   - Of one client's entries the one with the nearest deadline goes first, then the one that came first.
//
// One client may fill the queue while no other has entries. In a full queue entries of a priority below 0 go
// for those above. Else each client with entries has an equal share: an entry
// within its client's share is let in, and displaces the newest entry of the client that has the most.
//
// A Queue does not decide when a request may go, reads no clock (the caller passes now) and
// starts nothing.
//
// The life of one entry:
//
//  1. [Queue.Enter] takes it in, or refuses it at once: the queue is full, or the entry's
//     deadline is nearer than the expected wake. Enter also returns the entries that it
//     displaced, which the caller refuses.
//  2. The entry's own goroutine blocks in [Entry.Wait] and does nothing else meanwhile, so
//     that a hand-over never waits for a slow client.
//  3. The owner of a free slot, or of a refusal, takes the entry from the front with
//     [Queue.Next], or with [Queue.First] and [Queue.Leave], and hands over with [Entry.Offer].
//     The hand-over is an unbuffered send: it happens while the other side waits, or not at
//     all. A request whose client left is therefore never counted as served.
//  4. A request that an instance gave back returns with [Queue.PutBack] to its former place,
//     before all that came later.
//  5. The context of an entry ends when its client leaves. Its goroutine then calls
//     [Queue.Leave], which frees its place.
//
// A Queue is not safe for concurrent use: one mutex of its owner guards it.
// [Entry.Wait] and [Entry.Offer] are called without that mutex.
package hold

import (
	"container/list"
	"context"
	"time"

	"github.com/rouse-dev/rouse/activator/route"
	"github.com/rouse-dev/rouse/api"
)

// Priorities are clamped to this range, so that clients can't make the queue keep ever more lists.
const (
	MinPriority = -8
	MaxPriority = 8
)

// Aging is how much longer an entry has to have waited to go before one whose
// priority is a step higher.
const Aging = 10 * time.Second

// Entry is one request's place. Its fields are set before [Queue.Enter] and not changed while it waits.
type Entry[T any] struct {
	// Priority orders entries; higher goes first.
	Priority int
	// Client is the one that shares the queue with others.
	Client string
	// Bytes and Tokens are the size of the request.
	Bytes  api.Bytes
	Tokens api.Tokens
	// Cost is what the request is expected to cost; the queue does not look at it.
	Cost float64
	// Deadline is when the entry gives up; zero: never.
	Deadline time.Time
	// Due is when the entry should be served, for the order among those of its client; zero: when it gives up.
	Due time.Time
	// Ticket is the entry's place within its priority, from [Queue.Ticket]; zero: [Queue.Enter] draws one.
	Ticket uint64
	// Shared says that another function may take the request too; the queue only counts these.
	Shared bool
	// Want selects the instances that the request may go to; the queue only looks whether it excludes any.
	Want route.Want

	arrived time.Time
	lane    *lane[T]      // nil: it is not in
	slot    int           // in the lane's entries, from 1
	byAge   *list.Element // in the queue's all
	gone    <-chan struct{}
	// handed carries the outcome. Sender: the one that took the entry out of the queue; never closed;
	// unbuffered, so that a value is handed over only where it is received.
	handed chan T
}

// Until sets when the waiter gives up: when ctx ends. It is called before each [Queue.Enter] and [Queue.PutBack].
func (e *Entry[T]) Until(ctx context.Context) {
	e.gone = ctx.Done()
	if e.handed == nil {
		e.handed = make(chan T)
	}
}

// Wait blocks until something is handed over or the entry's context ends, and
// says which. After false the caller must call [Queue.Leave].
func (e *Entry[T]) Wait() (handed T, ok bool) {
	select {
	case v := <-e.handed:
		return v, true
	case <-e.gone:
		return handed, false
	}
}

// Offer hands v over to the waiter of an entry that is not in the queue any
// more. It returns false if the waiter left; v then still belongs to the caller.
// It blocks no longer than the waiter's goroutine needs to run.
func (e *Entry[T]) Offer(v T) bool {
	select {
	case e.handed <- v:
		return true
	case <-e.gone:
		return false
	}
}

// Arrived is when the entry first came into a queue; zero before that.
func (e *Entry[T]) Arrived() time.Time { return e.arrived }

// Queue is the requests that wait for one function. The zero value refuses all: see [Queue.Limit].
type Queue[T any] struct {
	limits api.Hold
	bands  [MaxPriority - MinPriority + 1]band[T] // by priority
	all    list.List                              // by ticket
	count  int
	bytes  api.Bytes
	tokens api.Tokens
	shared int
	picky  int
	pace   pace
	// tickets is the last one drawn.
	tickets uint64
	clients map[string]*client // those with entries
}

// client is what one client has in the queue.
type client struct {
	count int
	bytes api.Bytes
}

// Limit sets the bounds. Entries that are in stay in.
func (q *Queue[T]) Limit(h api.Hold) { q.limits = h }

// Full is why an entry can't come in.
type Full string

// Why a queue refuses.
const (
	FullCount    Full = "count"    // as many requests wait as may
	FullBytes    Full = "bytes"    // their bodies take as much memory as they may
	FullDeadline Full = "deadline" // the entry's deadline is nearer than the expected wake
)

// Enter takes e in, or returns why it can't. out are the entries that it displaces: they
// are not in any more, and the caller refuses them. expected is how long it takes
// until the first instance can take requests; 0 means now or unknown.
func (q *Queue[T]) Enter(e *Entry[T], now time.Time, expected time.Duration) (out []*Entry[T], why Full, ok bool) {
	if expected > 0 && !e.Deadline.IsZero() && now.Add(expected).After(e.Deadline) {
		return nil, FullDeadline, false
	}
	for full := q.full(e); full != ""; full = q.full(e) {
		v := q.sheddable(e)
		if v == nil && q.withinShare(e) {
			v = q.newestOfMost(full)
		}
		if v == nil { // it is too large though they went
			for _, v := range out {
				q.insert(v)
			}
			return nil, full, false
		}
		q.remove(v)
		out = append(out, v)
	}
	if e.Ticket == 0 {
		e.Ticket = q.Ticket()
	}
	e.arrived = now
	q.insert(e)
	return out, "", true
}

// full says why e does not fit in; empty: it does.
func (q *Queue[T]) full(e *Entry[T]) Full {
	switch {
	case q.count >= q.limits.Capacity:
		return FullCount
	case q.bytes+e.Bytes > q.limits.MaxBytes:
		return FullBytes
	}
	return ""
}

// withinShare says whether e's client would have no more than an equal share with e.
// Then another has more than that, as long as the queue is too full for e.
func (q *Queue[T]) withinShare(e *Entry[T]) bool {
	c, clients := q.clients[e.Client], len(q.clients)
	if c == nil {
		c = &client{}
		clients++
	}
	return (c.count+1)*clients <= q.limits.Capacity && (c.bytes+e.Bytes)*api.Bytes(clients) <= q.limits.MaxBytes
}

// sheddable is the entry that goes where there is no room for e: of the lowest priority that is below 0 and below e's, one
// that would go late. Nil: there is none.
func (q *Queue[T]) sheddable(e *Entry[T]) *Entry[T] {
	for i := range min(clamp(e.Priority), -MinPriority) {
		if last := q.bands[i].last(); last != nil {
			return last
		}
	}
	return nil
}

// newestOfMost is the entry that came last of the clients that have the most of what the queue is full of.
func (q *Queue[T]) newestOfMost(why Full) *Entry[T] {
	has := func(c *client) int64 {
		if why == FullCount {
			return int64(c.count)
		}
		return int64(c.bytes)
	}
	var most int64
	for _, c := range q.clients {
		most = max(most, has(c))
	}
	at := q.all.Back()
	for has(q.clients[entry[T](at).Client]) < most {
		at = at.Prev()
	}
	return entry[T](at)
}

// Ticket draws the next place. A request that is served without waiting draws
// one too: should it come back, it stands before all that came later.
func (q *Queue[T]) Ticket() uint64 {
	q.tickets++
	return q.tickets
}

// PutBack takes in an entry that has been with an instance, at the place of its
// ticket. It ignores the bounds: the request was accepted before.
func (q *Queue[T]) PutBack(e *Entry[T], now time.Time) {
	if e.arrived.IsZero() { // it was served without waiting
		e.arrived = now
	}
	q.insert(e)
}

// entry is what an element of a list has; nil for nil.
func entry[T any](at *list.Element) *Entry[T] {
	if at == nil {
		return nil
	}
	return at.Value.(*Entry[T])
}

// clamp is the index of a priority's band.
func clamp(priority int) int { return min(max(priority, MinPriority), MaxPriority) - MinPriority }

func (q *Queue[T]) band(priority int) *band[T] { return &q.bands[clamp(priority)] }

// put inserts e among all by its ticket. A new entry belongs near the back, and one that returns near the front: both are quick.
func (q *Queue[T]) put(e *Entry[T]) *list.Element {
	if b := entry[T](q.all.Back()); b == nil || b.Ticket < e.Ticket {
		return q.all.PushBack(e)
	}
	at := q.all.Front()
	for entry[T](at).Ticket < e.Ticket {
		at = at.Next()
	}
	return q.all.InsertBefore(e, at)
}

// insert puts e into its list and among all.
func (q *Queue[T]) insert(e *Entry[T]) {
	q.band(e.Priority).insert(e)
	e.byAge = q.put(e)
	q.count++
	q.bytes += e.Bytes
	q.tokens += e.Tokens
	if e.Shared {
		q.shared++
	}
	if e.Want.Only != nil {
		q.picky++
	}
	if q.clients == nil {
		q.clients = make(map[string]*client)
	}
	c := q.clients[e.Client]
	if c == nil {
		c = &client{}
		q.clients[e.Client] = c
	}
	c.count++
	c.bytes += e.Bytes
}

// Next takes out the entry whose turn it is, nil if none waits.
func (q *Queue[T]) Next() *Entry[T] {
	e := q.First()
	if e != nil {
		q.remove(e)
	}
	return e
}

// First is the entry whose turn it is, nil if none waits. It stays in: [Queue.Leave] takes it out.
func (q *Queue[T]) First() *Entry[T] { return q.earliest((*band[T]).first) }

// earliest is, of the first entries of all priorities, the one that has waited the longest for its priority.
func (q *Queue[T]) earliest(of func(*band[T]) *Entry[T]) *Entry[T] {
	var first *Entry[T]
	var since time.Time // when it would have come, were its priority 0
	for i := len(q.bands) - 1; i >= 0; i-- {
		e := of(&q.bands[i])
		if e == nil {
			continue
		}
		if came := e.arrived.Add(-Aging * time.Duration(i+MinPriority)); first == nil || came.Before(since) {
			first, since = e, came
		}
	}
	return first
}

// FirstOf is [Queue.First] of some entries only. Where no entry is picky, may must say the same of all of a client's.
func (q *Queue[T]) FirstOf(may func(*Entry[T]) bool) *Entry[T] {
	return q.earliest(func(b *band[T]) *Entry[T] { return b.firstOf(may, q.picky > 0) })
}

// Leave takes e out; it returns false if e was not in.
func (q *Queue[T]) Leave(e *Entry[T]) bool {
	if e.lane == nil {
		return false
	}
	q.remove(e)
	return true
}

func (q *Queue[T]) remove(e *Entry[T]) {
	q.band(e.Priority).remove(e)
	q.all.Remove(e.byAge)
	e.byAge = nil
	q.count--
	q.bytes -= e.Bytes
	q.tokens -= e.Tokens
	if e.Shared {
		q.shared--
	}
	if e.Want.Only != nil {
		q.picky--
	}
	c := q.clients[e.Client]
	c.bytes -= e.Bytes
	if c.count--; c.count == 0 {
		delete(q.clients, e.Client)
	}
}

// Len is the number of entries.
func (q *Queue[T]) Len() int { return q.count }

// Clients is how many entries each client has.
func (q *Queue[T]) Clients() map[string]int {
	all := make(map[string]int, len(q.clients))
	for name, c := range q.clients {
		all[name] = c.count
	}
	return all
}

// Bytes is the memory of their bodies.
func (q *Queue[T]) Bytes() api.Bytes { return q.bytes }

// Shared is the number of entries that other functions may take.
func (q *Queue[T]) Shared() int { return q.shared }

// Picky is the number of entries that may go to some instances only.
func (q *Queue[T]) Picky() int { return q.picky }

// Tokens is their estimated size.
func (q *Queue[T]) Tokens() api.Tokens { return q.tokens }

// Oldest is how long the entry that came first has waited; 0 if none waits.
func (q *Queue[T]) Oldest(now time.Time) time.Duration {
	if q.count == 0 {
		return 0
	}
	return now.Sub(entry[T](q.all.Front()).arrived)
}
