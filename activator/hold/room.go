// Package hold keeps requests while no instance can take them. A [Room] is one
// function's waiting room: bounded by the number of requests and by the memory
// of their bodies. Whose turn it is:
//
//   - The higher priority's; but who waits ages, and [Aging] outweighs one step of it.
//   - Within a priority the clients take turns: of two that have entries, each gets
//     every other, however many each has (start-time fair queueing: an entry's turn is
//     the turn that is served now, or the one after its client's last).
//   - Of one client, first come first served.
//
// One client may fill the room, as long as nobody else wants to come in. When it is
// full, each client that has entries has an equal share of it: who comes within the
// share is let in, and the newest of whoever has the most goes.
//
// It does not decide when a request may go, measures no time of its own (the
// caller passes now) and starts nothing.
//
// The life of one entry:
//
//  1. [Room.Enter] takes it in, or says at once why it can't wait: the room is
//     full, or the entry's deadline is nearer than the expected wake. It also says
//     whom it has put out, and the caller tells them.
//  2. The entry's own goroutine blocks in [Entry.Wait], and does nothing else
//     meanwhile, so that a hand-over never waits for a slow client.
//  3. Whoever has something for it (a slot, or a refusal) takes it from the
//     front with [Room.Next], or [Room.First] and [Room.Leave], and hands over with [Entry.Offer]. The hand-over is
//     an unbuffered send: it happens while the other side waits, or not at all.
//     A client who left is therefore never counted as served.
//  4. A request that an instance gave back returns with [Room.PutBack] to the
//     place it had: before all who came later.
//  5. A client who leaves ends its context; its goroutine calls [Room.Leave],
//     and its place is free.
//
// A Room is not safe for concurrent use: one mutex of its owner guards it.
// [Entry.Wait] and [Entry.Offer] are called without that mutex.
package hold

