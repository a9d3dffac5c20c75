package jobs

import "sync"

// memory bounds the total of bodies and answers in progress. It is safe for concurrent use.
type memory struct {
	limit int64
	mu    sync.Mutex // guards used
	used  int64
}

// take takes n bytes, and reports whether they were available.
func (m *memory) take(n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.used+n > m.limit {
		return false
	}
	m.used += n
	return true
}

// force takes n bytes even if none are left: a result has to be kept until it is recorded.
func (m *memory) force(n int64) { m.give(-n) }

func (m *memory) give(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
}
