// Package bell wakes a goroutine that looks at shared state, however often it is asked to.
package bell

import "context"

// Bell holds one ring: who rings never waits, and a ring while another waits says nothing new. It is never closed.
type Bell chan struct{}

// New makes a bell.
func New() Bell { return make(Bell, 1) }

// Ring wakes whoever receives from the bell, now or when it next does.
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
