// Package demand reports the demand for one function to the autoscaler, as CloudEvents. An event carries the current
// level, never a difference, so a lost or repeated event does no harm.
//
// The rules of a [Meter]:
//
//  1. [Meter.Urgent] sends the level at once, on the caller's goroutine: a request waits that only the autoscaler can
//     help.
//  2. Any other change ([Meter.Changed]) is sent within [Every], together with all other changes of that time, but
//     not before [Soon]: the work that it causes must not delay the request that caused it.
//  3. A level that is not zero is repeated every [Repeat].
//  4. The last event of a meter is a zero level ([Meter.Close]).
//
// Events are sent in the order in which their levels were read. Emitters must not block, so sending doesn't. A Meter
// is safe for concurrent use.
package demand

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// The intervals of a meter; see the package comment.
const (
	Soon   = 5 * time.Millisecond
	Every  = 50 * time.Millisecond
	Repeat = time.Second
)

// Meter sends the levels of one function.
type Meter struct {
	level   func() api.Demand
	emitter api.Emitter
	source  string

	// dirty is set when the level changes, and cleared under mu before the level is read.
	dirty atomic.Bool

	mu     sync.Mutex // guards all below; held while an event is emitted, so that events stay in order
	timer  *time.Timer
	due    time.Time // when the timer fires; zero: stopped
	last   time.Time // when the last event was sent
	sent   api.Demand
	closed bool
}

// New returns a meter. level returns the current level; it is called without its callers' locks and must not call the
// meter. source is the source of the events.
func New(level func() api.Demand, e api.Emitter, source string) *Meter {
	m := &Meter{level: level, emitter: e, source: source}
	m.timer = time.AfterFunc(time.Hour, m.Urgent)
	m.timer.Stop()
	return m
}

// Urgent sends the level now. The timer calls it too.
func (m *Meter) Urgent() {
	m.mu.Lock()
	if !m.closed {
		m.send(time.Now())
	}
	m.mu.Unlock()
	m.settle()
}

// Changed schedules sending after a change of the level. It does not block, not even while an event is emitted, and
// costs little if a send is already scheduled.
func (m *Meter) Changed() {
	if !m.dirty.Swap(true) {
		m.settle()
	}
}

// settle makes sure that a change gets sent. If another goroutine holds mu, that one settles: every unlock of mu is
// followed by a call of settle.
func (m *Meter) settle() {
	if !m.dirty.Load() || !m.mu.TryLock() {
		return
	}
	if !m.closed {
		now := time.Now()
		m.arm(now, now.Add(max(Soon, Every-now.Sub(m.last))))
	}
	m.mu.Unlock()
}

// arm sets the timer to fire at the given time, unless it fires earlier already.
func (m *Meter) arm(now, at time.Time) {
	if !m.due.IsZero() && !at.Before(m.due) {
		return
	}
	m.due = at
	m.timer.Reset(max(at.Sub(now), 0))
}

// send reads and sends the level, and arms the timer for the next send.
func (m *Meter) send(now time.Time) {
	m.dirty.Store(false)
	m.sent = m.level()
	m.last = now
	m.emitter.Emit(api.NewEvent(api.EventDemand, m.source, m.sent.Function, m.sent))
	m.due = time.Time{}
	m.timer.Stop()
	if !m.sent.Zero() {
		m.arm(now, now.Add(Repeat))
	}
}

// Close sends a zero level, unless the last one sent was zero, and stops. No event is sent after it returns.
func (m *Meter) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.closed = true
	m.timer.Stop()
	if m.sent.Zero() && !m.dirty.Load() {
		return
	}
	last := m.level()
	last.Waiting, last.WaitingTokens, last.OldestAge, last.Running, last.Background, last.Waking, last.Prefers = 0, 0, 0, 0, 0, "", ""
	m.emitter.Emit(api.NewEvent(api.EventDemand, m.source, last.Function, last))
}
