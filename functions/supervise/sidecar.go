package supervise

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// sidecar stands in for a process if somebody else starts and stops the runtime. Ending it only detaches from it.
type sidecar struct {
	once sync.Once
	left chan struct{} // closed on detaching
}

func newSidecar() *sidecar { return &sidecar{left: make(chan struct{})} }

func (c *sidecar) PID() int                { return 0 }
func (c *sidecar) Exited() <-chan struct{} { return c.left }
func (c *sidecar) Status() string          { return "let go" }
func (c *sidecar) Stop(time.Duration)      { c.Kill() }
func (c *sidecar) Kill()                   { c.once.Do(func() { close(c.left) }) }

// Memory returns an error: the processes of another container are not readable.
func (c *sidecar) Memory() (api.Bytes, api.SharedMemory, error) {
	return 0, api.SharedMemory{}, fmt.Errorf("measure the memory of a sidecar: %w", errors.ErrUnsupported)
}
