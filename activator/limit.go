package activator

import (
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// limits bound one attempt, from its dispatch; 0: no limit.
type limits struct {
	last  time.Duration // to the last byte
	first time.Duration // to the first one
	idle  time.Duration // of a pause after it

	credentials bool // whether the client's are passed on
	resumes     bool // whether instances go on with a stream of another one
	moves       bool // whether they end requests to give way
	handled     bool // whether their runtime tells its streams' state, and a program before it keeps them from going on
}

// Messages to a client whose request was ended; %s is the limit.
const (
	tookTooLong   = "the answer took longer than the function's limit of %s (timeoutSeconds or " + api.AnnotationRequestTimeout + ")"
	beganTooLate  = "the answer did not begin within the function's limit of %s (responseStartTimeoutSeconds, idleTimeoutSeconds or " + api.AnnotationFirstByteTimeout + ")"
	pausedTooLong = "the answer paused for longer than the function's limit of %s (idleTimeoutSeconds or " + api.AnnotationIdleTimeout + ")"
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
