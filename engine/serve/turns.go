package serve

import (
	"context"
	"sync"
)

// turns let one request of a client at a time do what takes much memory; others of the same client wait, in order. So however many
// a client sends, it takes the memory of one, and others find their places free.
type turns struct {
	mu sync.Mutex // guards of and each wanted
	of map[string]*turn
}

// turn is one client's. It is forgotten when nobody has or wants it.
type turn struct {
	taken  chan struct{} // sent to by who takes the turn, received from by who gives it back; of size 1
	wanted int
}

func newTurns() *turns { return &turns{of: map[string]*turn{}} }

// take waits for a client's turn. Who takes it calls done, once or more often.
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
