package queue

import (
	"context"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/activator/route"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// Want is one request. Its owner sets the exported fields before the first [Function.Acquire] and keeps it for all
// attempts. Hooks must not block; all but End may be nil, and all but Waits and Ahead run while the function is locked.
type Want struct {
	route.Want
	// Client is the client whose share is used, Source a hash of the operator of its front door; 0: none.
	Client   string
	Source   uint64
	Priority int
	// Before is how long it has waited at a front door.
	Before time.Duration
	// Background requests use only spare capacity and are not demand.
	Background bool
	// AtOnce refuses the request if no slot is free.
	AtOnce bool
	// Group is the model with variants that the client named; empty: the function.
	Group api.FunctionName
	// Bytes is the size of the body, Input its estimated tokens, Tokens those with the answer. Prompt is the size of
	// the part of the body that Prefix covers; 0: unknown.
	Bytes         api.Bytes
	Input, Tokens api.Tokens
	Prompt        int
	Sequences     int // 0: one
	// Begun is when the request was complete, Due when its first token is due, Deadline when its client gives up. The
	// last two may be zero.
	Begun, Due, Deadline time.Time
	Trace                api.Trace

	End func(error)
	// EndUnread ends the request if its client has left data unread for too long, and reports whether it does.
	EndUnread func() bool
	// Drains is called when the instance of its slot drains.
	Drains func()
	// Pause makes a stream that can continue later end with [Slot.Pause], and reports whether it does.
	Pause func() bool
	// Pays is called with each further use of GPU time.
	Pays func(gpuSeconds float64)
	// GPUSeconds is final once the request has no slot and does not wait.
	GPUSeconds float64
	// Waits is called before each wait; since: the first one's beginning.
	Waits func(f *Function, since time.Time)
	// Ahead may send the only waiting request right behind the call that wakes an instance, and calls answered once
	// the instance begins to answer.
	Ahead func(to Target, answered func())

	ticket  uint64
	entry   *entry // nil: it has not waited for this function
	slot    *Slot
	since   time.Time     // when it first waited, for any function; zero: never
	pauses  bool          // it was paused, and waits for its turn
	charged float64       // the cost charged before it yielded a slot
	begins  atomic.Int64  // nanoseconds from sending to the answer's first byte
	paused  time.Duration // how long its limit stood still
	ctx     context.Context
	done    context.CancelFunc
	held    time.Duration // in queues and for turns
	there   time.Duration // the part at instances since Renew
	woke    time.Duration // the part without an awake instance
	wake    *Wake         // the trace that [Want.FirstByte] ends
	woken   api.Trace     // of the wake that it waited for

	// Guarded by the function's mutex.
	queued bool
	paid   float64 // up to here on the clock of the waiting requests
}

// Waited returns the time in the queues, the part without an awake instance, and whether it ever waited.
func (w *Want) Waited() (held, woke time.Duration, ever bool) {
	return w.held, w.woke, !w.since.IsZero()
}

// Woken returns the trace of the wake that the request waited for, if any.
func (w *Want) Woken() api.Trace { return w.woken }

// Sent records when the request was sent and when the answer began.
func (w *Want) Sent(sent, answered time.Time) {
	w.begins.Store(int64(answered.Sub(sent)))
	if w.wake != nil {
		w.wake.sent, w.wake.answered = sent, answered
	}
}

// FirstByte ends the trace of the wake that the request waited for, if any, at its answer's first byte.
func (w *Want) FirstByte() {
	if t := w.wake; t != nil {
		w.wake, t.ended = nil, time.Now()
		t.done()
	}
}

// Renew lets w wait as long as a new request, at its place.
func (w *Want) Renew() { w.since, w.paused, w.there, w.entry = time.Time{}, 0, 0, nil }

// Leave ends w's stay at f; w holds no slot.
func (f *Function) Leave(w *Want) {
	f.mu.Lock()
	delete(f.wants, w)
	f.mu.Unlock()
	w.wake.abandon()
	w.entry, w.ticket, w.wake = nil, 0, nil
}

// waitStart is the work left without the lock for a request that has entered the queue.
type waitStart struct {
	unavailable, paused time.Duration // the clocks at its entry
	displaced           []*entry
	crowded             *api.Error      // refuses the displaced
	alone               bool            // only it waits, and no instance is awake
	waking              *route.Instance // woken for this request; nil: none
	ahead               *Target         // where to send it behind that wake; nil: nowhere
}

// Acquire returns a slot for w, and blocks in the queue if none is free. The error is an *[api.Error] or ctx's
// cause. A request that has given back a slot goes before all others.
func (f *Function) Acquire(ctx context.Context, w *Want) (*Slot, error) {
	now := time.Now()
	s, q, err := f.admit(ctx, w, now)
	switch {
	case err != nil:
		f.meter.changed()
		return nil, err
	case s == nil:
		if s, err = f.wait(w, now, q); err != nil {
			return nil, err
		}
	default:
		f.meter.changed()
	}
	if s.trace != nil {
		w.wake.abandon() // of an earlier try
		w.wake, w.woken = s.trace, s.trace.root.Trace()
	}
	return s, nil
}

func (f *Function) admit(ctx context.Context, w *Want, now time.Time) (s *Slot, q *waitStart, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if sight := f.q.cfg.Sight; sight != nil {
		if barred := sight.Bars(f.Name, w.Client); barred != nil {
			return s, q, barred
		}
	}
	if f.strays(w.Want, now) {
		return s, q, notAmong()
	}
	again := w.ticket != 0
	if !again && !w.Background { // a request that is refused counts as demand all the same
		f.last = now
	}
	if err := f.refusal(now); err != nil {
		return s, q, err
	}
	if w.there > 0 && w.there >= f.Spec().Hold.Timeout {
		return s, q, f.timedOut(now, "")
	}
	if !again {
		f.wants[w] = struct{}{}
		w.ticket = f.queue.Ticket()
	}
	// The free slot may suit no waiting request, or all who wait may have to leave it free.
	sees := f.sees()
	mayTake := again && !w.pauses || f.queue.Len() == 0 || sees != nil || f.queue.picky > 0 || len(f.restrained) > 0 && f.first(nil, now) == nil
	if mayTake && !f.leavesFree(w.Client, now) {
		if i, why := f.set.PickFor(now, w.Want, of(sees, w.Client)); i != nil {
			w.wake.goesTo(i.ID, now)
			if why.Running >= why.Slots { // it may wait there
				f.shed(w)
			}
			return f.take(i, why, f.termsOf(w)).assign(w), q, nil
		}
	}
	if w.AtOnce {
		return s, q, api.Errorf(http.StatusServiceUnavailable, api.CodeBusy, "no slot is free")
	}
	displaced, refused := f.enter(ctx, w, again, now)
	if refused != nil {
		return s, q, refused
	}
	return s, f.startWait(w, displaced, now), nil
}

// The caller holds mu.
func (f *Function) startWait(w *Want, displaced []*entry, now time.Time) *waitStart {
	f.retry.arm(now.Add(shareEvery), now)
	asleep := !f.set.Awake(now)
	if asleep {
		f.traceWake(w)
	} else {
		f.shed(w)
	}
	q := &waitStart{unavailable: f.unavailable.at(now), paused: f.paused.at(now), alone: asleep && f.queue.Len() == 1, displaced: displaced}
	q.waking = f.beginWake(now)
	if q.waking != nil && q.alone && w.Ahead != nil && !f.Spec().Unloaded(q.waking.Status()) {
		q.ahead = &Target{Instance: q.waking.ID, Base: q.waking.Base(), Spec: f.Spec()}
	}
	if len(displaced) > 0 {
		q.crowded = f.full(w, fullCrowded, now)
	}
	return q
}

// The caller holds mu.
func (f *Function) enter(ctx context.Context, w *Want, again bool, now time.Time) (displaced []*entry, refused *api.Error) {
	if w.since.IsZero() {
		w.since = now
	}
	limit := w.since.Add(f.Spec().Hold.Timeout + w.paused)
	due := w.Due
	if w.pauses {
		limit, due = w.since.Add(mostPaused), w.Begun
	}
	e := w.entry
	if e == nil {
		e = &entry{Priority: w.Priority, Client: w.Client, Source: w.Source, Waited: w.Before, Bytes: w.Bytes, Tokens: w.Tokens, Due: due, Deadline: limit, Ticket: w.ticket, Group: w.Group, Want: w.Want, terms: f.termsOf(w)}
		if !w.Deadline.IsZero() && w.Deadline.Before(limit) {
			e.Deadline = w.Deadline
		}
	}
	ctx, done := f.patience(ctx, limit, now)
	e.Until(ctx)
	if again {
		f.queue.PutBack(e, now)
	} else {
		out, why, ok := f.queue.Enter(e, now, f.expected(now))
		if !ok {
			done()
			return nil, f.full(w, why, now)
		}
		displaced = out
	}
	w.entry, w.ctx, w.done = e, ctx, done
	f.costs.queueUp(w, 1, now)
	f.measureQueue()
	return displaced, nil
}

// wait blocks until w gets a slot, is refused, or gives up.
func (f *Function) wait(w *Want, since time.Time, q *waitStart) (*Slot, error) {
	for _, e := range q.displaced {
		e.Offer(&Slot{refused: q.crowded}) // a client that left needs no refusal
	}
	if q.waking != nil {
		runtime.Gosched() // the wake's goroutine goes first
	}
	if q.ahead != nil {
		e, i := w.entry, q.waking
		w.Ahead(*q.ahead, func() { f.answered(e, i) })
	}
	if q.alone && q.waking == nil {
		f.meter.sendNow()
	} else {
		f.meter.changed()
	}
	if w.Waits != nil {
		w.Waits(f, w.since)
	}
	s, ok := w.entry.Wait()
	f.endWait(w, s, ok, since, q)
	ended := context.Cause(w.ctx)
	w.done()
	switch {
	case !ok:
		return nil, ended
	case s.refused != nil:
		return nil, s.refused
	}
	return s, nil
}

func (f *Function) endWait(w *Want, s *Slot, ok bool, since time.Time, q *waitStart) {
	now := time.Now()
	f.mu.Lock()
	f.costs.queueUp(w, -1, now)
	left := f.queue.Leave(w.entry)
	if f.queue.Len() == 0 {
		f.trace.abandon()
		f.trace = nil
	}
	if ok && s.refused == nil {
		if s.trace == nil {
			w.wake.goesTo(s.Instance, now)
		}
		s.assign(w)
	}
	woke := f.unavailable.at(now) - q.unavailable
	w.held, w.woke = w.held+now.Sub(since), w.woke+woke
	if q.alone { // its request began the wake
		if !ok { // the wake goes on
			woke += f.expected(now)
		}
		if f.outputs.tokens > 0 { // what a slot would have generated
			f.queue.order.Elsewhere(clientOf(w.Source, w.Client), w.Priority, control.Cost(0, f.outputs.generates(woke)))
		}
	}
	w.paused += f.paused.at(now) - q.paused
	f.measureQueue()
	f.mu.Unlock()
	if left {
		f.meter.changed()
	}
}

// dispatch hands out slots until none is free or no request waits.
func (f *Function) dispatch() {
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
		f.meter.changed()
	}
}

