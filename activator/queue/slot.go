package queue

import (
	"cmp"
	"net/http"
	"net/url"
	"time"

	"github.com/rouse-dev/rouse/activator/route"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/fair"
)

// Target is where a request may be sent.
type Target struct {
	Instance api.InstanceID
	Base     *url.URL // must not be changed
	Spec     *api.Function
}

// Slot is the right to send one request to an instance. [Slot.Done], [Slot.GiveBack] or [Slot.Yield] ends it.
type Slot struct {
	Target
	Choice api.Choice
	Waits  bool // a cluster, where requests wait for their turn

	f        *Function
	instance *route.Instance
	terms    terms
	taken    time.Time
	asked    time.Time // to give way; zero: never
	paid     float64   // up to here on the instance's clock
	trace    *Wake
	want     *Want      // nil: not yet known
	refused  *api.Error // in place of a slot
}

type terms struct {
	adapter  api.ModelName
	who      fair.Client // in the order of all activators
	client   string
	priority int
	// How many slots of its client's share it counts as.
	sequences int
	cost      float64
	told      bool // the holder of the request tells the others
}

// Used describes the use of a slot.
type Used struct {
	// Served is false if the client left or the request was ended.
	Served        bool
	Input, Output api.Tokens
	// Prompt is the server's own count; 0: unknown.
	Prompt api.Tokens
}

const usualOutput api.Tokens = 256

type outputs struct {
	tokens float64 // mean; 0: unknown
	took   float64 // mean, in nanoseconds
}

func (o *outputs) add(output api.Tokens, took time.Duration) {
	o.tokens, o.took = mean(o.tokens, float64(output)), mean(o.took, float64(took))
}

// Many clients ask for far more output than they use: the usual output bounds it.
func (o *outputs) cost(w *Want) float64 {
	return control.Cost(w.Input, w.atMost(cmp.Or(api.Tokens(o.tokens), usualOutput))*api.Tokens(max(w.Sequences, 1)))
}

// A mean of times per token would give short answers, which are mostly prompt, too much weight.
func (o *outputs) generates(in time.Duration) api.Tokens {
	return api.Tokens(float64(in) * o.tokens / max(o.took, 1))
}

func (w *Want) atMost(output api.Tokens) api.Tokens {
	if asked := w.Tokens - w.Input; asked > 0 {
		return min(output, asked)
	}
	return output
}

// The caller holds mu.
func (f *Function) termsOf(w *Want) terms {
	return terms{w.Adapter, clientOf(w.Source, w.Client), w.Client, w.Priority, w.Sequences, f.outputs.cost(w), w.AtOnce}
}

// The caller holds mu.
func (f *Function) take(i *route.Instance, why api.Choice, t terms) *Slot {
	now := time.Now()
	f.slots++
	t.sequences = min(max(t.sequences, 1), max(f.set.Capacity(now), 1))
	f.Metrics.Running(1)
	f.queue.shares.Add(t.client, 0, t.sequences)
	f.tellOthers(t, t.cost)
	f.queue.order.Charge(t.who, t.priority, t.cost)
	s := &Slot{
		Target: Target{Instance: i.ID, Base: i.Base(), Spec: f.Spec()}, Choice: why, Waits: i.Status().Waits > 0,
		f: f, instance: i, terms: t, taken: now,
	}
	f.costs.occupy(s, 1, s.taken)
	return s
}

// The caller holds mu.
func (s *Slot) assign(w *Want) *Slot {
	s.want, w.slot, w.pauses = w, s, false
	if w.Background {
		s.f.background++
	}
	return s
}

// release frees the slot and corrects its charge to cost. The caller holds mu.
func (s *Slot) release(cost float64) {
	f, t := s.f, s.terms
	f.queue.order.Settle(t.who, t.priority, cost-t.cost)
	f.queue.shares.Add(t.client, 0, -t.sequences)
	f.tellOthers(t, cost-t.cost)
	f.slots--
	f.costs.occupy(s, -1, time.Now())
	if w := s.want; w != nil {
		w.slot = nil
		if w.Background {
			f.background--
		}
	}
	f.Metrics.Running(-1)
	f.set.Release(s.instance, t.adapter)
}

func (f *Function) tellOthers(t terms, cost float64) {
	if others := f.q.cfg.Others; others != nil && !t.told {
		others.Served(control.ClientUse{Function: f.Name, Priority: t.priority, Source: t.who.Source, Client: t.client, Cost: cost})
	}
}

