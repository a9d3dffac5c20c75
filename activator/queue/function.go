package queue

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/activator/metrics"
	"github.com/rouse-dev/rouse/activator/route"
	"github.com/rouse-dev/rouse/api"
)

// Function is one function. One mutex guards queue and instances: "no slot is free" and "then wait" are one step.
// Whatever may free a slot or wake an instance calls [Function.dispatch] afterwards: waiting requests do not retry.
type Function struct {
	Name    api.FunctionName
	Created time.Time
	Metrics *metrics.Function

	q     *Queues
	meter *meter
	spec  atomic.Pointer[api.Function] // never nil
	group atomic.Pointer[Group]        // nil: no variant of a model

	mu         sync.Mutex // guards all below; never held while blocking
	declared   bool       // grants may come before the declaration
	queue      waitQueue
	set        route.Set
	wants      map[*Want]struct{} // waiting or running
	slots      int                // in use
	background int                // the part of background requests
	known      []api.ModelName    // that Renamed was called for
	seen       []api.ModelName    // in the instances' last reports
	model      *api.ModelFacts
	last       time.Time
	outputs    outputs
	// Why it can't start; nil: it can. failedUntil zero: until an instance is awake.
	failed      *api.Error
	failedUntil time.Time
	waking      underway
	preferred   preferred
	trace       *Wake // of the wake that requests wait for; nil: none
	// 0: unknown
	wakeTime, loadTime time.Duration
	unavailable        clock // no instance is awake
	paused             clock // waiting for a node or the model: limits of waiting requests stand still
	retry              alarm // dispatches again
	restrained         restraints
	costs              costs
}

type clock struct {
	since time.Time // zero: stopped
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

func newFunction(q *Queues, name api.FunctionName) *Function {
	f := &Function{Name: name, Created: time.Now(), Metrics: q.cfg.Metrics.Of(name), q: q, wants: make(map[*Want]struct{}), restrained: make(restraints), costs: costs{holders: make(map[api.InstanceID]*holder)}}
	f.spec.Store(&api.Function{Name: name})
	f.meter = newMeter(f.level, q.cfg.Emitter, "/activator/"+q.cfg.Name)
	f.unavailable.set(true, f.Created)
	f.retry = newAlarm(f.again)
	return f
}

func (f *Function) close() {
	f.mu.Lock()
	f.retry.stop()
	f.mu.Unlock()
	f.meter.close()
}

// Spec returns the declaration, which must not be changed.
func (f *Function) Spec() *api.Function { return f.spec.Load() }

// Declared reports whether f is declared.
func (f *Function) Declared() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.declared
}

// Several reports whether the preferences of a [Want] matter.
func (f *Function) Several() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.set.Many()
}

// Adapters returns the adapters that are declared or that an instance has.
func (f *Function) Adapters() []api.ModelName {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.adapters()
}

// adapters uses the last reports if no instance can report: a runtime may have built-in adapters. The caller holds
// mu.
func (f *Function) adapters() []api.ModelName {
	var names []api.ModelName
	for _, a := range f.Spec().Runtime.Adapters {
		names = append(names, a.Name)
	}
	var seen []api.ModelName
	said := false
	for _, i := range f.set.All() {
		st := i.Status()
		seen = append(append(seen, st.Adapters...), st.Standby...)
		said = said || st.State == api.Awake || st.State == api.Asleep || st.State == api.Draining
	}
	if said || len(seen) > 0 {
		f.seen = seen
	}
	names = append(names, f.seen...)
	slices.Sort(names)
	return slices.Compact(names)
}

// Best returns the report of the instance that accepts a request soonest.
func (f *Function) Best() (st api.InstanceStatus, found bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.set.Best()
}

// Model returns what an instance has reported about the model.
func (f *Function) Model() (facts api.ModelFacts) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.model != nil {
		facts = *f.model
	}
	if facts.Details.Families == nil {
		facts.Details.Families = []string{} // clients expect a list
	}
	return facts
}

// Activity returns what the function does now.
func (f *Function) Activity() api.Activity {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := api.Activity{
		Waiting: f.queue.Len(), OldestAge: f.queue.Oldest(time.Now()), HeldBytes: f.queue.Bytes(),
		Running: f.slots, LastRequest: f.last, Waking: f.waking.instance, Instances: f.set.Reports(),
	}
	if f.failed != nil {
		s.Failed = f.failed.Message
	}
	return s
}

// Room is the free capacity of a function.
type Room struct {
	// Slots counts those of available instances, or of one instance; Free, those neither used nor waited for.
	Slots, Free int
	// Wake is the time until requests are accepted; 0: none, or unknown.
	Wake time.Duration
}

// Room returns f's free capacity.
func (f *Function) Room() (r Room) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	r.Wake = f.expected(now)
	if f.set.Awake(now) {
		r.Slots = f.set.Capacity(now)
	}
	if r.Slots == 0 {
		r.Slots = max(1, f.Spec().Concurrency)
	}
	if f.queue.Len() == 0 && f.failed == nil {
		r.Free = f.set.Free(now)
	}
	return r
}