// next takes out the next request, with a slot or a refusal; false: none.
func (f *Function) next() (e *entry, s *Slot, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sees, now := f.sees(), time.Now()
	if e = f.first(sees, now); e == nil {
		return nil, s, false
	}
	i, why := f.set.PickFor(now, e.Want, of(sees, e.Client))
	if i == nil && f.strays(e.Want, now) {
		f.queue.Leave(e)
		return e, &Slot{refused: notAmong()}, true
	}
	if i == nil {
		return nil, s, false
	}
	f.queue.Leave(e)
	return e, f.hand(i, why, e), true
}

// first returns the entry that gets the next slot, or a refusal. The caller holds mu.
func (f *Function) first(sees func(client string, i api.InstanceID) bool, now time.Time) *entry {
	all := sees == nil && f.queue.picky == 0
	return f.queue.firstShared(f.share(now), func(e *entry) bool {
		return !f.leavesFree(e.Client, now) && (all || f.set.FreeFor(now, e.Want, of(sees, e.Client)) || f.strays(e.Want, now))
	})
}

// strays reports whether a request may use no present instance, or only sleeping ones while others are awake. The
// caller holds mu.
func (f *Function) strays(w route.Want, now time.Time) bool {
	if w.Only == nil {
		return false
	}
	some, _ := f.set.May(w)
	return !some || f.set.Awake(now) && !f.set.AwakeFor(now, w)
}

