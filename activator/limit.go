package activator

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// Messages to a client whose request was ended; %s is the limit.
const (
	tookTooLong   = "the answer took longer than the function's limit of %s (timeoutSeconds or rouse.dev/request-timeout)"
	beganTooLate  = "the answer did not begin within the function's limit of %s (responseStartTimeoutSeconds, idleTimeoutSeconds or rouse.dev/first-byte-timeout)"
	pausedTooLong = "the answer paused for longer than the function's limit of %s (idleTimeoutSeconds or rouse.dev/idle-timeout)"
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

// whileQueued returns a context for an attempt whose request may wait for its turn at the instance. Until that the
// limits stand still and the client reads comments, since the request is with no runtime yet.
func (c *call) whileQueued(limits ...timeout) context.Context {
	began := time.Now()
	return httptrace.WithClientTrace(c.ctx, &httptrace.ClientTrace{Got1xxResponse: func(status int, h textproto.MIMEHeader) error {
		ms := h.Get(control.HeaderQueue)
		switch {
		case status != http.StatusProcessing || ms == "":
		case ms == "0":
			c.sent.queued.Store(true)
			for _, t := range limits {
				t.stop()
			}
			if c.req.commented() {
				c.reply.comment.begin(c.f, began)
			}
		case c.sent.queued.CompareAndSwap(true, false):
			c.reply.comment.dispatched()
			for _, t := range limits {
				if t.timer != nil {
					t.timer.Reset(t.limit)
				}
			}
		}
		return nil
	}})
}

// tellTurn tells the front door that holds the request that its wait here begins, with 0, or for how many milliseconds
// it has waited.
func (c *call) tellTurn(ms int64) {
	if c.req.peer.Turn.Client == 0 {
		return
	}
	c.reply.w.Header()[control.HeaderQueue] = []string{strconv.FormatInt(ms, 10)}
	if c.sent.attempts == 0 {
		c.reply.w.WriteHeader(http.StatusProcessing)
	}
}

// tooLate ends the call with a 504, or with an error at its end if the answer has begun.
func (c *call) tooLate(limit time.Duration, message string) {
	c.cancel(api.Errorf(http.StatusGatewayTimeout, api.CodeRequestTimeout, message, limit))
}
