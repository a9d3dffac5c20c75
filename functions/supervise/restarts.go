package supervise

import "time"

const (
	firstPause   = 100 * time.Millisecond // before a restart; doubles
	longestPause = 10 * time.Second
	maxFailures  = 3 // starts or wakes in a row
)

// restarts counts failures, and says when a runtime that failed is started again.
type restarts struct {
	backoff    time.Duration // the last pause before a restart
	retryAt    time.Time     // when a start may be tried again
	failures   int           // starts and wakes that failed in a row
	gaveUp     bool          // too many of them
	noRoom     bool          // the last of them failed for want of GPU memory
	message    string        // why it is unhealthy
	count      int           // of restarts
	awakeSince time.Time     // the last time that it became awake
}

// tryAnew forgets the failures of one that was given up: somebody asks for it again.
func (r *restarts) tryAnew() {
	if r.gaveUp {
		r.gaveUp, r.failures, r.backoff, r.retryAt = false, 0, 0, time.Time{}
	}
}

// awoke notes a success.
func (r *restarts) awoke(now time.Time) {
	r.failures, r.gaveUp, r.noRoom, r.message, r.awakeSince = 0, false, false, "", now
}

// failedToCome counts a failed start or wake, and says whether it was the last of its series: a try more is in vain, or
// there were too many. It is given up then, unless others see to its restart.
func (r *restarts) failedToCome(permanent, attached, noRoom bool) (last bool) {
	r.failures++
	last = permanent || r.failures >= maxFailures
	r.gaveUp, r.noRoom = last && !attached, noRoom
	return last
}

// explained notes why it ended where that is no failure: nobody wants it awake.
func (r *restarts) explained(message string) { r.message = message }

// failed sets the time of the next start, and why there is to be one. One that was awake for longer than the last pause does not fail at
// once: who waits for it waits for the first pause again.
func (r *restarts) failed(now time.Time, awake bool, message string) {
	if awake && now.Sub(r.awakeSince) > r.backoff {
		r.backoff = 0
	}
	r.backoff = min(max(2*r.backoff, firstPause), longestPause)
	r.retryAt, r.message = now.Add(r.backoff), message
}
