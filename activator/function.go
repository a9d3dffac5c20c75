package activator

import (
	"context"
	"net/url"
	"runtime"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/activator/demand"
	"github.com/rouse-dev/rouse/activator/forward"
	"github.com/rouse-dev/rouse/activator/hold"
	"github.com/rouse-dev/rouse/activator/metrics"
	"github.com/rouse-dev/rouse/activator/route"
	"github.com/rouse-dev/rouse/api"
)

// function is one function as this activator sees it: its instances, the
// requests that wait and run, and what it tells the autoscaler. One mutex
// guards the room and the instances together, so that "no slot is free" and
// "then wait" are one step.
//
// Whatever may free a slot or wake an instance ends with [function.dispatch],
// which returns only when nobody waits or no slot is free. So a request that
// has just entered the room need not look again.
type function struct {
	name    api.FunctionName
	created time.Time
	a       *Activator
	metrics *metrics.Function
	meter   *demand.Meter

	mu       sync.Mutex // guards all below; never held while something blocks
	spec     api.Function
	declared bool // by PutFunction; reports and grants may come before it
	room     hold.Room[slot]
	set      route.Set
	calls    map[*call]struct{} // all that wait or run
	slots    int                // in use
	known    []api.ModelName    // adapters that the directory has
	seen     []api.ModelName    // adapters that the instances had when one of them last said so
	last     time.Time          // when the last request arrived
	// What the autoscaler says: the function can't start; until when (zero: until it is awake).
	failed      *api.Error
	failedUntil time.Time
	// The wake under way that this activator began, and when it should be over; zero: unknown.
	waking      api.InstanceID
	wakingUntil time.Time
	trace       *wakeTrace // of the wake that requests wait for; nil: none
	// The last known durations of a wake and a start; 0 while unknown.
	wakeTime, loadTime time.Duration
	dark               clock
	still              clock       // a node is being provisioned or the model fetched: the limits of those who wait stand still
	retry              *time.Timer // calls again, when an instance is avoided or a wake is paused
	retryAt            time.Time   // zero: not armed
}

// slot is what a waiting request gets: an instance, or the reason why there is none.
type slot struct {
	instance *route.Instance
	base     *url.URL
	limits   limits
	refused  *api.Error
	trace    *wakeTrace // that the request ends; nil: none
}

// clock adds up the time in which a condition held.
type clock struct {
	since time.Time // zero: it does not hold
	total time.Duration
}

func (c *clock) set(holds bool, now time.Time) {
	switch {
	case holds && c.since.IsZero():
		c.since = now
	case !holds && !c.since.IsZero():
		c.total += now.Sub(c.since)
		c.since = time.Time{}
	}
}

func (c *clock) at(now time.Time) time.Duration {
	if c.since.IsZero() {
		return c.total
	}
	return c.total + now.Sub(c.since)
}

func newFunction(a *Activator, name api.FunctionName) *function {
	f := &function{name: name, created: time.Now(), a: a, calls: make(map[*call]struct{})}
	f.metrics = a.metrics.Of(name)
	f.meter = demand.New(f.level, a.deps.Emitter, "/activator/"+a.cfg.Name)
	f.dark.set(true, f.created)
	f.retry = time.AfterFunc(time.Hour, f.again)
	f.retry.Stop()
	return f
}

// level is what the autoscaler is told.
func (f *function) level() api.Demand {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	d := api.Demand{
		Function: f.name, Activator: f.a.cfg.Name,
		Waiting: f.room.Len(), Shared: f.room.Shared(), OldestAge: f.room.Oldest(now), WaitingTokens: f.room.Tokens(),
		Running: f.slots, LastRequest: f.last, Waking: f.waking, At: now,
	}
	if f.trace != nil && d.Waiting > 0 {
		d.Trace = f.trace.root.Trace().String()
	}
	return d
}

