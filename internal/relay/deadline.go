package relay

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// CutAfter is how long a client may leave a write unread while other requests wait; see [WriteDeadline.Stuck].
const CutAfter = 5 * time.Second

// WriteDeadline bounds how long a client may leave written data unread. One goroutine writes;
// others may call Stuck and Cut.
type WriteDeadline struct {
	// Timeout is the bound; 0: none, Move ignores its controller.
	Timeout time.Duration
	// Buffered is the size up to which a first write sets no deadline, as it fits into buffers in any case.
	Buffered int

	moved time.Time    // when the deadline was last moved; zero: nothing was written
	began atomic.Int64 // when the write in progress began, in Unix nanoseconds; 0: none is

	mu      sync.Mutex // guards the fields below
	set     bool
	cleared bool
}

// Buffered returns how much fits into the buffers of an HTTP/1 connection. In HTTP/2 the client controls it: 0.
func Buffered(r *http.Request) int {
	if r.ProtoMajor == 1 {
		return 32 << 10
	}
	return 0
}

// Move extends the deadline now and then: a timer per event would cost more than the event. It must be called before
// each write of n bytes, and Done after it.
func (d *WriteDeadline) Move(out *http.ResponseController, n int) {
	now := time.Now()
	d.began.Store(now.UnixNano())
	switch {
	case d.Timeout == 0:
	case d.moved.IsZero() && n <= d.Buffered:
		d.moved = now.Add(-d.Timeout) // so that the next write sets one
	case now.Sub(d.moved) > d.Timeout/4:
		d.moved = now
		d.mu.Lock()
		defer d.mu.Unlock()
		d.set = true
		_ = out.SetWriteDeadline(now.Add(d.Timeout)) // an error means a test connection without deadlines
	}
}

// Done ends a write.
func (d *WriteDeadline) Done() { d.began.Store(0) }

// Flush sends what is buffered.
func (d *WriteDeadline) Flush(out *http.ResponseController) error {
	d.began.Store(time.Now().UnixNano())
	defer d.Done()
	return out.Flush()
}

// Stuck reports whether a write is in progress that began [CutAfter] ago.
func (d *WriteDeadline) Stuck() bool {
	began := d.began.Load()
	return began > 0 && time.Since(time.Unix(0, began)) >= CutAfter
}

// Cut calls before and ends the write in progress, unless Clear was called.
func (d *WriteDeadline) Cut(out *http.ResponseController, before func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.cleared {
		before()
		d.set = true
		_ = out.SetWriteDeadline(time.Unix(1, 0)) // see Move
	}
}

// Clear removes the deadline, if set: the connection may serve another request later.
func (d *WriteDeadline) Clear(out *http.ResponseController) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cleared = true; d.set {
		_ = out.SetWriteDeadline(time.Time{})
	}
}
