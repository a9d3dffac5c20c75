package simulate

import (
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// TestRehearsalByHand: b comes while a, which has never slept, is awake and idle. Not rehearsed, a takes 8 s to fall asleep and b waits for that; rehearsed from 18.5 s
// to 27.5 s, when nobody waits, half a second.
func TestRehearsalByHand(t *testing.T) {
	trace := Trace{ask(0, "a"), ask(40*time.Second, "b")}
	for _, h := range []hand{
		// a: loaded at 10, answered at 11; falls asleep from 40 to 48. b: loaded at 58, answered at 59, falls asleep from 119 to 127.
		{name: "never", policy: Policy{Rehearse: api.RehearseNever}, trace: trace, horizon: 200 * time.Second,
			held: 127, first: []float64{10.1, 18.1}, starts: 2, swaps: 1},
		// a: falls asleep from 18.5 to 26.5, awake at 27.5; asleep from 40 to 40.5. b: loaded at 50.5, answered at 51.5; rehearsed,
		// too, from 59 to 67, awake at 68, falls asleep from 111.5 to 112.
		{name: "always", policy: Policy{Rehearse: api.RehearseAlways}, trace: trace, horizon: 200 * time.Second,
			held: 112, first: []float64{10.1, 10.6}, starts: 2, wakes: 2, swaps: 1},
		// Nothing was measured yet.
		{name: "measured", policy: Policy{Rehearse: api.RehearseMeasured}, trace: trace, horizon: 200 * time.Second,
			held: 127, first: []float64{10.1, 18.1}, starts: 2, swaps: 1},
	} {
		t.Run(h.name, func(t *testing.T) {
			c := tinyConfig(1, "a", "b")
			for k := range c.Models {
				c.Models[k].FirstSleep, c.Models[k].Sleep = 8*time.Second, 500*time.Millisecond
			}
			h.policy.Name = "rouse"
			h.run(t, c)
		})
	}
}

// TestPinnedSleep: the published times.
func TestPinnedSleep(t *testing.T) {
	for _, tc := range []struct {
		weights       api.Bytes
		first, others float64
	}{{15 * api.GiB, 6.2, 0.34}, {57 * api.GiB, 21.9, 1.16}} {
		m := NewModel("m", tc.weights, 80*api.GiB).PinnedSleep()
		near(t, "the first sleep", m.FirstSleep.Seconds(), tc.first, 0.1)
		near(t, "another sleep", m.Sleep.Seconds(), tc.others, 0.03)
	}
}
