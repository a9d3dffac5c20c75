package simulate

import (
	"time"

	"github.com/rouse-dev/rouse/internal/heap"
)

// clock is virtual time and its queue of events. Events at the same time run in the order in which they were added.
type clock struct {
	now    time.Duration
	events heap.Of[*timer]
	seq    uint64
}

// timer is a movable event of a clock; setting it replaces the previous setting.
type timer struct {
	c    *clock
	do   func()
	at   time.Duration
	seq  uint64
	slot int
}

// Before implements [heap.Item].
func (t *timer) Before(u *timer) bool { return t.at < u.at || t.at == u.at && t.seq < u.seq }

// Slot implements [heap.Item].
func (t *timer) Slot() *int { return &t.slot }

// on reports whether t is set.
func (t *timer) on() bool { return t.slot > 0 }

// reset sets t to a time, now if that is past.
func (t *timer) reset(at time.Duration) {
	if at = max(at, t.c.now); t.on() && t.at == at {
		return
	}
	t.c.seq++
	t.at, t.seq = at, t.c.seq
	t.c.events.Put(t)
}

// stop cancels the timer.
func (t *timer) stop() { t.c.events.Remove(t) }

// at schedules do at t, now if t is past.
func (c *clock) at(t time.Duration, do func()) { (&timer{c: c, do: do}).reset(t) }

// after schedules do in d.
func (c *clock) after(d time.Duration, do func()) { c.at(c.now+d, do) }

// next returns the time of the next event; false if there is none.
func (c *clock) next() (time.Duration, bool) {
	if c.events.Len() == 0 {
		return 0, false
	}
	return c.events.First().at, true
}

// step runs the next event.
func (c *clock) step() {
	t := c.events.First()
	t.stop()
	c.now = t.at
	t.do()
}
