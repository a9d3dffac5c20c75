package constrain

import (
	"context"
	"time"
)

// Warm computes the masks with which texts of a grammar begin, so that a server that
// runs many texts at once does not wait for them: breadth first, at most states
// of them, for about the time of limit, what is left of the budget (nil is one of
// its own), or until ctx ends. Only [Compile]'s grammars have something to warm.
func Warm(ctx context.Context, b *Budget, g Grammar, states int, limit time.Duration) {
	m, ok := g.(*machine)
	if !ok {
		return
	}
	work := newMeter(ctx, b)
	began := time.Now()
	seen := map[*state]bool{m.start: true}
	queue := []*state{m.start}
	for len(queue) > 0 && states > 0 && time.Since(began) < limit {
		s := queue[0]
		queue = queue[1:]
		next, spent := m.explore(s)
		if !work.spend(1+spent, 0) {
			return
		}
		states--
		for _, n := range next {
			if !seen[n] {
				seen[n] = true
				queue = append(queue, n)
			}
		}
	}
}

// explore makes the mask of a state, and returns the states one byte further and the work it took.
func (m *machine) explore(s *state) (next []*state, spent int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.spent
	m.tidy()
	m.tokensOf(s)
	for _, b := range m.program.samples {
		if n := m.step(s, b); n != dead && n != crowded {
			next = append(next, n)
		}
	}
	return next, m.spent - before
}

// Bytes is about what a grammar holds in memory now.
func Bytes(g Grammar) int {
	m, ok := g.(*machine)
	if !ok {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.program.bytes + m.maskSize + m.weight*threadSize
}
