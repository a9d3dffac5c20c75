package autoscaler

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
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

// TestClockIsSetWithForecasts: of a function that is asked for every five minutes nothing wrong is foreseen where the clock is set, and after some requests it is
// foreseen again. Where it is set by less than the period, that looks like requests that come later, and two forecasts are wrong.
func TestClockIsSetWithForecasts(t *testing.T) {
	for set, wrong := range map[time.Duration]int{-time.Hour: 0, time.Hour: 0, -7 * time.Minute: 0, 2 * time.Minute: 2, 26 * time.Hour: 0, -400 * 24 * time.Hour: 0} {
		a, err := New(Config{Devices: []inventory.Device{{ID: api.HostMemory, Capacity: 4 * api.GiB, Total: 4 * api.GiB}}}, nil, nil, slog.New(slog.DiscardHandler), nil)
		if err != nil {
			t.Fatal(err)
		}
		a.calls.ctx = t.Context()
		said := map[string]int{}
		a.round.saw = func(d api.Decision) {
			for _, word := range []string{"that was right", "that was wrong"} {
				if strings.Contains(d.Reason, word) {
					said[word]++
				}
			}
		}
		now := time.Date(2030, 3, 31, 0, 37, 0, 0, time.UTC)
		a.enter(now, 0)
		(&functionPut{Spec: api.Function{Name: "default/f", SleepAfter: time.Minute}.WithDefaults()}).apply(a.loop)
		ask := func(n int) { // all by the clock of one machine, which may have been set
			for range n {
				a.enter(now, 0)
				(&demandReported{Demand: api.Demand{Function: "default/f", Activator: "door", LastRequest: now, At: now}}).apply(a.loop)
				a.settle()
				a.plan()
				now = now.Add(5 * time.Minute)
			}
		}
		ask(8)
		if said["that was right"] < 3 {
			t.Fatalf("before the clock is set: %v", said)
		}
		now = now.Add(set)
		a.enter(now.Add(-4*time.Minute), set)
		a.settle()
		a.plan()
		clear(said)
		ask(12)
		if said["that was wrong"] > wrong || said["that was right"] < 4 {
			t.Errorf("set by %s: then %v", set, said)
		}
		if got := a.foretold(a.functions["default/f"]); !strings.HasPrefix(got, "a request is foreseen at ") || strings.Contains(got, "until more were right") {
			t.Errorf("set by %s: at the end %q", set, got)
		}
	}
}
