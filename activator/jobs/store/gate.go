package store

import (
	"sync"
	"time"
)

// Gate repeats an action until it has succeeded once. The zero value is ready; it is safe for concurrent use.
type Gate struct {
	mu    sync.Mutex // guards the fields below; held during an attempt
	open  bool
	tried time.Time
	err   error
}

const retryGate = time.Second

// Pass runs try unless it has succeeded before. For a second, callers get a failure's error.
func (g *Gate) Pass(try func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open {
		return nil
	}
	if g.err != nil && time.Since(g.tried) < retryGate {
		return g.err
	}
	g.err = try()
	g.open, g.tried = g.err == nil, time.Now()
	return g.err
}

// Open reports whether it has succeeded.
func (g *Gate) Open() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open
}
