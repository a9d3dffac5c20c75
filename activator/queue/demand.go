package queue

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// The intervals of a meter.
const (
	sendSoon   = 5 * time.Millisecond
	sendEvery  = 50 * time.Millisecond
	sendRepeat = time.Second
)

// meter reports the demand for one function to the autoscaler, as CloudEvents. An event carries the current level,
// never a difference, so a lost or repeated event does no harm.
//
//  1. [meter.sendNow] sends the level at once, on the caller's goroutine: a request waits that only the autoscaler can
//     help.
//  2. Any other change ([meter.changed]) is sent within sendEvery, together with all other changes of that time, but
//     not before sendSoon: the work that it causes must not delay the request that caused it.
//  3. A level that is not zero is repeated every sendRepeat.
//  4. The last event of a meter is a zero level ([meter.close]).
//
// Events are sent in the order in which their levels were read. Emitters must not block, so sending doesn't. A meter
// is safe for concurrent use.
type meter struct {
	level   func() api.Demand
	emitter api.Emitter
	source  string

	// dirty is set when the level changes, and cleared under mu before the level is read.
	dirty atomic.Bool

	mu     sync.Mutex // guards all below; held while an event is emitted, so that events stay in order
	due    alarm
	last   time.Time // when the last event was sent
	sent   api.Demand
	closed bool
}

// newMeter returns a meter. level returns the current level; it is called without its callers' locks and must not call the
// meter. source is the source of the events.
func newMeter(level func() api.Demand, e api.Emitter, source string) *meter {
	m := &meter{level: level, emitter: e, source: source}
	m.due = newAlarm(m.sendNow)
	return m
}

// sendNow sends the level now. The timer calls it too.
func (m *meter) sendNow() {
	m.mu.Lock()
	if !m.closed {
		m.send(time.Now())
	}
	m.mu.Unlock()
	m.schedule()
}

// changed schedules sending after a change of the level. It does not block, not even while an event is emitted, and
// costs little if a send is already scheduled.
func (m *meter) changed() {
	if !m.dirty.Swap(true) {
		m.schedule()
	}
}

// schedule makes sure that a change gets sent. If another goroutine holds mu, that one does: every unlock of mu is
// followed by a call of schedule.
func (m *meter) schedule() {
	if !m.dirty.Load() || !m.mu.TryLock() {
		return
	}
	if !m.closed {
		now := time.Now()
		m.due.arm(now.Add(max(sendSoon, sendEvery-now.Sub(m.last))), now)
	}
	m.mu.Unlock()
}

// alarm is a timer that calls a function at the earliest of the times that it was given. A lock of its owner guards it.
type alarm struct {
	timer *time.Timer
	at    time.Time // when it calls; zero: not
}

func newAlarm(do func()) alarm {
	a := alarm{timer: time.AfterFunc(time.Hour, do)}
	a.timer.Stop()
	return a
}

// arm makes the call happen at the given time, unless it happens earlier already.
func (a *alarm) arm(at, now time.Time) {
	if !a.at.IsZero() && !at.Before(a.at) {
		return
	}
	a.at = at
	a.timer.Reset(max(at.Sub(now), 0))
}

// stop forgets the time.
func (a *alarm) stop() {
	a.at = time.Time{}
	a.timer.Stop()
}

// send reads and sends the level, and arms the timer for the next send.
func (m *meter) send(now time.Time) {
	m.dirty.Store(false)
	m.sent = m.level()
	m.last = now
	m.emitter.Emit(api.NewEvent(api.EventDemand, m.source, m.sent.Function, m.sent))
	m.due.stop()
	if !m.sent.Zero() {
		m.due.arm(now.Add(sendRepeat), now)
	}
}

// close sends a zero level, unless the last one sent was zero, and stops. No event is sent after it returns.
func (m *meter) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.closed = true
	m.due.stop()
	if m.sent.Zero() && !m.dirty.Load() {
		return
	}
	last := m.level()
	last.Waiting, last.WaitingTokens, last.OldestAge, last.Running, last.Background, last.Waking, last.Prefers = 0, 0, 0, 0, 0, "", ""
	m.emitter.Emit(api.NewEvent(api.EventDemand, m.source, last.Function, last))
}
