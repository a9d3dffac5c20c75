package jobs

import (
	"context"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/internal/bell"
)

// memory bounds the bodies and answers in progress, in bytes. It is safe for concurrent use.
type memory struct {
	limit int64
	mu    sync.Mutex // guards used
	used  int64
}

func (m *memory) reserve(n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.used+n > m.limit {
		return false
	}
	m.used += n
	return true
}

// add takes n bytes even beyond the limit: a result has to be kept until it is recorded.
func (m *memory) add(n int64) { m.release(-n) }

func (m *memory) release(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
}

// places bounds what clients do at once, in total and each. It is safe for concurrent use. The zero value has no places.
type places struct {
	all, each int
	mu        sync.Mutex // guards the fields below
	taken     int
	by        map[string]int
}

// take reports whether a place was free. The client returns it with give.
func (p *places) take(client string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken == p.all || p.by[client] == p.each {
		return false
	}
	if p.by == nil {
		p.by = map[string]int{}
	}
	p.taken++
	p.by[client]++
	return true
}

// await polls for a place. The error is the cause of ctx's end.
func (p *places) await(ctx context.Context, client string, poll time.Duration) error {
	for !p.take(client) {
		if err := bell.Sleep(ctx, poll); err != nil {
			return err
		}
	}
	return nil
}

func (p *places) give(client string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.by[client]--; p.by[client] == 0 {
		delete(p.by, client)
	}
}
