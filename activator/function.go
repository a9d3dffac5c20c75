package activator

import (
	"cmp"
	"net/url"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/activator/demand"
	"github.com/rouse-dev/rouse/activator/hold"
	"github.com/rouse-dev/rouse/activator/metrics"
	"github.com/rouse-dev/rouse/activator/route"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// function is this activator's state of one function: its instances, its waiting and running requests, and its
// demand. One mutex guards the queue and the instances together, so that "no slot is free" and "then wait" are one
// step.
//
// Whatever may free a slot or wake an instance calls [function.dispatch] afterwards, which returns only when no
// request waits or no slot is free. So a request in the queue need not try again.
type function struct {
	name    api.FunctionName
	created time.Time
	a       *Activator
	metrics *metrics.Function
	meter   *demand.Meter

	mu         sync.Mutex // guards all below; never held while blocking
	spec       api.Function
	declared   bool // by PutFunction; reports and grants may come before it
	queue      hold.Queue[*slot]
	set        route.Set
	calls      map[*call]struct{} // all that wait or run
	sheds      map[*call]struct{} // running calls that may be ended for others
	slots      int                // in use
	background int                // of these, slots of background requests
	known      []api.ModelName    // the adapters in the directory
	seen       []api.ModelName    // the adapters in the instances' last reports
	last       time.Time          // when the last request arrived
	output     api.Tokens         // the mean output of the last answers; 0: unknown
	pace       time.Duration      // the mean time of an output token, likewise; 0: unknown
	// Why the function can't start, from the autoscaler; nil: it can. And until when; zero: until an instance is
	// awake.
	failed      *api.Error
	failedUntil time.Time
	waking      underway
	preferred   preferred
	trace       *wakeTrace // of the wake that requests wait for; nil: none
	// The last known durations of a wake and a start; 0 while unknown.
	wakeTime, loadTime time.Duration
	unavailable        clock       // no instance is awake
	paused             clock       // waiting for a node or for the model to be fetched: the limits of waiting requests stand still
	retry              *time.Timer // dispatches again when an instance is avoided or a wake is paused
	retryAt            time.Time   // zero: not armed
}

// slot is the result of a wait: an instance, or the reason for refusal.
type slot struct {
	instance   *route.Instance
	why        api.Choice
	adapter    api.ModelName // the adapter that it is reserved for
	base       *url.URL
	limits     limits
	refused    *api.Error
	trace      *wakeTrace // the trace that the request ends; nil: none
	charge     hold.Charge[*slot]
	client     string
	priority   int
	cost       float64 // the cost charged so far
	taken      time.Time
	call       *call // the call if it may be ended for another; otherwise nil
	background bool  // its request runs in the background
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

func newFunction(a *Activator, name api.FunctionName) *function {
	f := &function{name: name, created: time.Now(), a: a, calls: make(map[*call]struct{}), sheds: make(map[*call]struct{})}
	f.metrics = a.metrics.Of(name)
	f.meter = demand.New(f.level, a.deps.Emitter, "/activator/"+a.cfg.Name)
	f.unavailable.set(true, f.created)
	f.retry = time.AfterFunc(time.Hour, f.again)
	f.retry.Stop()
	return f
}

// level returns the demand to report to the autoscaler.
func (f *function) level() api.Demand {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	d := api.Demand{
		Function: f.name, Activator: f.a.cfg.Name,
		Waiting: f.queue.Len(), Shared: f.queue.Shared(), OldestAge: f.queue.Oldest(now), WaitingTokens: f.queue.Tokens(),
		Running: f.slots - f.background, Background: f.background, LastRequest: f.last, Waking: f.waking.instance, Prefers: f.preferred.instance, At: now,
	}
	if d.Waiting > 0 && f.queue.Picky() == d.Waiting {
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

// take returns a slot of i, which was just picked, and charges the client. The caller holds mu.
func (f *function) take(i *route.Instance, why api.Choice, adapter api.ModelName, client string, priority int, cost float64) *slot {
	f.slots++
	f.metrics.Running(1)
	f.served(client, priority, cost)
	return &slot{instance: i, why: why, adapter: adapter, taken: time.Now(), base: i.Base(), limits: f.limits(), charge: f.queue.Charge(client, priority, cost), client: client, priority: priority, cost: cost}
}

// usualOutput is the assumed number of output tokens before any answer was seen.
const usualOutput api.Tokens = 256

// cost estimates the cost of a request. Many clients ask for far more output than they use, so the usual output
// bounds it. The caller holds mu.
func (f *function) cost(r *request) float64 {
	output := cmp.Or(f.output, usualOutput)
	if asked := r.Tokens - r.Input; asked > 0 {
		output = min(output, asked)
	}
	return hold.Cost(r.Input, output)
}

// made estimates the tokens generated for a request that is not a stream and whose answer has not begun.
func (f *function) made(s *slot, r *request) api.Tokens {
	f.mu.Lock()
	defer f.mu.Unlock()
	output := cmp.Or(f.output, usualOutput)
	if f.pace > 0 {
		output = api.Tokens(time.Since(s.taken) / f.pace)
	}
	if asked := r.Tokens - r.Input; asked > 0 {
		output = min(output, asked)
	}
	return output
}

// limits returns the limits of a request that is sent now. The caller holds mu.
func (f *function) limits() limits {
	return limits{last: f.spec.RequestTimeout, first: f.spec.FirstByteTimeout, idle: f.spec.IdleTimeout, credentials: f.spec.PassCredentials,
		resumes: f.spec.Resumes(), moves: f.spec.Moves(), handled: f.spec.TellsState() && len(f.spec.Handler) > 0}
}

// release gives a slot back and corrects its charge to the actual cost. The caller holds mu.
func (f *function) release(s *slot, cost float64) {
	f.queue.Settle(s.charge, cost)
	f.served(s.client, s.priority, cost-s.cost)
	delete(f.sheds, s.call)
	f.slots--
	if s.background {
		f.background--
	}
	f.metrics.Running(-1)
	f.set.Release(s.instance, s.adapter)
}

// served tells the other activators the cost of a client's requests. It does not block.
func (f *function) served(client string, priority int, cost float64) {
	if others := f.a.deps.Others; others != nil {
		others.Served(control.ClientUse{Function: f.name, Priority: priority, Client: client, Cost: cost})
	}
}

// servedElsewhere charges the cost that another activator reported.
func (f *function) servedElsewhere(u control.ClientUse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue.Elsewhere(u.Client, u.Priority, u.Cost)
}

// forget removes a call that has ended and holds no slot.
func (f *function) forget(c *call) {
	f.mu.Lock()
	delete(f.calls, c)
	f.mu.Unlock()
}

// finish gives a slot back after the last byte, or after the client left. input and output are the tokens used.
func (f *function) finish(s *slot, served bool, input, output api.Tokens) {
	now := time.Now()
	f.mu.Lock()
	f.release(s, hold.Cost(input, output))
	if served && output > 0 {
		pace := now.Sub(s.taken) / time.Duration(output)
		f.pace += (pace - cmp.Or(f.pace, pace)) / 8
		f.pace = cmp.Or(f.pace, pace)
		f.output += (output - cmp.Or(f.output, output)) / 8 // an exponential mean over about the last eight
		f.output = cmp.Or(f.output, output)
	}
	if served {
		f.queue.Served(now)
		f.set.Served(s.instance)
	}
	wanted := f.queue.Len() > 0
	f.mu.Unlock()
	if wanted {
		f.dispatch()
	}
	f.meter.Changed()
	f.gather()
}

// giveBack gives back the slot of an instance that refused the request or failed.
func (f *function) giveBack(s *slot, code string) {
	now := time.Now()
	f.mu.Lock()
	f.release(s, 0)
	f.callAgain(f.set.Avoid(s.instance, code, now), now)
	f.unavailable.set(!f.set.Awake(now), now)
	f.mu.Unlock()
	f.dispatch()
	f.meter.Changed()
}

// callAgain schedules another dispatch at the given time. The caller holds mu.
func (f *function) callAgain(at, now time.Time) {
	if !f.retryAt.IsZero() && !at.Before(f.retryAt) {
		return
	}
	f.retryAt = at
	f.retry.Reset(max(at.Sub(now), 0))
}

// again runs on the timer: an instance may be retried, or a wake begun.
func (f *function) again() {
	now := time.Now()
	f.mu.Lock()
	f.retryAt = time.Time{}
	if next := f.set.NextTry(now); !next.IsZero() {
		f.callAgain(next, now)
	}
	f.unavailable.set(!f.set.Awake(now), now)
	f.beginWake(now)
	f.mu.Unlock()
	f.dispatch()
}

// cut ends all waiting and running requests with err.
func (f *function) cut(err *api.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.calls {
		c.cancel(err)
	}
}
