package jobs

import "sync"

// memory bounds the total of bodies and answers in progress. It is safe for concurrent use.
type memory struct {
	limit int64
	mu    sync.Mutex // guards used
	used  int64
}

// reserve takes n bytes, and reports whether they were available.
func (m *memory) reserve(n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.used+n > m.limit {
		return false
	}
	m.used += n
	return true
}

// add takes n bytes even if none are left: a result has to be kept until it is recorded.
func (m *memory) add(n int64) { m.release(-n) }

func (m *memory) release(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
}
