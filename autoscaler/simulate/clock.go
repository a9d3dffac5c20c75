package simulate

import "time"

// clock is virtual time and its queue of events. Events at the same time run in the order in which they were added.
type clock struct {
	now    time.Duration
	events []event // a heap
	seq    uint64
}

type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

func (e *event) before(f *event) bool { return e.at < f.at || e.at == f.at && e.seq < f.seq }

// at schedules do at t, now if t is past.
func (c *clock) at(t time.Duration, do func()) {
	c.seq++
	c.events = append(c.events, event{max(t, c.now), c.seq, do})
	for k := len(c.events) - 1; k > 0; {
		up := (k - 1) / 2
		if !c.events[k].before(&c.events[up]) {
			return
		}
		c.events[k], c.events[up] = c.events[up], c.events[k]
		k = up
	}
}

// after schedules do in d.
func (c *clock) after(d time.Duration, do func()) { c.at(c.now+d, do) }

// next returns the time of the next event; false if there is none.
func (c *clock) next() (time.Duration, bool) {
	if len(c.events) == 0 {
		return 0, false
	}
	return c.events[0].at, true
}

// step runs the next event.
func (c *clock) step() {
	e := c.events[0]
	last := len(c.events) - 1
	c.events[0] = c.events[last]
	c.events[last] = event{}
	c.events = c.events[:last]
	for k := 0; ; {
		least := k
		for _, down := range [2]int{2*k + 1, 2*k + 2} {
			if down < last && c.events[down].before(&c.events[least]) {
				least = down
			}
		}
		if least == k {
			break
		}
		c.events[k], c.events[least] = c.events[least], c.events[k]
		k = least
	}
	c.now = e.at
	e.do()
}

// timer is a movable event; setting it replaces the previous setting.
type timer struct {
	c  *clock
	do func()
	at time.Duration
	on bool
	// set counts the settings, so that an event knows whether it is the last.
	set int
}

func (t *timer) reset(at time.Duration) {
	if t.on && t.at == at {
		return
	}
	t.set++
	t.at, t.on = at, true
	n := t.set
	t.c.at(at, func() {
		if t.on && t.set == n {
			t.on = false
			t.do()
		}
	})
}

// stop cancels the timer.
func (t *timer) stop() { t.on = false }
