// Package hold keeps requests while no instance can take them. A [Room] is one
// function's waiting room: bounded by the number of requests and by the memory
// of their bodies, first come first served within a priority.
//
// It does not decide when a request may go, measures no time of its own (the
// caller passes now) and starts nothing.
//
// The life of one entry:
//
//  1. [Room.Enter] takes it in, or says at once why it can't wait: the room is
//     full, or the entry's deadline is nearer than the expected wake.
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

// Entry is one request's place. Its fields are set before [Room.Enter] and not changed while it waits.
type Entry[T any] struct {
	// Priority orders entries; higher goes first.
	Priority int
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

	arrived    time.Time
	prev, next *Entry[T]
	line       *line[T]
	gone       <-chan struct{}
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

// line is the entries of one priority, oldest first.
type line[T any] struct {
	front, back *Entry[T]
}

// Room is one function's waiting room. The zero value refuses everybody: see [Room.Limit].
type Room[T any] struct {
	limits api.Hold
	lines  [MaxPriority - MinPriority + 1]line[T]
	count  int
	bytes  api.Bytes
	tokens api.Tokens
	shared int
	pace   pace
	// tickets is the last one drawn.
	tickets uint64
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

// Enter takes e in, or returns why it can't. expected is how long it takes
// until the first instance can take requests; 0 means now or unknown.
func (r *Room[T]) Enter(e *Entry[T], now time.Time, expected time.Duration) (why Full, ok bool) {
	switch {
	case r.count >= r.limits.Capacity:
		return FullCount, false
	case r.bytes+e.Bytes > r.limits.MaxBytes:
		return FullBytes, false
	case expected > 0 && !e.Deadline.IsZero() && now.Add(expected).After(e.Deadline):
		return FullDeadline, false
	}
	if e.Ticket == 0 {
		e.Ticket = r.Ticket()
	}
	e.arrived = now
	r.insert(e)
	return "", true
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

// insert puts e into its line, before the first that is younger. New entries
// look from the back and entries that return from the front, so both are near.
func (r *Room[T]) insert(e *Entry[T]) {
	l := &r.lines[min(max(e.Priority, MinPriority), MaxPriority)-MinPriority]
	e.line = l
	r.count++
	r.bytes += e.Bytes
	r.tokens += e.Tokens
	if e.Shared {
		r.shared++
	}
	if l.back != nil && l.back.Ticket < e.Ticket {
		e.prev, e.next = l.back, nil
		l.back.next, l.back = e, e
		return
	}
	at := l.front
	for at != nil && at.Ticket < e.Ticket {
		at = at.next
	}
	e.next = at
	if at == nil { // the line is empty: any other end was handled above
		e.prev, l.back = nil, e
	} else {
		e.prev, at.prev = at.prev, e
	}
	if e.prev == nil {
		l.front = e
	} else {
		e.prev.next = e
	}
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
	if r.count == 0 {
		return nil
	}
	for i := len(r.lines) - 1; i >= 0; i-- {
		if e := r.lines[i].front; e != nil {
			return e
		}
	}
	panic("hold: the count does not match the lines")
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
	if e.prev == nil {
		e.line.front = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		e.line.back = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next, e.line = nil, nil, nil
	r.count--
	r.bytes -= e.Bytes
	r.tokens -= e.Tokens
	if e.Shared {
		r.shared--
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
	var age time.Duration
	for i := range r.lines {
		if e := r.lines[i].front; e != nil {
			age = max(age, now.Sub(e.arrived))
		}
	}
	return age
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
