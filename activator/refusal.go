package activator

import (
	"fmt"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/activator/hold"
	"github.com/rouse-dev/rouse/api"
)

// refusal returns why f accepts no requests at all; nil if it does. The caller holds mu.
func (f *function) refusal(now time.Time) *api.Error {
	switch {
	case !f.declared:
		return api.Errorf(http.StatusNotFound, api.CodeModelNotFound, "the function %s was removed", f.name)
	case f.failed == nil:
		return nil
	case !f.failedUntil.IsZero() && !now.Before(f.failedUntil):
		f.failed = nil // let one request try again: its demand makes the autoscaler try too
		return nil
	}
	return f.failed
}

// explain adds to e, if it reports a failed start, the reason, if the caller may know it. It is called without a
// lock.
func (f *function) explain(e *api.Error, r *http.Request) *api.Error {
	if f.a.deps.LastError == nil || e.Code != api.CodeStartFailed && e.Code != api.CodeUnhealthy {
		return e
	}
	t := *e
	if why := f.a.deps.LastError(r, f.name); why != "" {
		t.Message = fmt.Sprintf("%s could not be brought up: %s", f.name, why)
	}
	return &t
}

// timedOut returns the error for a request that waited too long. why names the obstacle, empty if unknown. The
// caller holds mu.
func (f *function) timedOut(now time.Time, why string) *api.Error {
	err := api.Errorf(http.StatusServiceUnavailable, api.CodeHoldTimeout,
		"no instance of %s took the request within %s (rouse.dev/hold-timeout)", f.name, f.spec.Hold.Timeout)
	if st, found := f.obstacle(now); found {
		why = st.Message
	}
	if why != "" {
		err.Message += ": " + why
	}
	return err.WithRetryAfter(f.queue.RetryAfter(f.expected(now)))
}

// full returns the error for a request that can't enter the queue. The caller holds mu.
func (f *function) full(r *request, why hold.Full, now time.Time) *api.Error {
	expected := f.expected(now)
	after := f.queue.RetryAfter(expected)
	switch why {
	case hold.FullDeadline:
		wait := f.spec.Hold.Timeout
		if !r.deadline.IsZero() {
			wait = min(wait, r.deadline.Sub(now))
		}
		return api.Errorf(http.StatusServiceUnavailable, api.CodeHoldTimeout,
			"%s is expected to take requests in %s, and this one may wait %s: give it more time",
			f.name, expected.Round(time.Millisecond), wait.Round(time.Millisecond)).WithRetryAfter(after)
	case hold.FullBytes:
		return api.Errorf(http.StatusTooManyRequests, api.CodeHoldFull,
			"the bodies of %d requests that wait for %s take %s, and %s may be used (rouse.dev/hold-memory)",
			f.queue.Len(), f.name, f.queue.Bytes(), f.spec.Hold.MaxBytes).WithRetryAfter(after)
	}
	return api.Errorf(http.StatusTooManyRequests, api.CodeHoldFull,
		"%d requests wait for %s already, which is the limit (rouse.dev/hold-capacity)", f.queue.Len(), f.name).WithRetryAfter(after)
}

// crowdedOut returns the error for requests that another one displaced. The caller holds mu.
func (f *function) crowdedOut(now time.Time) *api.Error {
	return api.Errorf(http.StatusTooManyRequests, api.CodeHoldFull,
		"%d requests wait for %s, which is the limit (rouse.dev/hold-capacity, rouse.dev/hold-memory), and this client has more than its share of them", f.queue.Len(), f.name).
		WithRetryAfter(f.queue.RetryAfter(f.expected(now)))
}

func (f *function) refuseHeld(err *api.Error) {
	for e := f.evict(); e != nil; e = f.evict() {
		e.Offer(&slot{refused: err}) // a client that left needs no refusal
	}
	f.meter.Changed()
}

// evict removes the first request from the queue and returns it, or nil.
func (f *function) evict() *hold.Entry[*slot] {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.queue.Next()
	f.metrics.Held(f.queue.Len(), f.queue.Bytes())
	return e
}

// runs records that c has a slot, and returns s. If the function evicts sheddable requests and c is one, c may be ended
// for others. The caller holds mu.
func (f *function) runs(c *call, s *slot) *slot {
	if f.spec.Hold.EvictSheddable && c.req.Priority < 0 {
		s.call = c
		f.sheds[c] = struct{}{}
	}
	if c.background {
		s.background = true
		f.background++
	}
	return s
}

// shed ends a running request so that c, which waits and is not sheddable itself, gets its slot. The victim is the
// latest request of the lowest priority. Its slot is free once it has ended. The caller holds mu.
func (f *function) shed(c *call) {
	if !f.spec.Hold.EvictSheddable || c.req.Priority < 0 {
		return
	}
	var victim *call
	for v := range f.sheds {
		if victim == nil || v.req.Priority < victim.req.Priority || v.req.Priority == victim.req.Priority && v.req.begun.After(victim.req.begun) {
			victim = v
		}
	}
	if victim == nil {
		return
	}
	delete(f.sheds, victim)
	victim.cancel(api.Errorf(http.StatusTooManyRequests, api.CodeEvicted, "the request was ended for one with a higher priority (rouse.dev/evict-sheddable of %s): send it again", f.name).
		WithRetryAfter(f.queue.RetryAfter(0)))
}

// notStored refuses a request that uses a store of responses: in front of this activator nothing handles the field.
func (a *Activator) notStored(field string) *api.Error {
	how := a.cfg.Stored
	if how == "" {
		how = "this server has no store"
	}
	return api.BadRequest(field, "%s can't be kept: responses are not stored here: %s, or leave it out", field, how)
}
