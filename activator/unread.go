package activator

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// reader tells whether a client reads what is written to it.
type reader struct {
	since atomic.Int64 // when the write in progress began, in Unix nanoseconds; 0: none is in progress

	mu   sync.Mutex // guards gone, and the connection's deadline while the request is ended
	gone bool       // the request's goroutine no longer uses the connection
}

// writes records that a write begins; the caller calls written at its end.
func (r *reader) writes() { r.since.Store(time.Now().UnixNano()) }

func (r *reader) written() { r.since.Store(0) }

// leave records that the connection may serve another request.
func (r *reader) leave() {
	r.mu.Lock()
	r.gone = true
	r.mu.Unlock()
}

// endUnread ends the request, and its client's connection or stream, if the write in progress began limit ago. It
// reports whether it does. Any goroutine may call it, and it does not block.
func (c *call) endUnread(limit time.Duration) bool {
	r := &c.reply.reader
	if since := r.since.Load(); since == 0 || time.Since(time.Unix(0, since)) < limit {
		return false
	}
	go func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.gone {
			c.cancel(api.Errorf(api.StatusClientClosed, api.CodeEvicted, "the client left its answer unread for %s while other requests waited", limit))
			_ = c.reply.out.SetWriteDeadline(time.Unix(1, 0)) // ends the write; an error means a test connection without deadlines
		}
	}()
	return true
}
