package supervise

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// sidecar stands where a process stands for a runtime that somebody else starts
// and stops. To end it is to let go of it.
type sidecar struct {
	once sync.Once
	left chan struct{} // closed when it is let go
}

func newSidecar() *sidecar { return &sidecar{left: make(chan struct{})} }

func (c *sidecar) PID() int                { return 0 }
func (c *sidecar) Exited() <-chan struct{} { return c.left }
func (c *sidecar) Status() string          { return "let go" }
func (c *sidecar) Stop(time.Duration)      { c.Kill() }
func (c *sidecar) Kill()                   { c.once.Do(func() { close(c.left) }) }

// Memory is not known: the processes of another container are not ours to read.
func (c *sidecar) Memory() (api.Bytes, api.SharedMemory, error) {
	return 0, api.SharedMemory{}, fmt.Errorf("measure the memory of a sidecar: %w", errors.ErrUnsupported)
}
