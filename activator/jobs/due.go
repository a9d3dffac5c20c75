package jobs

import (
	"sync"
	"time"
)

// Estimates before anything was measured.
const (
	usualLine = 10 * time.Second
	mostSpare = time.Hour
)

// due returns when the rest of a batch becomes ordinary demand. It is early enough to meet the deadline even if lines
// take twice as long as before, with a tenth of the window to spare, an hour at most. After a wake, as many lines run
// at once as there are slots.
func due(deadline time.Time, window time.Duration, left, slots int, each, wake time.Duration) time.Time {
	if each <= 0 {
		each = usualLine
	}
	rounds := (left + max(slots, 1) - 1) / max(slots, 1)
	return deadline.Add(-wake - 2*time.Duration(rounds)*each - min(window/10, mostSpare))
}

// pace remembers how long lines of each model take. It is safe for concurrent use.
type pace struct {
	mu   sync.Mutex // guards each
	each map[string]time.Duration
}

// maxPaces bounds the remembered models: beyond it, all are forgotten.
const maxPaces = 1000

// record records how long a line took.
func (p *pace) record(model string, took time.Duration) {
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

// lineTime returns how long a line of a model takes; 0: unknown.
func (p *pace) lineTime(model string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.each[model]
}
