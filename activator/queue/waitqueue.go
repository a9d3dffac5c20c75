package queue

import (
	"container/list"
	"context"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/activator/route"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/fair"
)

// entry is one request's place in a [waitQueue]. Its exported fields do not change while it waits.
//
//  1. [waitQueue.Enter] admits or refuses it.
//  2. Its goroutine blocks in [entry.Wait] only.
//  3. The owner of a slot or a refusal takes it out and calls [entry.Offer].
//  4. [waitQueue.PutBack] returns it to its former place.
//  5. If its client leaves, its goroutine calls [waitQueue.Leave].
type entry struct {
	Priority int
	Client   string
	Source   uint64
	Bytes    api.Bytes
	Tokens   api.Tokens
	// Deadline is when the entry gives up; zero: never.
	Deadline time.Time
	// Waited is the wait elsewhere before.
	Waited time.Duration
	// Due orders one client's entries; zero: Deadline does.
	Due time.Time
	// Ticket is the place within a priority; zero: [waitQueue.Enter] draws one.
	Ticket uint64
	// Other variants of Group may serve it too.
	Group api.FunctionName
	// The queue only checks whether Want excludes instances.
	Want route.Want

	terms   terms
	arrived time.Time
	item    fair.Item
	byAge   *list.Element // in all
	gone    <-chan struct{}
	// handed carries the outcome from the goroutine that took the entry out. It is unbuffered: a value is handed
	// over only if it is received.
	handed chan *Slot
}

// Until is called before each Enter and PutBack.
func (e *entry) Until(ctx context.Context) {
	e.gone = ctx.Done()
	if e.handed == nil {
		e.handed = make(chan *Slot)
	}
}

// After false the caller must call [waitQueue.Leave].
func (e *entry) Wait() (handed *Slot, ok bool) {
	select {
	case v := <-e.handed:
		return v, true
	case <-e.gone:
		return handed, false
	}
}

// Offer hands v to an entry that was taken out, and blocks until the waiter's goroutine runs. After false the
// waiter has left, and v still belongs to the caller.
func (e *entry) Offer(v *Slot) bool {
	select {
	case e.handed <- v:
		return true
	case <-e.gone:
		return false
	}
}

// waitQueue holds the waiting requests of one function, limited in number and memory. They leave in the order of
// package fair; of one client, the nearest deadline first, then the oldest. Its owner's mutex guards it;
// [entry.Wait] and [entry.Offer] are called without it. The zero value refuses all.
type waitQueue struct {
	limits  api.Hold
	order   fair.Queue
	all     list.List // by ticket
	bytes   api.Bytes
	tokens  api.Tokens
	shared  int // entries with a Group
	picky   int // may go to some instances only
	pace    pace
	tickets uint64
	clients map[string]*client // with entries
	shares  fair.Shares[string]
}

type client struct {
	count int
	bytes api.Bytes
}

// Limit sets the limits. Present entries stay.
func (q *waitQueue) Limit(h api.Hold) { q.limits = h }

type fullReason string

const (
	fullCount    fullReason = "count"
	fullBytes    fullReason = "bytes"
	fullDeadline fullReason = "deadline" // nearer than the expected wake
	fullCrowded  fullReason = "crowded"  // displaced by another
)

// Enter admits e, or returns why not. out are the displaced entries, which the caller refuses. expected is the time
// until an instance accepts requests; 0: unknown.
//
// One client may fill the queue while no other has entries. In a full queue, entries displace those of a priority
// below 0, or, within their client's equal share, the newest of the client with the most.
func (q *waitQueue) Enter(e *entry, now time.Time, expected time.Duration) (out []*entry, why fullReason, ok bool) {
	if expected > 0 && !e.Deadline.IsZero() && now.Add(expected).After(e.Deadline) {
		return nil, fullDeadline, false
	}
	for full := q.full(e); full != ""; full = q.full(e) {
		v := entryOf(q.order.Last(min(e.Priority, 0)))
		if v == nil && q.withinShare(e) {
			v = q.newestOfMost(full)
		}
		if v == nil {
			for _, v := range out {
				q.insert(v)
			}
			return nil, full, false
		}
		q.Leave(v)
		out = append(out, v)
	}
	if e.Ticket == 0 {
		e.Ticket = q.Ticket()
	}
	e.arrived = now
	q.insert(e)
	return out, "", true
}

