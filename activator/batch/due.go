package batch

import (
	"sync"
	"time"
)

// Estimates of what lines take, where nothing was seen.
const (
	usualLine = 10 * time.Second
	mostSpare = time.Hour
)

// due is when what is left of a batch becomes ordinary demand: so early that it is done at its deadline, though its lines take twice as long
// as they did, with a tenth of the window to spare, an hour at most. Lines run as many at once as there are slots, after a wake.
func due(deadline time.Time, window time.Duration, left, slots int, each, wake time.Duration) time.Time {
	if each <= 0 {
		each = usualLine
	}
	rounds := (left + max(slots, 1) - 1) / max(slots, 1)
	return deadline.Add(-wake - 2*time.Duration(rounds)*each - min(window/10, mostSpare))
}

// pace remembers how long lines of each model take. It is safe for many goroutines.
type pace struct {
	mu   sync.Mutex // guards each
	each map[string]time.Duration
}

// maxPaces bounds the models that are remembered: past it, all are forgotten.
const maxPaces = 1000

// saw takes in how long a line took.
func (p *pace) saw(model string, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, known := p.each[model]
	switch {
	case known:
		took = old + (took-old)/16
	case p.each == nil || len(p.each) >= maxPaces:
		p.each = map[string]time.Duration{}
	}
	p.each[model] = took
}

// of is how long a line of a model takes; 0: not known.
func (p *pace) of(model string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.each[model]
}
