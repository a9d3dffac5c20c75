package constrain

import "time"

// Warm computes the masks with which texts of a grammar begin, so that whoever
// runs many texts at once does not wait for them: breadth first, at most states
// of them, for about the time of limit. Only [Compile]'s grammars have something to warm.
func Warm(g Grammar, states int, limit time.Duration) {
	m, ok := g.(*machine)
	if !ok {
		return
	}
	began := time.Now()
	seen := map[*state]bool{m.start: true}
	queue := []*state{m.start}
	for len(queue) > 0 && states > 0 && time.Since(began) < limit {
		s := queue[0]
		queue = queue[1:]
		m.maskOf(s)
		states--
		for _, next := range m.neighbours(s) {
			if !seen[next] {
				seen[next] = true
				queue = append(queue, next)
			}
		}
	}
}

// neighbours are the states one byte further.
func (m *machine) neighbours(s *state) (list []*state) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.program.samples {
		if next := m.step(s, b); next != dead {
			list = append(list, next)
		}
	}
	return list
}
