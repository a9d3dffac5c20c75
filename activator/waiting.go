package activator

import (
	"context"
	"net/http"
	"runtime"
	"time"

	"github.com/rouse-dev/rouse/activator/forward"
	"github.com/rouse-dev/rouse/activator/hold"
	"github.com/rouse-dev/rouse/activator/route"
	"github.com/rouse-dev/rouse/api"
)

// waiting is a request's place in the queue of its function.
type waiting struct {
	ticket uint64             // its place in the queue; 0: none yet
	entry  *hold.Entry[*slot] // nil: it has not waited for this function
	since  time.Time          // when it first waited, for any function; zero: never
	paused time.Duration      // how long its limit stood still during the wait
	ctx    context.Context    // ends the wait
	done   context.CancelFunc // releases ctx; called at the end of the wait
}

// queued is the work left to do, without the function's lock, for a request that has entered the queue.
type queued struct {
	unavailable, paused time.Duration // the clocks when it entered
	displaced           []*hold.Entry[*slot]
	crowded             *api.Error      // the refusal of the displaced
	alone               bool            // no other request waits, and no instance is awake
	waking              *route.Instance // its wake began with this request; nil: none
	attempt             *forward.Call   // the speculative call behind that wake; nil: none
}

// acquire gets a slot for c and blocks in the queue if none is free. The error is the refusal, or the cause of the
// context's end. The time in the queue is added to the timing of c's reply.
func (f *function) acquire(c *call) (*slot, error) {
	f.looksAt(&c.req)
	now := time.Now()
	s, q, err := f.admit(c, now)
	if err != nil {
		f.meter.Changed()
		return nil, err
	}
	if s != nil {
		f.meter.Changed()
		return s, nil
	}
	for _, e := range q.displaced {
		e.Offer(&slot{refused: q.crowded}) // a client that left needs no refusal
	}
	if q.waking != nil {
		runtime.Gosched() // let the wake's goroutine start first: the rest can wait for another thread
	}
	if q.attempt != nil {
		c.speculate(q.waking, c.wait.entry, q.attempt)
	}
	if q.alone && q.waking == nil {
		f.meter.Urgent()
	} else {
		f.meter.Changed()
	}
	return f.wait(c, now, q)
}

// admit gives c a free slot or a place in the queue, or refuses it.
func (f *function) admit(c *call, now time.Time) (s *slot, q *queued, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.barred(c); err != nil {
		return s, q, err
	}
	if f.strays(c.req.wants(), now) {
		return s, q, notAmong()
	}
	if err := f.refusal(now); err != nil {
		f.asked(c, now) // it counts as demand all the same
		return s, q, err
	}
	again := c.sent.attempts > 0
	if !again {
		f.asked(c, now)
		f.calls[c] = struct{}{}
		c.wait.ticket = f.queue.Ticket()
	}
	// A request that was given back goes before all that wait. If not every request may use every slot, a free slot
	// may be one that no waiting request can use.
	sees := f.sees()
	if again || f.queue.Len() == 0 || sees != nil || f.queue.Picky() > 0 {
		if i, why := f.set.PickFor(now, c.req.wants(), of(sees, c.req.peer.Client)); i != nil {
			c.trace.goesTo(i.ID, now)
			return f.runs(c, f.take(i, why, c.req.adapter, c.req.peer.Client, c.req.Priority, f.cost(&c.req))), q, nil
		}
	}
	if c.atOnce {
		return s, q, api.Errorf(http.StatusServiceUnavailable, api.CodeBusy, "no slot is free")
	}
	displaced, refused := f.enter(c, again, now)
	if refused != nil {
		return s, q, refused
	}
	asleep := !f.set.Awake(now)
	if !asleep {
		f.shed(c)
	}
	q = &queued{unavailable: f.unavailable.at(now), paused: f.paused.at(now), alone: asleep && f.queue.Len() == 1, displaced: displaced}
	if asleep {
		f.traceWake(c)
	}
	q.waking = f.beginWake(now)
	if q.waking != nil && q.alone && c.req.via == nil && !c.req.streams() && !f.spec.Unloaded(q.waking.Status()) {
		q.attempt = c.attempt(q.waking.Base(), f.limits())
	}
	if len(displaced) > 0 {
		q.crowded = f.crowdedOut(now)
	}
	return s, q, nil
}

// asked records a request's arrival, unless it is a background request. The caller holds mu.
func (f *function) asked(c *call, now time.Time) {
	if !c.background {
		f.last = now
	}
}

