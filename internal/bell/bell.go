// Package bell wakes a goroutine that polls shared state.
package bell

import (
	"context"
	"time"
)

// Bell holds one pending ring: further rings have no effect. It is never closed.
type Bell chan struct{}

// New returns a bell without a pending ring.
func New() Bell { return make(Bell, 1) }

// Ring wakes the goroutine that receives from the bell, now or at its next receive. It never blocks.
func (b Bell) Ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// Each calls do after each ring, until ctx ends.
func (b Bell) Each(ctx context.Context, do func()) {
	for {
		select {
		case <-b:
			do()
		case <-ctx.Done():
			return
		}
	}
}

// Sleep waits for d. If ctx ends first it returns the cause.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
