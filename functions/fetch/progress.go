package fetch

import (
	"encoding/json"
	"os"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Progress is the progress of a fetch.
type Progress struct {
	Done  api.Bytes `json:"done"`
	Total api.Bytes `json:"total"` // 0: unknown
	File  string    `json:"file"`  // that made the last progress
	Rate  api.Bytes `json:"rate"`  // per second, of downloads
}

// between is the time between two reports, window the one that a rate is over.
const (
	between = 100 * time.Millisecond
	window  = 3 * time.Second
)

type meter struct {
	mu       sync.Mutex // guards all below; held during report, which keeps their order
	report   func(Progress)
	board    *os.File // the lock file, which waiting processes read; may be nil
	now      Progress
	last     time.Time
	boarded  time.Time
	received api.Bytes   // from the network
	marks    []mark      // within the window
	pending  *time.Timer // the report that came too soon; may be nil
	closed   bool
}

type mark struct {
	at       time.Time
	received api.Bytes
}

func newMeter(report func(Progress), board *os.File) *meter {
	if report == nil {
		report = func(Progress) {}
	}
	return &meter{report: report, board: board, marks: []mark{{at: time.Now()}}}
}

func (m *meter) total(n api.Bytes) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Total = n
	m.tell(true)
}

// found counts bytes that need no download or, negative, another one.
func (m *meter) found(file string, n api.Bytes) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Done, m.now.File = m.now.Done+n, file
	m.tell(false)
}

func (m *meter) got(file string, n api.Bytes) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Done, m.now.File = m.now.Done+n, file
	m.received += n
	m.tell(false)
}

func (m *meter) finish() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Total = m.now.Done
	m.tell(true)
}

func (m *meter) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	if m.pending != nil {
		m.pending.Stop()
	}
}

// tell reports, unless it did just now. It needs m.mu held.
func (m *meter) tell(always bool) {
	t := time.Now()
	if m.closed {
		return
	}
	if wait := between - t.Sub(m.last); !always && wait > 0 {
		if m.pending == nil {
			m.pending = time.AfterFunc(wait, func() {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.tell(true)
			})
		}
		return
	}
	if m.pending != nil {
		m.pending.Stop()
		m.pending = nil
	}
	m.last = t
	m.marks = append(m.marks, mark{t, m.received})
	for len(m.marks) > 2 && t.Sub(m.marks[0].at) > window {
		m.marks = m.marks[1:]
	}
	if took := t.Sub(m.marks[0].at); took > 0 {
		m.now.Rate = api.Bytes(float64(m.received-m.marks[0].received) / took.Seconds())
	}
	m.report(m.now)
	if m.board == nil || (!always && t.Sub(m.boarded) < 2*between) {
		return
	}
	m.boarded = t
	line, err := json.Marshal(m.now)
	if err != nil {
		return
	}
	// A reader that meets half a line skips it.
	if n, err := m.board.WriteAt(append(line, '\n'), 0); err == nil {
		_ = m.board.Truncate(int64(n))
	}
}

// watch returns a function that reports the progress of the lock's holder.
func watch(path string, report func(Progress)) func() {
	if report == nil {
		return nil
	}
	var last time.Time
	var said Progress
	return func() {
		if time.Since(last) < between {
			return
		}
		last = time.Now()
		text, err := os.ReadFile(path)
		var p Progress
		if err != nil || json.Unmarshal(text, &p) != nil || p == said {
			return
		}
		said = p
		report(p)
	}
}
