package activator

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/activator/queue"
)

// comments sends server-sent comments, which clients ignore, to a streaming client while its request is held. The
// first one sends the header: from then on a failure can only be reported as an event.
//
// A timer's goroutine writes them, so that the request's own goroutine only waits for its slot. After stop, the
// connection belongs to the request alone.
type comments struct {
	reply *reply
	a     *Activator

	mu      sync.Mutex      // guards all below, and the connection until stop
	f       *queue.Function // the function that the request waits for
	since   time.Time       // when it first waited
	timer   *time.Timer
	state   commentState
	started bool // the header is sent
	sent    bool // the request is with an instance
}

type commentState int

const (
	commentIdle commentState = iota
	commentOn
	commentStopped
)

// begin starts the comments, if they are not running: the request waits for f.
func (m *comments) begin(f *queue.Function, since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.f, m.since, m.sent = f, since, false
	if m.state != commentIdle {
		return
	}
	m.state = commentOn
	m.timer = time.AfterFunc(max(m.a.cfg.CommentAfter-m.reply.timing.Hold, 0), m.tick)
}

// dispatched records that the request was sent to an instance. A client without a header then gets no comment, so
// that it can still get an honest status.
func (m *comments) dispatched() {
	if m.timer == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent = true
	if !m.started && m.state == commentOn {
		m.timer.Stop()
		m.state = commentIdle
	}
}

// stop ends the comments and reports whether the header was sent. It waits for a comment that is being written.
func (m *comments) stop() (started bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.timer != nil {
		m.timer.Stop()
	}
	m.state = commentStopped
	return m.started
}

// again lets the comments begin once more, for a request whose header was sent.
func (m *comments) again() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.started, m.state = true, commentIdle
}

// fallBack tells the client that another model answers: in the header, or in a comment once that is sent.
func (m *comments) fallBack(to string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.started {
		m.reply.w.Header().Set(headerFallback, to)
		return
	}
	m.sayFallback(to)
	_ = m.reply.flush() // a client that left ends the request's context
}

// sayFallback writes the comment. The client may have left. The caller holds the lock.
func (m *comments) sayFallback(to string) {
	_, _ = m.reply.Write([]byte(": rouse fallback=" + to + "\n\n"))
}

// leastExpected is the shortest expected time that a comment mentions: a shorter estimate was wrong, and the true
// time is unknown.
const leastExpected = 50 * time.Millisecond

func (m *comments) tick() {
	m.mu.Lock()
	f := m.f
	m.mu.Unlock()
	stage := f.Stage() // unlocked: it may ask others
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state != commentOn {
		return
	}
	if !m.started {
		m.started = true
		to := m.reply.w.Header().Get(headerFallback)
		m.reply.w.Header().Del(headerFallback) // another one may answer in the end
		m.reply.streamHeader()
		if to != "" {
			m.sayFallback(to)
		}
	}
	if m.sent {
		stage = queue.Stage{Word: "first-token"}
	}
	line := fmt.Sprintf(": rouse stage=%s waited=%.1fs", word(stage.Word), time.Since(m.since).Seconds())
	if stage.Expected >= leastExpected {
		line += fmt.Sprintf(" expected=%.1fs", stage.Expected.Seconds())
	}
	if stage.Progress > 0 {
		line += fmt.Sprintf(" progress=%.0f%%", 100*stage.Progress)
	}
	if stage.Why != "" {
		line += fmt.Sprintf(" why=%q", stage.Why)
	}
	if _, err := m.reply.Write([]byte(line + "\n\n")); err == nil {
		_ = m.reply.flush() // a client that left ends the request's context
	}
	m.timer.Reset(m.a.cfg.CommentEvery)
}

// streamHeader sends the header of a stream before its answer has come.
func (r *reply) streamHeader() {
	h := r.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // or nginx would buffer the comments
	h.Set("Trailer", "Server-Timing")
	r.w.WriteHeader(http.StatusOK)
}

// word replaces the unprintable characters and spaces of a stage, which comes from an instance.
func word(stage string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == 0x7f {
			return '-'
		}
		return r
	}, stage)
}
