package shim

import (
	"context"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Child is the leader's handle of a runtime below a shim; it is a [supervise.Child].
type Child struct {
	link  *link
	lines func([]byte)
	pid   int // written before it is shared

	once   sync.Once
	exited chan struct{} // closed by end
	status string        // written before exited is closed
}

func newChild(l *link, lines func([]byte)) *Child {
	return &Child{link: l, lines: lines, exited: make(chan struct{})}
}

func (c *Child) end(status string) {
	c.once.Do(func() {
		c.status = status
		close(c.exited)
	})
}

// PID returns the runtime's process ID.
func (c *Child) PID() int { return c.pid }

// Exited returns a channel that is closed once nothing of the runtime is left.
func (c *Child) Exited() <-chan struct{} { return c.exited }

// Status says how it ended; empty before that.
func (c *Child) Status() string {
	select {
	case <-c.exited:
		return c.status
	default:
		return ""
	}
}

// Stop asks it to end, has it killed after grace and blocks until it is gone.
func (c *Child) Stop(grace time.Duration) {
	_ = c.link.send(message{Call: callStop, PID: c.pid, Grace: grace}) // without a shim it has ended
	<-c.exited
}

// Kill has it killed and returns at once.
func (c *Child) Kill() { _ = c.link.send(message{Call: callKill, PID: c.pid}) } // likewise

const askTime = 30 * time.Second

// Memory is like process.Process's.
func (c *Child) Memory() (all api.Bytes, shared api.SharedMemory, err error) {
	m, err := c.ask(callMemory)
	if m.Shared != nil {
		shared = *m.Shared
	}
	return api.Bytes(m.Bytes), shared, err
}

// CPU is like process.Process's.
func (c *Child) CPU() (time.Duration, error) {
	m, err := c.ask(callCPU)
	return m.Time, err
}

func (c *Child) ask(call string) (message, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	return c.link.ask(ctx, message{Call: call, PID: c.pid})
}
