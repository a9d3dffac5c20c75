package activator

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// Messages to a client whose request was ended; %s is the limit.
const (
	tookTooLong   = "the answer took longer than the function's limit of %s (timeoutSeconds or " + api.AnnotationRequestTimeout + ")"
	beganTooLate  = "the answer did not begin within the function's limit of %s (responseStartTimeoutSeconds, idleTimeoutSeconds or " + api.AnnotationFirstByteTimeout + ")"
	pausedTooLong = "the answer paused for longer than the function's limit of %s (idleTimeoutSeconds or " + api.AnnotationIdleTimeout + ")"
	clientsLimit  = "the answer took longer than the client's " + headerTimeout + " of %s"
)

// timeout ends the call when its time is up. The zero value has no limit.
type timeout struct {
	timer *time.Timer
	limit time.Duration
}

// limit starts a timeout; 0: no limit.
func (c *call) limit(d time.Duration, message string) (t timeout) {
	if d > 0 {
		t = timeout{time.AfterFunc(d, func() { c.tooLate(d, message) }), d}
	}
	return t
}

func (t timeout) stop() {
	if t.timer != nil {
		t.timer.Stop()
	}
}

// restart lets the time begin again, unless it is up.
func (t timeout) restart() {
	if t.timer != nil && t.timer.Stop() {
		t.timer.Reset(t.limit)
	}
}

// fromTurn returns a context for an attempt whose timeouts begin again when the request has waited for its turn at the
// instance: only then it is sent to the runtime.
func fromTurn(ctx context.Context, of ...timeout) context.Context {
	if !slices.ContainsFunc(of, func(t timeout) bool { return t.timer != nil }) {
		return ctx
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: func(status int, h textproto.MIMEHeader) error {
		if status == http.StatusProcessing && h.Get(control.HeaderQueue) != "" {
			for _, t := range of {
				t.restart()
			}
		}
		return nil
	}})
}

// tooLate ends the call with a 504, or with an error at its end if the answer has begun.
func (c *call) tooLate(limit time.Duration, message string) {
	c.cancel(api.Errorf(http.StatusGatewayTimeout, api.CodeRequestTimeout, message, limit))
}
