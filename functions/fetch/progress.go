package fetch

import (
	"encoding/json"
	"os"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Progress is how far a fetch is.
type Progress struct {
	Done  api.Bytes `json:"done"`
	Total api.Bytes `json:"total"` // 0: not known
	File  string    `json:"file"`  // the one that moved last
	Rate  api.Bytes `json:"rate"`  // a second, over the last seconds; what was there before does not count
}

// between is the time between two reports, and window what a rate looks back on.
const (
	between = 100 * time.Millisecond
	window  = 3 * time.Second
)

// meter counts the bytes of one fetch and reports them.
type meter struct {
	mu       sync.Mutex // guards all below; report is called under it, so that reports stay in order
	report   func(Progress)
	board    *os.File // the reference's lock file: those who wait for it read there; may be nil
	now      Progress
	last     time.Time
	boarded  time.Time
	received api.Bytes   // from the network, in all
	marks    []mark      // within the window
	pending  *time.Timer // reports what came too soon after the last report; nil: none is due
	closed   bool
}

// mark is how much had been received at a time.
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

// total says how much there is in all.
func (m *meter) total(n api.Bytes) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Total = n
	m.tell(true)
}

// found counts bytes that need no download, or, negative, that must be had again.
func (m *meter) found(file string, n api.Bytes) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Done, m.now.File = m.now.Done+n, file
	m.tell(false)
}

// got counts downloaded bytes.
func (m *meter) got(file string, n api.Bytes) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Done, m.now.File = m.now.Done+n, file
	m.received += n
	m.tell(false)
}

// finish reports the end.
func (m *meter) finish() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Total = m.now.Done
	m.tell(true)
}

// close ends the reports.
func (m *meter) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	if m.pending != nil {
		m.pending.Stop()
	}
}

func (m *meter) late() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tell(true)
}

// tell reports, if the last report is long enough ago. m.mu is held.
func (m *meter) tell(always bool) {
	t := time.Now()
	if m.closed {
		return
	}
	if wait := between - t.Sub(m.last); !always && wait > 0 {
		if m.pending == nil {
			m.pending = time.AfterFunc(wait, m.late)
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
	// Nobody relies on it: a reader that meets half a line skips it.
	if n, err := m.board.WriteAt(append(line, '\n'), 0); err == nil {
		_ = m.board.Truncate(int64(n))
	}
}

// watch returns what to call while waiting for the lock at path: it reports what
// the holder wrote there.
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