// Done ends the request. u includes what [Slot.Yield] was told.
func (s *Slot) Done(u Used) {
	f, now := s.f, time.Now()
	f.mu.Lock()
	s.release(s.want.charge(u))
	if u.Served && u.Output > 0 {
		f.outputs.add(u.Output, now.Sub(s.taken))
	}
	if u.Served {
		f.queue.Served(now)
		f.set.Served(s.instance)
		f.set.Count(s.want.Prompt, u.Prompt)
	}
	wanted := f.queue.Len() > 0
	f.mu.Unlock()
	if wanted {
		f.dispatch()
	}
	f.meter.changed()
	f.gather()
}

// GiveBack gives back the slot of an instance that refused the request or failed with code, and avoids it for a
// while. Empty: the request's turn did not come, and the instance is not avoided.
func (s *Slot) GiveBack(code string) { s.giveBack(code, 0) }

// Yield is GiveBack of a stream that continues; its client is charged for u, all that it has used so far.
func (s *Slot) Yield(code string, u Used) { s.giveBack(code, s.want.charge(u)) }

// charge returns the part of u's cost not charged yet.
func (w *Want) charge(u Used) float64 {
	more := max(control.Cost(u.Input, u.Output)-w.charged, 0)
	w.charged += more
	return more
}

func (s *Slot) giveBack(code string, cost float64) {
	f, now := s.f, time.Now()
	f.mu.Lock()
	s.release(cost)
	if code != "" {
		f.retry.arm(f.set.Avoid(s.instance, code, now), now)
	}
	f.unavailable.set(!f.set.Awake(now), now)
	f.mu.Unlock()
	f.dispatch()
	f.meter.changed()
}

// Generated estimates the tokens generated so far for a request without a stream.
func (s *Slot) Generated() api.Tokens {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if s.f.outputs.tokens == 0 {
		return s.want.atMost(usualOutput)
	}
	return s.want.atMost(s.f.outputs.generates(time.Since(s.taken)))
}

// mean is an exponential mean over about the last eight; 0 begins one.
func mean(of, value float64) float64 { return cmp.Or(of, value) + (value-cmp.Or(of, value))/8 }

// Turn returns the request's place in the order of all activators.
func (s *Slot) Turn() control.Turn {
	w, t := s.want, s.terms
	return control.Turn{Source: t.who.Source, Client: t.who.Name, Priority: fair.Clamp(t.priority), Waited: w.held, Most: min(control.MaxTurn, s.Spec.Hold.Timeout-w.there), Cost: t.cost, Sequences: w.Sequences}
}

// Waited records a wait for a turn at the instance.
func (s *Slot) Waited(d time.Duration) {
	w, now := s.want, time.Now()
	w.held, w.there = w.held+d, w.there+d
	if w.since.IsZero() {
		w.since = now.Add(-d)
	}
	s.f.mu.Lock()
	s.taken = s.taken.Add(d)
	if s.Choice.Running < s.Choice.Slots {
		s.f.set.Shared(s.instance, now)
	}
	s.f.mu.Unlock()
	s.f.dispatch()
}

// Alternatives returns the hosts of up to most other instances for the request.
func (s *Slot) Alternatives(most int) (hosts []string) {
	f := s.f
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range f.set.Next(s.instance, most, time.Now(), s.want.Want, of(f.sees(), s.want.Client)) {
		hosts = append(hosts, i.Base().Host)
	}
	return hosts
}

// Move moves the slot to the instance at host; false: there is none.
func (s *Slot) Move(host string) bool {
	f, now := s.f, time.Now()
	f.mu.Lock()
	i := f.set.Move(s.instance, host, now, s.want.Want)
	if i != nil {
		f.costs.occupy(s, -1, now)
		s.instance, s.Instance, s.Base = i, i.ID, i.Base()
		f.costs.occupy(s, 1, now)
		f.retry.arm(f.set.NextTry(now), now)
	}
	f.mu.Unlock()
	if i != nil {
		f.dispatch()
	}
	return i != nil
}

func (f *Function) again() {
	now := time.Now()
	f.mu.Lock()
	f.retry.at = time.Time{}
	if next := f.set.NextTry(now); !next.IsZero() {
		f.retry.arm(next, now)
	}
	f.unavailable.set(!f.set.Awake(now), now)
	f.beginWake(now)
	f.checkShares(now)
	f.mu.Unlock()
	f.dispatch()
}

