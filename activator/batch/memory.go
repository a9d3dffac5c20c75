package batch

import "sync"

// memory bounds the bodies and answers of what runs, all together. It is safe for many goroutines.
type memory struct {
	limit int64
	mu    sync.Mutex // guards used
	used  int64
}

// take takes n bytes, or says that there are none left.
func (m *memory) take(n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.used+n > m.limit {
		return false
	}
	m.used += n
	return true
}

// force takes n bytes, whether there are any left or not: what is done has to be kept until it is recorded.
func (m *memory) force(n int64) { m.give(-n) }

// give gives n bytes back.
func (m *memory) give(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
}