func (q *waitQueue) full(e *entry) fullReason {
	switch {
	case q.Len() >= q.limits.Capacity:
		return fullCount
	case q.bytes+e.Bytes > q.limits.MaxBytes:
		return fullBytes
	}
	return ""
}

// withinShare counts e too. If it holds and the queue is full, another client has more than an equal share.
func (q *waitQueue) withinShare(e *entry) bool {
	c, clients := q.clients[e.Client], len(q.clients)
	if c == nil {
		c = &client{}
		clients++
	}
	return (c.count+1)*clients <= q.limits.Capacity && (c.bytes+e.Bytes)*api.Bytes(clients) <= q.limits.MaxBytes
}

func (q *waitQueue) newestOfMost(why fullReason) *entry {
	has := func(c *client) int64 {
		if why == fullCount {
			return int64(c.count)
		}
		return int64(c.bytes)
	}
	var most int64
	for _, c := range q.clients {
		most = max(most, has(c))
	}
	at := q.all.Back()
	for has(q.clients[entryAt(at).Client]) < most {
		at = at.Prev()
	}
	return entryAt(at)
}

// A request served without waiting draws a ticket too, in case it comes back.
func (q *waitQueue) Ticket() uint64 {
	q.tickets++
	return q.tickets
}

// PutBack ignores the limits.
func (q *waitQueue) PutBack(e *entry, now time.Time) {
	if e.arrived.IsZero() { // it was served without waiting
		e.arrived = now
	}
	q.insert(e)
}

func entryAt(at *list.Element) *entry {
	if at == nil {
		return nil
	}
	return at.Value.(*entry)
}

func entryOf(i *fair.Item) *entry {
	if i == nil {
		return nil
	}
	return i.Of.(*entry)
}

func clientOf(source uint64, client string) fair.Client {
	return fair.Client{Source: source, Name: max(route.Hash(client), control.NoClient+1)}
}

// A new entry belongs near the back, a returning one near the front.
func (q *waitQueue) put(e *entry) *list.Element {
	if b := entryAt(q.all.Back()); b == nil || b.Ticket < e.Ticket {
		return q.all.PushBack(e)
	}
	at := q.all.Front()
	for entryAt(at).Ticket < e.Ticket {
		at = at.Next()
	}
	return q.all.InsertBefore(e, at)
}

func (q *waitQueue) insert(e *entry) {
	e.item = fair.Item{Client: clientOf(e.Source, e.Client), Priority: e.Priority, Arrived: e.arrived.Add(-e.Waited), Due: e.due(), Ticket: e.Ticket, Of: e}
	q.order.Put(&e.item)
	e.byAge = q.put(e)
	q.bytes += e.Bytes
	q.tokens += e.Tokens
	if e.Group != "" {
		q.shared++
	}
	if e.Want.Only != nil {
		q.picky++
	}
	q.shares.Add(e.Client, 1, 0)
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

func (q *waitQueue) Next() *entry {
	e := q.First()
	if e != nil {
		q.Leave(e)
	}
	return e
}

// First leaves the entry in the queue.
func (q *waitQueue) First() *entry { return entryOf(q.order.First()) }

// LeaveFirst takes out the oldest entry of a group with the highest priority.
func (q *waitQueue) LeaveFirst(group api.FunctionName) (first *entry) {
	for at := q.all.Front(); at != nil && q.shared > 0; at = at.Next() {
		if e := entryAt(at); e.Group == group && (first == nil || e.Priority > first.Priority) {
			first = e
		}
	}
	if first != nil {
		q.Leave(first)
	}
	return first
}

// false: e was not in the queue
func (q *waitQueue) Leave(e *entry) bool {
	if !q.order.Remove(&e.item) {
		return false
	}
	q.all.Remove(e.byAge)
	e.byAge = nil
	q.bytes -= e.Bytes
	q.tokens -= e.Tokens
	if e.Group != "" {
		q.shared--
	}
	if e.Want.Only != nil {
		q.picky--
	}
	q.shares.Add(e.Client, -1, 0)
	c := q.clients[e.Client]
	c.bytes -= e.Bytes
	if c.count--; c.count == 0 {
		delete(q.clients, e.Client)
	}
	return true
}

func (e *entry) due() time.Time {
	if e.Due.IsZero() || !e.Deadline.IsZero() && e.Deadline.Before(e.Due) {
		return e.Deadline
	}
	return e.Due
}

func (q *waitQueue) Len() int { return q.order.Len() }

func (q *waitQueue) Clients() map[string]int {
	all := make(map[string]int, len(q.clients))
	for name, c := range q.clients {
		all[name] = c.count
	}
	return all
}

func (q *waitQueue) Bytes() api.Bytes { return q.bytes }

func (q *waitQueue) Tokens() api.Tokens { return q.tokens }

func (q *waitQueue) Oldest(now time.Time) time.Duration {
	if q.Len() == 0 {
		return 0
	}
	return now.Sub(entryAt(q.all.Front()).arrived)
}

func (q *waitQueue) Served(now time.Time) { q.pace.note(now, q.Len() > 0) }

// RetryAfter estimates when a refused request would find a place: 1 s to 5 min.
func (q *waitQueue) RetryAfter(expected time.Duration) time.Duration {
	d := expected + time.Duration(q.Len())*q.pace.interval
	return min(max(d, time.Second), 5*time.Minute)
}

// pace is the time between ends of requests while others wait.
type pace struct {
	last     time.Time // zero: none waited
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
	default: // over about the last eight
		p.interval += (gap - p.interval) / 8
	}
}