// enter puts c into the queue, and returns the entries that it displaces. The caller holds mu.
func (f *function) enter(c *call, again bool, now time.Time) (displaced []*hold.Entry[*slot], refused *api.Error) {
	w, r := &c.wait, &c.req
	if w.since.IsZero() {
		w.since = now
	}
	limit := w.since.Add(f.spec.Hold.Timeout + w.paused)
	deadline := limit
	if !r.deadline.IsZero() && r.deadline.Before(limit) {
		deadline = r.deadline
	}
	e := w.entry
	if e == nil {
		e = &hold.Entry[*slot]{Priority: r.Priority, Bytes: api.Bytes(r.body.Len()), Tokens: r.Tokens, Cost: f.cost(r), Due: r.due, Deadline: deadline, Ticket: w.ticket, Client: r.peer.Client, Want: r.wants(), Shared: c.group != nil}
	}
	ctx, done := f.patience(c.ctx, limit, now)
	e.Until(ctx)
	if again {
		f.queue.PutBack(e, now)
	} else {
		out, why, ok := f.queue.Enter(e, now, f.expected(now))
		if !ok {
			done()
			return nil, f.full(r, why, now)
		}
		displaced = out
	}
	w.entry, w.ctx, w.done = e, ctx, done
	f.metrics.Held(f.queue.Len(), f.queue.Bytes())
	return displaced, nil
}

// wait blocks until c, which entered the queue at since, gets a slot, is refused, or gives up.
func (f *function) wait(c *call, since time.Time, q *queued) (*slot, error) {
	if c.req.commented() {
		c.reply.comment.begin(f, c.wait.since)
	}
	s, ok := c.wait.entry.Wait()
	now := time.Now()
	f.mu.Lock()
	left := f.queue.Leave(c.wait.entry)
	if f.queue.Len() == 0 {
		f.trace.abandon()
		f.trace = nil
	}
	if ok && s.refused == nil && s.trace == nil {
		c.trace.goesTo(s.instance.ID, now) // the slot carries its trace
	}
	if ok && s.refused == nil {
		s = f.runs(c, s)
	}
	held, woke := now.Sub(since), f.unavailable.at(now)-q.unavailable
	c.wait.paused += f.paused.at(now) - q.paused
	f.metrics.Held(f.queue.Len(), f.queue.Bytes())
	f.mu.Unlock()
	if left {
		f.meter.Changed()
	}
	c.reply.timing.Hold += held
	c.reply.timing.Wake += woke
	c.reply.timing.Queue += held - woke
	ended := context.Cause(c.wait.ctx)
	c.wait.done()
	switch {
	case !ok:
		return nil, ended
	case s.refused != nil:
		return nil, s.refused
	}
	return s, nil
}

// dispatch hands free slots to waiting requests, in order, until no slot is free or no request waits.
func (f *function) dispatch() {
	changed := false
	for {
		e, s, ok := f.next()
		if !ok {
			break
		}
		f.offer(e, s)
		changed = true
	}
	if changed {
		f.meter.Changed()
	}
}

// next takes the next request out of the queue, with a slot for it; false: none waits, or no slot is free.
func (f *function) next() (e *hold.Entry[*slot], s *slot, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sees, now := f.sees(), time.Now()
	if e = f.first(sees, now); e == nil {
		return nil, s, false
	}
	i, why := f.set.PickFor(now, e.Want, of(sees, e.Client))
	if i == nil && f.strays(e.Want, now) {
		f.queue.Leave(e)
		return e, &slot{refused: notAmong()}, true
	}
	if i == nil {
		return nil, s, false
	}
	f.queue.Leave(e)
	return e, f.hand(i, why, e), true
}

// strays reports whether a request may use none of the present instances, or only sleeping ones while others are
// awake, so that nobody wakes one. The caller holds mu.
func (f *function) strays(w route.Want, now time.Time) bool {
	if w.Only == nil {
		return false
	}
	some, _ := f.set.May(w)
	return !some || f.set.Awake(now) && !f.set.AwakeFor(now, w)
}

// notAmong is the refusal of a request that strays.
func notAmong() *api.Error {
	return api.Errorf(http.StatusServiceUnavailable, api.CodeNoCapacity, "none of the endpoints that the gateway allows takes requests now: try again").WithRetryAfter(time.Second)
}

// hand returns a slot of i, which was reserved for e; e has just left the queue. The caller holds mu.
func (f *function) hand(i *route.Instance, why api.Choice, e *hold.Entry[*slot]) *slot {
	s := f.take(i, why, e.Want.Adapter, e.Client, e.Priority, e.Cost)
	s.trace, f.trace = f.trace, nil // the first request with a slot gets the trace
	s.trace.goesTo(i.ID, time.Now())
	f.metrics.Held(f.queue.Len(), f.queue.Bytes())
	return s
}

// offer hands a slot over; if the request has left, the slot is freed.
func (f *function) offer(e *hold.Entry[*slot], s *slot) {
	if e.Offer(s) || s.refused != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.trace == nil && f.queue.Len() > 0 {
		f.trace = s.trace
	}
	f.release(s, 0)
}
