package simulate

import (
	"time"

	"github.com/rouse-dev/rouse/internal/heap"
)

// clock is virtual time. Events at the same time run in the order in which they were added.
type clock struct {
	now    time.Duration
	events heap.Of[*timer]
	seq    uint64
}

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

func (t *timer) on() bool { return t.slot > 0 }

func (t *timer) reset(at time.Duration) {
	if at = max(at, t.c.now); t.on() && t.at == at {
		return
	}
	t.c.seq++
	t.at, t.seq = at, t.c.seq
	t.c.events.Put(t)
}

func (t *timer) stop() { t.c.events.Remove(t) }

// at schedules do at t, now if t is past.
func (c *clock) at(t time.Duration, do func()) { (&timer{c: c, do: do}).reset(t) }

func (c *clock) after(d time.Duration, do func()) { c.at(c.now+d, do) }

func (c *clock) next() (time.Duration, bool) {
	if c.events.Len() == 0 {
		return 0, false
	}
	return c.events.First().at, true
}

func (c *clock) step() {
	t := c.events.First()
	t.stop()
	c.now = t.at
	t.do()
}