import (
	"context"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Priorities are clamped to this range, so that clients can't make the room keep ever more lines.
const (
	MinPriority = -8
	MaxPriority = 8
)

// Aging is how much longer an entry has to have waited to go before one whose
// priority is a step higher.
const Aging = 10 * time.Second

// Entry is one request's place. Its fields are set before [Room.Enter] and not changed while it waits.
type Entry[T any] struct {
	// Priority orders entries; higher goes first.
	Priority int
	// Client is who shares the room with others.
	Client string
	// Bytes and Tokens are the size of the request.
	Bytes  api.Bytes
	Tokens api.Tokens
	// Deadline is when the entry gives up; zero: never.
	Deadline time.Time
	// Ticket is the entry's place within its priority, from [Room.Ticket]; zero: [Room.Enter] draws one.
	Ticket uint64
	// Shared says that others than the function may take the request; the room only counts.
	Shared bool
	// Adapter is what the instance should have; the room does not look at it.
	Adapter api.ModelName

	arrived time.Time
	turn    uint64      // within its priority
	line    *line[T]    // nil: it is not in
	byTurn  neighbor[T] // in line
	byAge   neighbor[T] // in the room's all
	gone    <-chan struct{}
	// handed carries the outcome. Sender: whoever took the entry out of the room; never closed;
	// unbuffered, so that a value is handed over only to someone who takes it.
	handed chan T
}

// Until sets when the waiter gives up: when ctx ends. It is called before each [Room.Enter] and [Room.PutBack].
func (e *Entry[T]) Until(ctx context.Context) {
	e.gone = ctx.Done()
	if e.handed == nil {
		e.handed = make(chan T)
	}
}

// Wait blocks until something is handed over or the entry's context ends, and
// says which. After false the caller must call [Room.Leave].
func (e *Entry[T]) Wait() (handed T, ok bool) {
	select {
	case v := <-e.handed:
		return v, true
	case <-e.gone:
		return handed, false
	}
}

// Offer hands v over to the waiter of an entry that is not in the room any
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

// Arrived is when the entry first came into a room; zero before that.
func (e *Entry[T]) Arrived() time.Time { return e.arrived }

// Room is one function's waiting room. The zero value refuses everybody: see [Room.Limit].
type Room[T any] struct {
	limits api.Hold
	lines  [MaxPriority - MinPriority + 1]line[T] // by priority: those who wait, by turn
	all    line[T]                                // by ticket
	turn   uint64                                 // of the entry that was served last
	count  int
	bytes  api.Bytes
	tokens api.Tokens
	shared int
	pace   pace
	// tickets is the last one drawn.
	tickets uint64
	clients map[string]*client // those with entries
}

// client is what one client has in the room.
type client struct {
	count int
	bytes api.Bytes
	next  uint64 // the turn of its next entry, at least
}

// Limit sets the bounds. Entries that are in stay in.
func (r *Room[T]) Limit(h api.Hold) { r.limits = h }

// Full is why an entry can't come in.
type Full string

// Why a room refuses.
const (
	FullCount    Full = "count"    // as many requests wait as may
	FullBytes    Full = "bytes"    // their bodies take as much memory as they may
	FullDeadline Full = "deadline" // the entry's deadline is nearer than the expected wake
)

// Enter takes e in, or returns why it can't. out are those who had to go instead: they
// are not in any more, and the caller refuses them. expected is how long it takes
// until the first instance can take requests; 0 means now or unknown.
func (r *Room[T]) Enter(e *Entry[T], now time.Time, expected time.Duration) (out []*Entry[T], why Full, ok bool) {
	if expected > 0 && !e.Deadline.IsZero() && now.Add(expected).After(e.Deadline) {
		return nil, FullDeadline, false
	}
	if full := r.full(e); full != "" {
		if !r.withinShare(e) {
			return nil, full, false
		}
		for full != "" {
			v := r.newestOfMost(full)
			r.remove(v)
			out = append(out, v)
			full = r.full(e)
		}
	}
	if e.Ticket == 0 {
		e.Ticket = r.Ticket()
	}
	e.arrived, e.turn = now, r.turn
	if c := r.clients[e.Client]; c != nil {
		e.turn = max(e.turn, c.next)
	}
	r.insert(e)
	r.clients[e.Client].next = e.turn + 1
	return out, "", true
}

// full says why e does not fit in beside who is in; empty: it does.
func (r *Room[T]) full(e *Entry[T]) Full {
	switch {
	case r.count >= r.limits.Capacity:
		return FullCount
	case r.bytes+e.Bytes > r.limits.MaxBytes:
		return FullBytes
	}
	return ""
}

// withinShare says whether e's client would have no more than an equal share with e.
// Then another has more than that, as long as the room is too full for e.
func (r *Room[T]) withinShare(e *Entry[T]) bool {
	c, clients := r.clients[e.Client], len(r.clients)
	if c == nil {
		c = &client{}
		clients++
	}
	return (c.count+1)*clients <= r.limits.Capacity && (c.bytes+e.Bytes)*api.Bytes(clients) <= r.limits.MaxBytes
}

// newestOfMost is the entry that came last of the clients that have the most of what the room is full of.
func (r *Room[T]) newestOfMost(why Full) *Entry[T] {
	has := func(c *client) int64 {
		if why == FullCount {
			return int64(c.count)
		}
		return int64(c.bytes)
	}
	var most int64
	for _, c := range r.clients {
		most = max(most, has(c))
	}
	e := r.all.back
	for has(r.clients[e.Client]) < most {
		e = e.byAge.prev
	}
	return e
}

// Ticket draws the next place. A request that is served without waiting draws
// one too: should it come back, it stands before all who came later.
func (r *Room[T]) Ticket() uint64 {
	r.tickets++
	return r.tickets
}

// PutBack takes in an entry that has been with an instance, at the place of its
// ticket. It ignores the bounds: the request was accepted before.
func (r *Room[T]) PutBack(e *Entry[T], now time.Time) {
	if e.arrived.IsZero() { // it was served without waiting
		e.arrived = now
	}
	r.insert(e)
}

// insert puts e into its line and among all.
func (r *Room[T]) insert(e *Entry[T]) {
	e.line = &r.lines[min(max(e.Priority, MinPriority), MaxPriority)-MinPriority]
	e.line.insert(e, byTurn[T], func(a, b *Entry[T]) bool {
		return a.turn < b.turn || a.turn == b.turn && a.Ticket < b.Ticket
	})
	r.all.insert(e, byAge[T], func(a, b *Entry[T]) bool { return a.Ticket < b.Ticket })
	r.count++
	r.bytes += e.Bytes
	r.tokens += e.Tokens
	if e.Shared {
		r.shared++
	}
	if r.clients == nil {
		r.clients = make(map[string]*client)
	}
	c := r.clients[e.Client]
	if c == nil {
		c = &client{}
		r.clients[e.Client] = c
	}
	c.count++
	c.bytes += e.Bytes
}

// Next takes out the entry whose turn it is, nil if nobody waits.
func (r *Room[T]) Next() *Entry[T] {
	e := r.First()
	if e != nil {
		r.remove(e)
	}
	return e
}

// First is the entry whose turn it is, nil if nobody waits. It stays in: [Room.Leave] takes it out.
func (r *Room[T]) First() *Entry[T] {
	var first *Entry[T]
	var since time.Time // when it would have come, were its priority 0
	for i := len(r.lines) - 1; i >= 0; i-- {
		e := r.lines[i].front
		if e == nil {
			continue
		}
		if came := e.arrived.Add(-Aging * time.Duration(i+MinPriority)); first == nil || came.Before(since) {
			first, since = e, came
		}
	}
	return first
}

// Leave takes e out; it returns false if e was not in.
func (r *Room[T]) Leave(e *Entry[T]) bool {
	if e.line == nil {
		return false
	}
	r.remove(e)
	return true
}

func (r *Room[T]) remove(e *Entry[T]) {
	if e.line.front == e {
		r.turn = max(r.turn, e.turn)
	}
	e.line.remove(e, byTurn[T])
	r.all.remove(e, byAge[T])
	e.line = nil
	r.count--
	r.bytes -= e.Bytes
	r.tokens -= e.Tokens
	if e.Shared {
		r.shared--
	}
	c := r.clients[e.Client]
	c.bytes -= e.Bytes
	if c.count--; c.count == 0 {
		delete(r.clients, e.Client) // its next turn is that of now: nothing is to be remembered
	}
}

// Len is how many wait.
func (r *Room[T]) Len() int { return r.count }

// Bytes is the memory of the bodies that wait.
func (r *Room[T]) Bytes() api.Bytes { return r.bytes }

// Shared is how many of those who wait others may take.
func (r *Room[T]) Shared() int { return r.shared }

// Tokens is the estimated size of the requests that wait.
func (r *Room[T]) Tokens() api.Tokens { return r.tokens }

// Oldest is how long the entry that came first of all has waited; 0 if nobody waits.
func (r *Room[T]) Oldest(now time.Time) time.Duration {
	if r.all.front == nil {
		return 0
	}
	return now.Sub(r.all.front.arrived)
}

// Served notes that a request was finished; the room's pace comes from it.
func (r *Room[T]) Served(now time.Time) { r.pace.note(now, r.count > 0) }

// RetryAfter estimates when somebody who is refused now would find a place:
// the expected wake plus the time for those who wait, from the measured pace.
// It is between 1 s and 5 min.
func (r *Room[T]) RetryAfter(expected time.Duration) time.Duration {
	d := expected + time.Duration(r.count)*r.pace.interval
	return min(max(d, time.Second), 5*time.Minute)
}

// pace is the measured time between two finished requests while others wait.
type pace struct {
	last     time.Time // zero: nobody waited when the last request was finished
	interval time.Duration
}

func (p *pace) note(now time.Time, waiting bool) {
	gap, known := now.Sub(p.last), !p.last.IsZero()
	p.last = now
	if !waiting {
		p.last = time.Time{}
	}
	switch {
	case !known:
	case p.interval == 0:
		p.interval = gap
	default: // exponential mean of about the last eight
		p.interval += (gap - p.interval) / 8
	}
}