// shed ends the latest running request of the lowest priority below 0 for w. The caller holds mu.
func (f *Function) shed(w *Want) {
	if !f.Spec().Hold.EvictSheddable || w.Priority < 0 {
		return
	}
	var victim *Want
	for v := range f.wants {
		if v.slot == nil || v.Priority >= 0 || !v.slot.asked.IsZero() {
			continue
		}
		if victim == nil || cmp.Or(v.Priority-victim.Priority, victim.Begun.Compare(v.Begun)) < 0 {
			victim = v
		}
	}
	if victim == nil {
		return
	}
	victim.slot.asked = time.Now()
	victim.End(api.Errorf(http.StatusTooManyRequests, CodeEvicted, "the request was ended for one with a higher priority (rouse.dev/evict-sheddable of %s): send it again", f.Name).
		WithRetryAfter(f.queue.RetryAfter(0)))
}

// costs divides the GPU time of a function's instances: among the requests with slots; without any, of a rising
// instance, among those that wait. A clock adds up what one request would have paid; each pays its advance during
// its stay.
type costs struct {
	holders map[api.InstanceID]*holder
	rising  float64 // GPUs that waiting requests pay for
	queue   payers
}

type payers struct {
	n     int
	clock float64 // GPU-seconds
	at    time.Time
}

// join advances the clock by the time of gpus since at, then adds n payers.
func (p *payers) join(gpus float64, n int, now time.Time) float64 {
	if took := now.Sub(p.at); took > 0 {
		p.clock += gpus * took.Seconds() / float64(max(p.n, 1))
		p.at = now
	}
	p.n += n
	return p.clock
}

type holder struct {
	gpus   float64 // while awake
	rising bool    // it starts or wakes
	slots  payers
}

// change changes an instance and adds n to its payers, whose clock it returns.
func (c *costs) change(id api.InstanceID, n int, now time.Time, change func(*holder)) float64 {
	c.queue.join(c.rising, 0, now)
	h := c.holders[id]
	if h == nil {
		h = &holder{}
		c.holders[id] = h
	}
	unpaid := func() float64 {
		if h.rising && h.slots.n == 0 {
			return h.gpus
		}
		return 0
	}
	c.rising -= unpaid()
	clock := h.slots.join(h.gpus, n, now)
	change(h)
	c.rising += unpaid()
	if h.gpus == 0 && !h.rising && h.slots.n == 0 {
		delete(c.holders, id)
	}
	return clock
}

// occupy adds n payers; s's request pays what it owes.
func (c *costs) occupy(s *Slot, n int, now time.Time) {
	clock := c.change(s.Instance, n, now, func(*holder) {})
	if n <= 0 {
		s.want.pay(clock - s.paid)
	}
	s.paid = clock
}

// queueUp adds n waiting payers; w pays what it owes.
func (c *costs) queueUp(w *Want, n int, now time.Time) {
	clock := c.queue.join(c.rising, n, now)
	if n <= 0 {
		w.pay(clock - w.paid)
	}
	w.paid, w.queued = clock, n >= 0
}

func (c *costs) rises(id api.InstanceID, rising bool, now time.Time) {
	c.change(id, 0, now, func(h *holder) { h.rising = rising })
}

func (w *Want) pay(gpuSeconds float64) {
	if w == nil || gpuSeconds <= 0 {
		return
	}
	w.GPUSeconds += gpuSeconds
	if w.Pays != nil {
		w.Pays(gpuSeconds)
	}
}

// Hold records how many GPUs an instance holds while awake.
func (q *Queues) Hold(name api.FunctionName, id api.InstanceID, gpus float64) {
	f := q.begin(name, false)
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.costs.change(id, 0, time.Now(), func(h *holder) { h.gpus = gpus })
}

// Charge makes all requests pay for their stay so far.
func (q *Queues) Charge() {
	for _, f := range q.All() {
		f.mu.Lock()
		now := time.Now()
		for w := range f.wants {
			if w.queued {
				f.costs.queueUp(w, 0, now)
			}
			if w.slot != nil {
				f.costs.occupy(w.slot, 0, now)
			}
		}
		f.mu.Unlock()
	}
}
