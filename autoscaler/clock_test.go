package autoscaler

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// TestClockIsSet: where the machine's clock was set, the loop follows at once, and once.
func TestClockIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, set := range []time.Duration{-time.Hour, 8 * time.Hour} {
			c := newClock()
			c.base = c.base.Add(-set) // the machine's is later by set from now on
			time.Sleep(time.Second + 100*time.Nanosecond)
			now, step := c.read()
			if late := time.Until(now); step != set || late < 0 || late >= time.Microsecond || now.Nanosecond()%1000 != 0 {
				t.Errorf("set by %s: it is %s, late by %s, and moved by %s", set, now, late, step)
			}
			if again, step := c.read(); step != 0 || !again.Equal(now) {
				t.Errorf("read again: it is %s and moved by %s", again, step)
			}
			if got := c.until(time.Now().Add(time.Minute)); got != time.Minute {
				t.Errorf("it is %s until a minute from now", got)
			}
			c.base = c.base.Add(mostOff)
			if _, step := c.read(); step != 0 {
				t.Errorf("it follows a clock that is %s off, by %s", mostOff, step)
			}
		}
	})
}

// TestClockIsSetWhileItWorks: an instance that is up, and a demand for it, are as old as before.
func TestClockIsSetWhileItWorks(t *testing.T) {
	for _, set := range []time.Duration{-time.Hour, 8 * time.Hour} {
		inWorld(t, api.GiB, func(w *fleet) {
			f := w.add("f", 256*api.MiB, nil)
			w.request(f, 1, 30*time.Second)
			pass(10 * time.Second)
			w.a.do(func() { w.a.clock.base = w.a.clock.base.Add(-set) })
			pass(10 * time.Second)
			w.a.do(func() { w.a.clock.base = w.a.clock.base.Add(set) })
			pass(30 * time.Second)
			if n := w.count("sleep") + w.count("stop"); n > 0 || f.served != 1 {
				t.Errorf("set by %s: %d sleeps or stops, %d requests served", set, n, f.served)
			}
			pass(20 * time.Minute)
			if n := w.count("sleep"); n == 0 {
				t.Errorf("set by %s: it never sleeps", set)
			}
			if n := w.count("stop"); n == 0 {
				t.Errorf("set by %s: it never ends", set)
			}
		})
	}
}
