package relay

import (
	"net/http"
	"time"
)

// WriteDeadline bounds how long a client may leave written data unread.
type WriteDeadline struct {
	// Timeout is the bound; it must not change.
	Timeout time.Duration
	// Buffered is the size up to which a first write sets no deadline, as it fits into buffers in any case.
	Buffered int

	moved time.Time // when the deadline was last moved; zero: nothing was written
	set   bool
}

// Buffered returns how much fits into the buffers of an HTTP/1 connection. In HTTP/2 the client controls it: 0.
func Buffered(r *http.Request) int {
	if r.ProtoMajor == 1 {
		return 32 << 10
	}
	return 0
}

// Move extends the deadline now and then: a timer per event would cost more than the event. It must be called before
// each write of n bytes.
func (d *WriteDeadline) Move(out *http.ResponseController, n int) {
	now := time.Now()
	switch {
	case d.moved.IsZero() && n <= d.Buffered:
		d.moved = now.Add(-d.Timeout) // so that the next write sets one
	case now.Sub(d.moved) > d.Timeout/4:
		d.moved, d.set = now, true
		_ = out.SetWriteDeadline(now.Add(d.Timeout)) // an error means a test connection without deadlines
	}
}

// Clear removes the deadline, if set: the connection may serve another request later.
func (d *WriteDeadline) Clear(out *http.ResponseController) {
	if d.set {
		_ = out.SetWriteDeadline(time.Time{})
	}
}
