package activator

import (
	"net/http"
	"strconv"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// headerTimeout is how long the client waits for the whole answer: seconds, or a Go duration.
const headerTimeout = "X-Request-Timeout"

// limits bound one attempt, from its dispatch; 0: not at all.
type limits struct {
	last  time.Duration // to the last byte
	first time.Duration // to the first one
	idle  time.Duration // of a pause after it

	credentials bool // the client's may go along
}

// What a client is told whose request was ended; %s is the limit.
const (
	tookTooLong   = "the answer took longer than the function's limit of %s (" + api.AnnotationRequestTimeout + ")"
	beganTooLate  = "the answer did not begin within the function's limit of %s (" + api.AnnotationFirstByteTimeout + ")"
	pausedTooLong = "the answer paused for longer than the function's limit of %s (" + api.AnnotationIdleTimeout + ")"
	clientsLimit  = "the answer took longer than the client's " + headerTimeout + " of %s"
)

// limit ends the call after d; 0 means no limit.
func (c *call) limit(d time.Duration, message string) (stop func() bool) {
	if d <= 0 {
		return func() bool { return false }
	}
	return time.AfterFunc(d, func() { c.tooLate(d, message) }).Stop
}

// tooLate ends the call with a 504, or where the answer has begun with an error at the end of it.
func (c *call) tooLate(limit time.Duration, message string) {
	c.cancel(api.Errorf(http.StatusGatewayTimeout, api.CodeRequestTimeout, message, limit))
}

// timeLimit reads the client's time limit.
func (c *call) timeLimit() error {
	v := c.r.Header.Get(headerTimeout)
	if v == "" {
		return nil
	}
	d, err := time.ParseDuration(v)
	if seconds, err2 := strconv.ParseFloat(v, 64); err2 == nil {
		d, err = time.Duration(min(seconds, 1e9)*float64(time.Second)), nil
	}
	if err != nil || d <= 0 {
		return api.BadRequest("", "the header %s is %s: want seconds, or a duration such as 1m30s", headerTimeout, quoteName(v))
	}
	c.deadline = c.begun.Add(d)
	c.limit(d, clientsLimit)
	return nil
}

// entryDeadline is how long the call may wait from now.
func (c *call) entryDeadline(hold time.Duration, now time.Time) time.Duration {
	if !c.deadline.IsZero() {
		return min(hold, c.deadline.Sub(now))
	}
	return hold
}