// acquire gets a slot for c, waiting in the room where there is none. The error
// is the refusal, or the cause of the context's end. c.timing.Hold and the like
// grow by the time in the room.
func (f *function) acquire(c *call) (slot, error) {
	now := time.Now()
	f.mu.Lock()
	if err := f.refusal(now); err != nil {
		f.last = now // it counts as demand all the same
		f.mu.Unlock()
		f.meter.Changed()
		return slot{}, err
	}
	again := c.attempts > 0
	if !again {
		f.last = now
		f.calls[c] = struct{}{}
		c.ticket = f.room.Ticket()
	}
	if again || f.room.Len() == 0 { // who was given back goes before all who wait
		if i := f.set.Pick(now, c.adapter); i != nil {
			s := f.take(i)
			c.trace.goesTo(i.ID, now)
			f.mu.Unlock()
			f.meter.Changed()
			return s, nil
		}
	}
	if err := f.enter(c, again, now); err != nil {
		f.mu.Unlock()
		f.meter.Changed()
		return slot{}, err
	}
	dark, still := f.dark.at(now), f.still.at(now)
	asleep := !f.set.Awake(now)
	urgent := f.room.Len() == 1 && asleep
	if asleep {
		f.traced(c)
	}
	i := f.beginWake(now)
	var attempt *forward.Call
	if i != nil && urgent && !f.spec.Unloaded(i.Status()) {
		attempt = c.attempt(i.Base(), f.limits())
	}
	refused := f.crowdedOut(c, now)
	f.mu.Unlock()
	for _, e := range c.displaced {
		e.Offer(slot{refused: refused}) // who left needs no refusal
	}
	c.displaced = nil
	if i != nil {
		runtime.Gosched() // the wake's goroutine goes first: the rest can do with a thread that wakes up for it
	}
	if attempt != nil {
		c.sendAhead(i, attempt)
	}
	if urgent && i == nil {
		f.meter.Urgent()
	} else {
		f.meter.Changed()
	}
	return f.wait(c, now, dark, still)
}

// take makes a slot of i that was just picked. The caller holds mu.
func (f *function) take(i *route.Instance) slot {
	f.slots++
	f.metrics.Running(1)
	return slot{instance: i, base: i.Base(), limits: f.limits()}
}

// limits are those of a request that is sent now. The caller holds mu.
func (f *function) limits() limits {
	return limits{last: f.spec.RequestTimeout, first: f.spec.FirstByteTimeout, idle: f.spec.IdleTimeout, credentials: f.spec.PassCredentials}
}

// release gives a slot back. The caller holds mu.
func (f *function) release(s slot) {
	f.slots--
	f.metrics.Running(-1)
	f.set.Release(s.instance)
}

// part forgets a call that has ended. It holds no slot any more.
func (f *function) part(c *call) {
	f.mu.Lock()
	delete(f.calls, c)
	f.mu.Unlock()
}

// enter puts c into the room. The caller holds mu.
func (f *function) enter(c *call, again bool, now time.Time) *api.Error {
	if c.held.IsZero() {
		c.held = now
	}
	limit := c.held.Add(f.spec.Hold.Timeout + c.still)
	ctx, cancel := f.patience(c, limit, now)
	deadline := limit
	if !c.deadline.IsZero() && c.deadline.Before(limit) {
		deadline = c.deadline
	}
	e := c.entry
	if e == nil {
		e = &hold.Entry[slot]{Priority: c.req.Priority, Bytes: api.Bytes(c.body.Len()), Tokens: c.req.Tokens, Deadline: deadline, Ticket: c.ticket, Client: c.peer.Client, Adapter: c.adapter, Shared: c.group != nil}
	}
	e.Until(ctx)
	if again {
		f.room.PutBack(e, now)
	} else if out, why, ok := f.room.Enter(e, now, f.expected(now)); ok {
		c.displaced = out
	} else {
		cancel()
		return f.full(c, why, now)
	}
	c.entry, c.holdCtx, c.holdDone = e, ctx, cancel
	f.metrics.Held(f.room.Len(), f.room.Bytes())
	return nil
}