func (f *Function) level() api.Demand {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	d := api.Demand{
		Function: f.Name, Activator: f.q.cfg.Name,
		Waiting: f.queue.Len(), Shared: f.queue.shared, OldestAge: f.queue.Oldest(now), WaitingTokens: f.queue.Tokens(),
		Running: f.slots - f.background, Background: f.background, LastRequest: f.last, Waking: f.waking.instance, Prefers: f.preferred.instance, At: now,
	}
	if d.Waiting > 0 && f.queue.picky == d.Waiting {
		want := f.queue.First().Want
		if _, all := f.set.May(want); !all {
			d.Bound, d.Prefers = true, ""
			if sleepers, _ := f.set.Asleep(now, want); len(sleepers) > 0 {
				d.Prefers = sleepers[0].ID
			}
		}
	}
	if f.sees() != nil {
		d.Tenants = f.queue.Clients()
	}
	if f.trace != nil && d.Waiting > 0 {
		d.Trace = f.trace.root.Trace().String()
	}
	return d
}

// RefuseWaiting refuses all requests that wait.
func (f *Function) RefuseWaiting(err *api.Error) {
	for {
		f.mu.Lock()
		e := f.queue.Next()
		f.measureQueue()
		f.mu.Unlock()
		if e == nil {
			break
		}
		e.Offer(&Slot{refused: err}) // a client that left needs no refusal
	}
	f.meter.changed()
}

// The caller holds mu.
func (f *Function) measureQueue() { f.Metrics.Held(f.queue.Len(), f.queue.Bytes()) }

// EndAll ends all waiting and running requests with err.
func (f *Function) EndAll(err *api.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.wants {
		w.End(err)
	}
}

// The caller holds mu.
func (f *Function) sees() func(client string, i api.InstanceID) bool {
	if f.q.cfg.Sight == nil {
		return nil
	}
	return f.q.cfg.Sight.Sees(f.Name)
}

// of filters the instances for a client; nil: any.
func of(sees func(client string, i api.InstanceID) bool, client string) func(api.InstanceID) bool {
	if sees == nil {
		return nil
	}
	return func(i api.InstanceID) bool { return sees(client, i) }
}

const (
	sendSoon   = 5 * time.Millisecond
	sendEvery  = 50 * time.Millisecond
	sendRepeat = time.Second
)

// meter sends the demand for one function as events with its level.
//
//  1. [meter.sendNow] sends at once: a request waits that only the autoscaler can help.
//  2. Other changes are sent together after sendSoon to sendEvery, so as not to delay the request.
//  3. A level above zero is repeated every sendRepeat.
//  4. The last event is zero ([meter.close]).
//
// Events keep the order in which levels were read. A meter is safe for concurrent use.
type meter struct {
	level   func() api.Demand
	emitter api.Emitter
	source  string

	// Cleared under mu before the level is read.
	dirty atomic.Bool

	mu     sync.Mutex // guards all below; held while an event is emitted
	due    alarm
	last   time.Time
	sent   api.Demand
	closed bool
}

// level is called under the meter's mutex and must not call the meter. Callers of sendNow and close hold no lock that
// level takes.
func newMeter(level func() api.Demand, e api.Emitter, source string) *meter {
	m := &meter{level: level, emitter: e, source: source}
	m.due = newAlarm(m.sendNow)
	return m
}

func (m *meter) sendNow() {
	m.mu.Lock()
	if !m.closed {
		m.send(time.Now())
	}
	m.mu.Unlock()
	m.schedule()
}

// changed does not block, even while an event is emitted.
func (m *meter) changed() {
	if !m.dirty.Swap(true) {
		m.schedule()
	}
}

// If another goroutine holds mu, it schedules: every unlock of mu is followed by schedule.
func (m *meter) schedule() {
	if !m.dirty.Load() || !m.mu.TryLock() {
		return
	}
	if !m.closed {
		now := time.Now()
		m.due.arm(now.Add(max(sendSoon, sendEvery-now.Sub(m.last))), now)
	}
	m.mu.Unlock()
}

// alarm is a timer that calls a function at the earliest of its times. Its owner's lock guards it.
type alarm struct {
	timer *time.Timer
	at    time.Time // zero: not set
}

func newAlarm(do func()) alarm {
	a := alarm{timer: time.AfterFunc(time.Hour, do)}
	a.timer.Stop()
	return a
}

// arm sets the time of the call, unless an earlier one is set.
func (a *alarm) arm(at, now time.Time) {
	if !a.at.IsZero() && !at.Before(a.at) {
		return
	}
	a.at = at
	a.timer.Reset(max(at.Sub(now), 0))
}

func (a *alarm) stop() {
	a.at = time.Time{}
	a.timer.Stop()
}

// The caller holds mu.
func (m *meter) send(now time.Time) {
	m.dirty.Store(false)
	m.sent = m.level()
	m.last = now
	m.emitter.Emit(api.NewEvent(api.EventDemand, m.source, m.sent.Function, m.sent))
	m.due.stop()
	if !m.sent.Zero() {
		m.due.arm(now.Add(sendRepeat), now)
	}
}

// close sends a last zero level. No event follows.
func (m *meter) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.closed = true
	m.due.stop()
	if m.sent.Zero() && !m.dirty.Load() {
		return
	}
	last := m.level()
	last.Waiting, last.WaitingTokens, last.OldestAge, last.Running, last.Background, last.Waking, last.Prefers = 0, 0, 0, 0, 0, "", ""
	m.emitter.Emit(api.NewEvent(api.EventDemand, m.source, last.Function, last))
}
