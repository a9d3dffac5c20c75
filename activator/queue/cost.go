package queue

import (
	"time"

	"github.com/rouse-dev/rouse/api"
)

// costs divides the GPU time that a function's instances hold among its requests. At each moment an instance's GPUs are divided equally
// among the requests that have its slots. If none has one and the instance starts or wakes, they are divided equally among the requests
// that wait for the function. Otherwise no request pays for them.
//
// A clock adds up what one request would have paid so far. Each request pays what the clock has advanced during its stay, so what it
// paid is final when it ends. The function's mutex guards it.
type costs struct {
	holders map[api.InstanceID]*holder
	rising  float64 // the GPUs that waiting requests pay for
	queue   payers
}

// payers divide GPU time equally.
type payers struct {
	n     int
	clock float64 // in GPU-seconds
	at    time.Time
}

// join advances the clock of payers that hold gpus, and then adds n to them. It returns the clock.
func (p *payers) join(gpus float64, n int, now time.Time) float64 {
	if took := now.Sub(p.at); took > 0 {
		p.clock += gpus * took.Seconds() / float64(max(p.n, 1))
		p.at = now
	}
	p.n += n
	return p.clock
}

// holder is an instance that may hold GPUs.
type holder struct {
	gpus   float64 // what it holds awake
	rising bool    // it starts or wakes
	slots  payers
}

// change changes an instance, of which n more requests have slots, and returns the clock of these.
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

// occupy adds n to the requests with slots of s's instance; the request of s pays what it owes.
func (c *costs) occupy(s *Slot, n int, now time.Time) {
	clock := c.change(s.Instance, n, now, func(*holder) {})
	if n <= 0 {
		s.want.pay(clock - s.paid)
	}
	s.paid = clock
}

// queueUp adds n to the waiting requests; w, which is one of them, pays what it owes.
func (c *costs) queueUp(w *Want, n int, now time.Time) {
	clock := c.queue.join(c.rising, n, now)
	if n <= 0 {
		w.pay(clock - w.paid)
	}
	w.paid, w.queued = clock, n >= 0
}

// rises records whether an instance starts or wakes.
func (c *costs) rises(id api.InstanceID, rising bool, now time.Time) {
	c.change(id, 0, now, func(h *holder) { h.rising = rising })
}

// pay adds to what the request has used.
func (w *Want) pay(gpuSeconds float64) {
	if w == nil || gpuSeconds <= 0 {
		return
	}
	w.GPUSeconds += gpuSeconds
	if w.Pays != nil {
		w.Pays(gpuSeconds)
	}
}

// Hold records how many GPUs an instance holds while it is awake.
func (q *Queues) Hold(name api.FunctionName, id api.InstanceID, gpus float64) {
	f := q.function(name)
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