// wait blocks until c gets a slot, is refused, or gives up. since, dark and still are
// the time and these clocks when it entered.
func (f *function) wait(c *call, since time.Time, dark, still time.Duration) (slot, error) {
	c.comment.begin()
	s, ok := c.entry.Wait()
	now := time.Now()
	f.mu.Lock()
	left := f.room.Leave(c.entry)
	if f.room.Len() == 0 {
		f.trace.abandon()
		f.trace = nil
	}
	if ok && s.refused == nil && s.trace == nil {
		c.trace.goesTo(s.instance.ID, now) // it brings its trace along
	}
	held, woke := now.Sub(since), f.dark.at(now)-dark
	c.still += f.still.at(now) - still
	f.metrics.Held(f.room.Len(), f.room.Bytes())
	f.mu.Unlock()
	if left {
		f.meter.Changed()
	}
	c.timing.Hold += held
	c.timing.Wake += woke
	c.timing.Queue += held - woke
	ended := context.Cause(c.holdCtx)
	c.holdDone()
	switch {
	case !ok:
		return slot{}, ended
	case s.refused != nil:
		return slot{}, s.refused
	}
	return s, nil
}

// dispatch hands free slots to those who wait, in order, until there are no
// more slots or nobody waits. The caller holds mu; dispatch releases it.
func (f *function) dispatch() {
	changed := false
	for f.room.Len() > 0 {
		e := f.room.First()
		i := f.set.Pick(time.Now(), e.Adapter)
		if i == nil {
			break
		}
		f.room.Leave(e)
		f.offer(e, i)
		changed = true
	}
	f.mu.Unlock()
	if changed {
		f.meter.Changed()
	}
}

// offer hands a reserved slot of i to one who has just left the room. The caller holds mu;
// offer lets go of it meanwhile.
func (f *function) offer(e *hold.Entry[slot], i *route.Instance) {
	s := f.take(i)
	f.hand(&s, time.Now())
	f.metrics.Held(f.room.Len(), f.room.Bytes())
	f.mu.Unlock()
	taken := e.Offer(s)
	f.mu.Lock()
	if !taken {
		f.handBack(s)
		f.release(s)
	}
}

// finish gives a slot back after the last byte, or when the client left.
func (f *function) finish(s slot, served bool) {
	now := time.Now()
	f.mu.Lock()
	f.release(s)
	if served {
		f.room.Served(now)
		f.set.Served(s.instance)
	}
	f.dispatch()
	f.meter.Changed()
	f.gather()
}

// giveBack gives a slot back because the instance refused the request or failed.
func (f *function) giveBack(s slot, code string) {
	now := time.Now()
	f.mu.Lock()
	f.release(s)
	f.callAgain(f.set.Avoid(s.instance, code, now), now)
	f.dark.set(!f.set.Awake(now), now)
	f.dispatch()
	f.meter.Changed()
}

// callAgain makes f look again at the given time. The caller holds mu.
func (f *function) callAgain(at, now time.Time) {
	if !f.retryAt.IsZero() && !at.Before(f.retryAt) {
		return
	}
	f.retryAt = at
	f.retry.Reset(max(at.Sub(now), 0))
}

// again is the timer's: an instance may be tried again, or a wake begun.
func (f *function) again() {
	now := time.Now()
	f.mu.Lock()
	f.retryAt = time.Time{}
	if next := f.set.NextTry(now); !next.IsZero() {
		f.callAgain(next, now)
	}
	f.dark.set(!f.set.Awake(now), now)
	f.beginWake(now)
	f.dispatch()
}

// cut ends all that still waits or runs, with err.
func (f *function) cut(err *api.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.calls {
		c.cancel(err)
	}
}