// hand returns a reserved slot of i for e, which has left the queue. The caller holds mu.
func (f *Function) hand(i *route.Instance, why api.Choice, e *entry) *Slot {
	s := f.take(i, why, e.terms)
	s.trace, f.trace = f.trace, nil // the first request with a slot gets the trace
	s.trace.goesTo(i.ID, time.Now())
	f.measureQueue()
	return s
}

// offer hands a slot over, or frees it.
func (f *Function) offer(e *entry, s *Slot) {
	if e.Offer(s) || s.refused != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.trace == nil && f.queue.Len() > 0 {
		f.trace = s.trace
	} else {
		s.trace.abandon()
	}
	s.release(0)
}

// answered gives e, if it still waits, a slot of the instance that began to answer, whatever its last report.
func (f *Function) answered(e *entry, i *route.Instance) {
	f.mu.Lock()
	if !f.queue.Leave(e) { // it has a slot, or has left
		f.mu.Unlock()
		return
	}
	f.set.Reserve(i, e.Want.Adapter)
	f.set.Sent(i, e.Want, time.Now())
	s := f.hand(i, api.Choice{By: route.ByWake, Running: i.Running() - 1}, e)
	f.mu.Unlock()
	f.offer(e, s)
	f.dispatch() // if it has left
	f.meter.changed()
}

// Permission is the right to wake one instance.
type Permission struct {
	Grant api.Grant
	// Revoked is the highest revoked epoch: no grant up to it is accepted.
	Revoked uint64
}

// Accept applies a grant, whose lifetime counts from now; false: it is outdated.
func (p Permission) Accept(g api.Grant, now time.Time) (Permission, bool) {
	if g.Instance == "" || g.Epoch <= p.Revoked || api.StaleEpoch(g.Epoch, p.Grant.Epoch) {
		return p, false
	}
	if g.Life > 0 {
		g.Expires = now.Add(g.Life)
	}
	p.Grant = g
	return p, true
}

func (p Permission) Revoke(epoch uint64) Permission {
	p.Revoked = max(p.Revoked, epoch)
	if p.Grant.Epoch <= epoch {
		p.Grant = api.Grant{}
	}
	return p
}
