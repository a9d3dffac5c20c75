package queue

import (
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Codes of refusals.
const (
	CodeHoldTimeout = "hold_timeout"
	CodeEvicted     = "evicted" // in favor of another request
)

// refusal returns why f accepts no requests at all; nil if it does. The caller holds mu.
func (f *Function) refusal(now time.Time) *api.Error {
	switch {
	case !f.declared:
		return api.Errorf(http.StatusNotFound, api.CodeModelNotFound, "the function %s was removed", f.Name)
	case f.failed == nil:
		return nil
	case !f.failedUntil.IsZero() && !now.Before(f.failedUntil):
		f.failed = nil // let one request try again: its demand makes the autoscaler try too
		return nil
	}
	return f.failed
}

// notAmong is the refusal of a request that strays.
func notAmong() *api.Error {
	return api.Errorf(http.StatusServiceUnavailable, api.CodeNoCapacity, "none of the endpoints that the gateway allows takes requests now: try again").WithRetryAfter(time.Second)
}

// timedOut returns the error for a request that waited too long. why names the obstacle, empty if unknown. The
// caller holds mu.
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

// full returns the error for a request that can't enter the queue, or was displaced by w. The caller holds mu.
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