// Codes of refusals.
const (
	CodeHoldTimeout = "hold_timeout"
	CodeEvicted     = "evicted"
)

// The caller holds mu.
func (f *Function) refusal(now time.Time) *api.Error {
	switch {
	case !f.declared:
		return api.Errorf(http.StatusNotFound, api.CodeModelNotFound, "the function %s was removed", f.Name)
	case f.failed == nil:
		return nil
	case !f.failedUntil.IsZero() && !now.Before(f.failedUntil):
		f.failed = nil // its demand makes the autoscaler try too
		return nil
	}
	return f.failed
}

// notAmong refuses a request that strays.
func notAmong() *api.Error {
	return api.Errorf(http.StatusServiceUnavailable, api.CodeNoCapacity, "none of the endpoints that the gateway allows takes requests now: try again").WithRetryAfter(time.Second)
}

// The caller holds mu.
func (f *Function) timedOut(now time.Time, why string) *api.Error {
	err := api.Errorf(http.StatusServiceUnavailable, CodeHoldTimeout,
		"no instance of %s took the request within %s (rouse.dev/hold-timeout)", f.Name, f.Spec().Hold.Timeout)
	if st, found := f.obstacle(now); found {
		why = st.Message
	}
	if why != "" {
		err.Message += ": " + why
	}
	return err.WithRetryAfter(f.queue.RetryAfter(f.expected(now)))
}

// The caller holds mu.
func (f *Function) full(w *Want, why fullReason, now time.Time) *api.Error {
	expected := f.expected(now)
	after := f.queue.RetryAfter(expected)
	limits := f.Spec().Hold
	switch why {
	case fullDeadline:
		wait := limits.Timeout
		if !w.Deadline.IsZero() {
			wait = min(wait, w.Deadline.Sub(now))
		}
		return api.Errorf(http.StatusServiceUnavailable, CodeHoldTimeout,
			"%s is expected to take requests in %s, and this one may wait %s: give it more time",
			f.Name, expected.Round(time.Millisecond), wait.Round(time.Millisecond)).WithRetryAfter(after)
	case fullBytes:
		return api.Errorf(http.StatusTooManyRequests, api.CodeHoldFull,
			"the bodies of %d requests that wait for %s take %s, and %s may be used (rouse.dev/hold-memory)",
			f.queue.Len(), f.Name, f.queue.Bytes(), limits.MaxBytes).WithRetryAfter(after)
	case fullCrowded:
		return api.Errorf(http.StatusTooManyRequests, api.CodeHoldFull,
			"%d requests wait for %s, which is the limit (rouse.dev/hold-capacity, rouse.dev/hold-memory), and this client has more than its share of them",
			f.queue.Len(), f.Name).WithRetryAfter(after)
	}
	return api.Errorf(http.StatusTooManyRequests, api.CodeHoldFull,
		"%d requests wait for %s already, which is the limit (rouse.dev/hold-capacity)", f.queue.Len(), f.Name).WithRetryAfter(after)
}
