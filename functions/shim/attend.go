package shim

import (
	"context"
	"errors"
	"time"
)

// ErrEnded says that the instance was stopped for good.
var ErrEnded = errors.New("the instance was stopped")

// rejoin is the pause before the next attempt to reach a shim.
const rejoin = 25 * time.Millisecond

// Attend tells the shim at socket, and any later one there, that this worker lives and can lead. It blocks until ctx ends (nil) or the
// instance was stopped ([ErrEnded]). fewer is called when another worker has left, which may be the leader; it must not block.
func Attend(ctx context.Context, socket string, fewer func()) error {
	for {
		if l, err := join(ctx, socket, role{fewer: fewer}); err == nil {
			select {
			case <-ctx.Done():
				l.leave()
			case <-l.ended:
				l.leave()
				return ErrEnded
			case <-l.gone:
				fewer()
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rejoin):
		}
	}
}
