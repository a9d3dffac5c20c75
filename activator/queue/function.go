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

// Function is one function: its instances, its waiting and running requests, and its demand. One mutex guards the
// queue and the instances together, so that "no slot is free" and "then wait" are one step.
//
// Whatever may free a slot or wake an instance calls [Function.dispatch] afterwards, which returns only when no request
// waits or no slot is free. So a request in the queue need not try again.
type Function struct {
	Name    api.FunctionName
	Created time.Time
	Metrics *metrics.Function

	q     *Queues
	meter *meter
	spec  atomic.Pointer[api.Function] // the declaration; never nil
	group atomic.Pointer[Group]        // nil: no variant of a model

	mu         sync.Mutex // guards all below; never held while blocking
	declared   bool       // reports and grants may come before the declaration
	queue      waitQueue
	set        route.Set
	wants      map[*Want]struct{} // all that wait or run
	slots      int                // in use
	background int                // of these, slots of background requests
	known      []api.ModelName    // the adapters' names that Renamed was called for
	seen       []api.ModelName    // the adapters in the instances' last reports
	model      *api.ModelFacts    // from the last report with them; nil: none
	last       time.Time          // when the last request arrived
	outputs    outputs
	// Why the function can't start, from the autoscaler; nil: it can. And until when; zero: until an instance is
	// awake.
	failed      *api.Error
	failedUntil time.Time
	waking      underway
	preferred   preferred
	trace       *Wake // of the wake that requests wait for; nil: none
	// The last known durations of a wake and a start; 0 while unknown.
	wakeTime, loadTime time.Duration
	unavailable        clock // no instance is awake
	paused             clock // waiting for a node or for the model to be fetched: the limits of waiting requests stand still
	retry              alarm // dispatches again when an instance is avoided or a wake is paused
	restrained         restraints
	costs              costs
}

// clock adds up the time during which a condition held.
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

func newFunction(q *Queues, name api.FunctionName) *Function {
	f := &Function{Name: name, Created: time.Now(), Metrics: q.cfg.Metrics.Of(name), q: q, wants: make(map[*Want]struct{}), restrained: make(restraints), costs: costs{holders: make(map[api.InstanceID]*holder)}}
	f.spec.Store(&api.Function{Name: name})
	f.meter = newMeter(f.level, q.cfg.Emitter, "/activator/"+q.cfg.Name)
	f.unavailable.set(true, f.Created)
	f.retry = newAlarm(f.again)
	return f
}

// close stops f's timers and sends its last demand.
func (f *Function) close() {
	f.mu.Lock()
	f.retry.stop()
	f.mu.Unlock()
	f.meter.close()
}

// Spec returns the declaration, which must not be changed. Before the declaration it has only a name.
func (f *Function) Spec() *api.Function { return f.spec.Load() }

// Declared reports whether f is declared.
func (f *Function) Declared() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.declared
}

// Several reports whether there are several instances, so that the preferences of a [Want] matter.
func (f *Function) Several() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.set.Many()
}

// Adapters returns the sorted names of the adapters that are declared, or that any instance has.
func (f *Function) Adapters() []api.ModelName {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.adapters()
}

// adapters is [Function.Adapters]. If no instance can report, the last reports count: a runtime may have built-in
// adapters. The caller holds mu.
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

// Best returns the report of the instance that can accept a request soonest.
func (f *Function) Best() (st api.InstanceStatus, found bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.set.Best()
}

// Model returns what an instance has reported about the model, or nothing.
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

// Activity returns f's activity.
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

// Room is the free capacity of a function's instances.
type Room struct {
	// Slots is how many requests the available instances serve at once, or one instance if none is available. Free is
	// how many of these slots are free and not waited for.
	Slots, Free int
	// Wake is how long it takes until requests are accepted; 0: no time, or unknown.
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

// level returns the demand to report to the autoscaler.
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
		f.Metrics.Held(f.queue.Len(), f.queue.Bytes())
		f.mu.Unlock()
		if e == nil {
			break
		}
		e.Offer(&Slot{refused: err}) // a client that left needs no refusal
	}
	f.meter.changed()
}

// EndAll ends all waiting and running requests with err.
func (f *Function) EndAll(err *api.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.wants {
		w.End(err)
	}
}

// sees is [Sight.Sees] for f. The caller holds mu.
func (f *Function) sees() func(client string, i api.InstanceID) bool {
	if f.q.cfg.Sight == nil {
		return nil
	}
	return f.q.cfg.Sight.Sees(f.Name)
}

// of returns a filter of the instances that a client's requests may go to; nil: any.
func of(sees func(client string, i api.InstanceID) bool, client string) func(api.InstanceID) bool {
	if sees == nil {
		return nil
	}
	return func(i api.InstanceID) bool { return sees(client, i) }
}
