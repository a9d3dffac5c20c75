package activator

import (
	"time"
)

// Write writes to the client. A client that does not read for too long has left.
func (c *call) Write(p []byte) (int, error) {
	c.expectRead()
	n, err := c.w.Write(p)
	if c.ends != nil {
		c.firstByte()
	}
	return n, err
}

// Flush sends what was written.
func (c *call) Flush() error { return c.out.Flush() }

// expectRead moves the deadline of writes on, now and then: a timer for each
// event would cost more than the event. The first write has none: what it
// writes fits into buffers.
func (c *call) expectRead() {
	limit := c.a.cfg.WriteTimeout
	now := time.Now()
	switch {
	case c.wrote.IsZero():
		c.wrote = now.Add(-limit) // so that the next write sets one
	case now.Sub(c.wrote) > limit/4:
		c.wrote, c.guarded = now, true
		_ = c.out.SetWriteDeadline(now.Add(limit)) // a connection without deadlines is a test's
	}
}

// expectNothing takes the deadline back: the connection may serve another request later.
func (c *call) expectNothing() {
	if c.guarded {
		_ = c.out.SetWriteDeadline(time.Time{})
	}
}
