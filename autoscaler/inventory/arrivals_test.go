package inventory

import (
	"math/rand/v2"
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func learn(gaps ...time.Duration) Experience {
	e, now := Experience{}, noon
	for _, g := range gaps {
		now = now.Add(g)
		e = e.Arrived(g, now)
	}
	return e
}

func within(t *testing.T, what string, got time.Duration, known bool, low, high time.Duration) {
	t.Helper()
	if !known || got < low || got > high {
		t.Errorf("%s: %s, known %t; want %s to %s", what, got, known, low, high)
	}
}

func TestForecastOfAPeriod(t *testing.T) {
	e := learn(10*time.Minute, 10*time.Minute, 10*time.Minute, 10*time.Minute)
	for idle, want := range map[time.Duration]time.Duration{0: 10 * time.Minute, 5 * time.Minute: 5 * time.Minute, 590 * time.Second: 10 * time.Second} {
		got, known := e.Arrivals.Forecast(idle)
		within(t, idle.String(), got, known, want-time.Second, want+time.Second)
	}
	if got, known := e.Arrivals.Forecast(12 * time.Minute); known {
		t.Errorf("two minutes late: %s; want that nothing is known", got)
	}
}

// Bursts with pauses: just after a request the next is near, after a minute it is an hour away.
func TestForecastOfBursts(t *testing.T) {
	var gaps []time.Duration
	for range 6 {
		for range 50 {
			gaps = append(gaps, 3*time.Second)
		}
		gaps = append(gaps, time.Hour)
	}
	e := learn(gaps...)
	got, known := e.Arrivals.Forecast(time.Second)
	within(t, "in a burst", got, known, 30*time.Second, 2*time.Minute) // 2 s, but for one in 51
	got, known = e.Arrivals.Forecast(time.Minute)
	within(t, "in a pause", got, known, 58*time.Minute, 60*time.Minute)
}

func TestForecastWithoutMemory(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var gaps []time.Duration
	for range 400 {
		gaps = append(gaps, time.Duration(r.ExpFloat64()*float64(time.Minute)))
	}
	e := learn(gaps...)
	for _, idle := range []time.Duration{0, 20 * time.Second, time.Minute} {
		got, known := e.Arrivals.Forecast(idle)
		within(t, "idle for "+idle.String(), got, known, 40*time.Second, 80*time.Second)
	}
}

func TestForecastForgets(t *testing.T) {
	e := learn(time.Hour, time.Hour, time.Hour)
	now := noon.Add(10 * 24 * time.Hour)
	for range 3 {
		e = e.Arrived(time.Minute, now)
	}
	got, known := e.Arrivals.Gap()
	within(t, "after ten days", got, known, time.Minute, 80*time.Second)
	if got, known := e.Arrivals.Forecast(10 * time.Minute); known {
		t.Errorf("what was learned ten days ago says %s; want that it is forgotten", got)
	}
}

func TestForecastKnowsWhatItDoesNotKnow(t *testing.T) {
	for what, e := range map[string]Experience{"nothing": {}, "one gap": learn(time.Minute), "no gap": learn(0, -time.Second)} {
		if got, known := e.Arrivals.Forecast(0); known {
			t.Errorf("%s: forecast %s, want none", what, got)
		}
	}
	e := learn(400*24*time.Hour, 400*24*time.Hour, 1, 1)
	got, known := e.Arrivals.Forecast(0)
	within(t, "extremes", got, known, 0, 400*24*time.Hour)
	if got, known := e.Arrivals.Forecast(1 << 62); known && got < 0 {
		t.Errorf("after ages: %s", got)
	}
}

func TestChance(t *testing.T) {
	var bursts []time.Duration
	for range 6 {
		for range 50 {
			bursts = append(bursts, 3*time.Second)
		}
		bursts = append(bursts, time.Hour)
	}
	period := learn(10*time.Minute, 10*time.Minute, 10*time.Minute, 10*time.Minute, 10*time.Minute)
	e := learn(bursts...)
	for _, c := range []struct {
		what        string
		of          Experience
		idle, limit time.Duration
		low, high   float64
		known       bool
	}{
		{"in a burst", e, time.Second, time.Minute, 0.95, 1, true},
		{"in a pause", e, 10 * time.Second, time.Minute, 0, 0, true},
		{"a period that is longer", period, 0, 5 * time.Minute, 0, 0, true},
		{"a period that is shorter", period, time.Minute, 20 * time.Minute, 1, 1, true},
		{"idle for longer than ever", period, 15 * time.Minute, 20 * time.Minute, 0, 0, false},
		{"nothing was learned", Experience{}, time.Second, time.Minute, 0, 0, false},
		{"too little was learned", learn(time.Minute, time.Minute), time.Second, 2 * time.Minute, 0, 0, false},
	} {
		got, known := c.of.Arrivals.Chance(c.idle, c.limit)
		if known != c.known || got < c.low || got > c.high {
			t.Errorf("%s: %.2f, known %t; want %.2f to %.2f, %t", c.what, got, known, c.low, c.high, c.known)
		}
	}
}
