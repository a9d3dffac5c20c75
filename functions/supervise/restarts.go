package supervise

import (
	"math"
	"time"

	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/runtime"
)

const (
	firstPause   = 100 * time.Millisecond // before a restart; doubles
	longestPause = 10 * time.Second
	maxFailures  = 3 // starts or wakes in a row
	maxSlow      = 7 // starts that the server itself gave up because the machine is busy, which are not among these
)

// restarts counts failures, and decides when a failed runtime is started again.
type restarts struct {
	log        *process.Log  // the runtime's output, whose last lines explain a failure
	backoff    time.Duration // the last pause before a restart
	retryAt    time.Time     // when a start may be tried again
	failures   int           // starts and wakes that failed in a row
	gaveUp     bool          // too many of them
	noRoom     bool          // the last of them failed for want of GPU memory
	slow       int           // starts that were too slow for the server, since it was awake
	message    string        // why it is unhealthy
	count      int           // of restarts
	awakeSince time.Time     // the last time that it became awake
}

// tryAnew resets a runtime that was given up: a caller asks for it again.
func (r *restarts) tryAnew() {
	if r.gaveUp {
		r.gaveUp, r.failures, r.backoff, r.retryAt = false, 0, 0, time.Time{}
	}
}

func (r *restarts) awoke(now time.Time) {
	r.failures, r.slow, r.gaveUp, r.noRoom, r.message, r.awakeSince = 0, 0, false, false, "", now
}

// tooSlow reports whether the server gave up its start because the machine is busy, and is to be started again at once.
func (r *restarts) tooSlow() bool {
	if r.slow >= maxSlow || !runtime.TooSlow(r.log.Message(math.MaxInt)) {
		return false
	}
	r.slow++
	return true
}

// failedToCome counts a failed start or wake, and reports whether it was the last attempt: the failure is permanent, or there were too
// many. Then the runtime is given up, unless others restart it.
func (r *restarts) failedToCome(permanent, attached, noRoom bool) (last bool) {
	r.failures++
	last = permanent || r.failures >= maxFailures
	r.gaveUp, r.noRoom = last && !attached, noRoom
	return last
}

// explained records why the process ended when that is no failure, because nobody wants it awake.
func (r *restarts) explained(reason string) { r.message = explain(reason, r.log) }

// failed sets the time of the next start, and its reason. A runtime that was awake for longer than the last pause begins with the first
// pause again.
func (r *restarts) failed(now time.Time, awake bool, reason string) {
	if awake && now.Sub(r.awakeSince) > r.backoff {
		r.backoff = 0
	}
	r.backoff = min(max(2*r.backoff, firstPause), longestPause)
	r.retryAt = now.Add(r.backoff)
	r.explained(reason)
}
