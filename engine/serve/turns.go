package serve

import (
	"context"
	"sync"
)

// turns is a lock per client, for work that needs much memory.
type turns struct {
	mu sync.Mutex // guards of and each wanted
	of map[string]*turn
}

// turn exists while a request holds it or waits for it.
type turn struct {
	taken  chan struct{} // size 1: lock sends, unlock receives
	wanted int
}

func newTurns() *turns { return &turns{of: map[string]*turn{}} }

// take blocks until it is the client's turn. done may be called more than once, but once at least.
func (t *turns) take(ctx context.Context, client string) (done func(), err error) {
	t.mu.Lock()
	own := t.of[client]
	if own == nil {
		own = &turn{taken: make(chan struct{}, 1)}
		t.of[client] = own
	}
	own.wanted++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if own.wanted--; own.wanted == 0 {
			delete(t.of, client)
		}
	}
	select {
	case own.taken <- struct{}{}:
		return sync.OnceFunc(func() { <-own.taken; leave() }), nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}
