package activator

import (
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Messages to a client whose request was ended; %s is the limit.
const (
	tookTooLong   = "the answer took longer than the function's limit of %s (timeoutSeconds or " + api.AnnotationRequestTimeout + ")"
	beganTooLate  = "the answer did not begin within the function's limit of %s (responseStartTimeoutSeconds, idleTimeoutSeconds or " + api.AnnotationFirstByteTimeout + ")"
	pausedTooLong = "the answer paused for longer than the function's limit of %s (idleTimeoutSeconds or " + api.AnnotationIdleTimeout + ")"
	clientsLimit  = "the answer took longer than the client's " + headerTimeout + " of %s"
)

func (c *call) limit(d time.Duration, message string) (stop func() bool) {
	if d <= 0 {
		return func() bool { return false }
	}
	return time.AfterFunc(d, func() { c.tooLate(d, message) }).Stop
}

// tooLate ends the call with a 504, or with an error at its end if the answer has begun.
func (c *call) tooLate(limit time.Duration, message string) {
	c.cancel(api.Errorf(http.StatusGatewayTimeout, api.CodeRequestTimeout, message, limit))
}
