package relay

import (
	"net/http"
	"time"
)

// WriteDeadline bounds how long a client may leave unread what is written to it.
type WriteDeadline struct {
	// Timeout is how long; it must not change.
	Timeout time.Duration
	// Buffered is how many bytes of a first write have none: so many fit into buffers, whatever the client does.
	Buffered int

	moved time.Time // when the deadline was last moved; zero: nothing was written
	set   bool
}

// Buffered is what fits into the buffers of a connection by HTTP/1. By HTTP/2 the client says how much it takes.
func Buffered(r *http.Request) int {
	if r.ProtoMajor == 1 {
		return 32 << 10
	}
	return 0
}

// Move moves the deadline on, now and then: a timer for each event would cost more than the event.
// It is called before each write, of n bytes.
func (d *WriteDeadline) Move(out *http.ResponseController, n int) {
	now := time.Now()
	switch {
	case d.moved.IsZero() && n <= d.Buffered:
		d.moved = now.Add(-d.Timeout) // so that the next write sets one
	case now.Sub(d.moved) > d.Timeout/4:
		d.moved, d.set = now, true
		_ = out.SetWriteDeadline(now.Add(d.Timeout)) // a connection without deadlines is a test's
	}
}

// Clear takes the deadline back, where there is one: the connection may serve another request later.
func (d *WriteDeadline) Clear(out *http.ResponseController) {
	if d.set {
		_ = out.SetWriteDeadline(time.Time{})
	}
}
