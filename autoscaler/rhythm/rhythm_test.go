package rhythm

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

var start = time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)

const (
	pause  = 8 * time.Second
	widest = 20 * time.Second
)

// visit has r learn of visits at times after start.
func visit(r *Rhythm, times ...time.Duration) {
	last := -time.Hour
	for _, t := range times {
		r.Visit(start.Add(t), t-last, pause, widest)
		last = t
	}
}

func TestPeriod(t *testing.T) {
	for _, tc := range []struct {
		name   string
		period time.Duration
		jitter time.Duration
		beside time.Duration // another visit that long after each third
	}{
		{name: "exact", period: 10 * time.Minute},
		{name: "no usual period", period: 149300 * time.Millisecond},
		{name: "jitter", period: 10 * time.Minute, jitter: 3 * time.Second},
		{name: "daily", period: 24 * time.Hour, jitter: 3 * time.Second},
		{name: "others between", period: time.Hour, beside: 17 * time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			var r Rhythm
			right, foreseen := 0, 0
			for k := range 30 {
				at := time.Duration(k)*tc.period + time.Duration(rng.Float64()*float64(tc.jitter))
				if k > 5 {
					w, known := r.Next(start.Add(at - tc.period/2))
					if known && r.Trusted() {
						foreseen++
						if !start.Add(at).Before(w.From) && !start.Add(at).After(w.Until) {
							right++
						}
						if got := w.Until.Sub(w.From); got > widest {
							t.Errorf("the window is %s wide, want %s at most", got, widest)
						}
					}
				}
				r.Visit(start.Add(at), tc.period/2, pause, widest)
				if tc.beside > 0 && k%3 == 2 {
					r.Visit(start.Add(at+tc.beside+time.Duration(k)*7*time.Second), tc.beside, pause, widest)
				}
			}
			if foreseen < 20 || right < foreseen*9/10 {
				t.Errorf("of 24 visits %d were foreseen, %d of them rightly; want 20 and nine in ten", foreseen, right)
			}
		})
	}
}

// TestCalendars: jobs that rest at night or at weekends are foreseen when they begin again, and not when they rest.
func TestCalendars(t *testing.T) {
	const day = 24 * time.Hour // start is a Monday, 08:00
	workday := func(d int) bool { return d%7 < 5 }
	for _, tc := range []struct {
		name string
		// visits of a day, in hours after 08:00
		of func(d int) []int
		// foreseen says whether a visit is foreseen of the dth day, unforeseen whether none must be in the hours after the day's last
		foreseen, unforeseen func(d int) bool
		days                 int
	}{
		{"workdays", func(d int) []int {
			if !workday(d) {
				return nil
			}
			return []int{0}
		}, func(d int) bool { return d >= 21 && workday(d) || d%7 == 4 }, func(d int) bool { return d >= 7 && d%7 >= 4 }, 42},
		{"workdays with a holiday", func(d int) []int {
			if !workday(d) || d == 23 {
				return nil
			}
			return []int{0}
		}, func(d int) bool { return d >= 21 && workday(d) && d%7 != 2 && d != 24 }, // the day after it, and its weekday for three weeks, are lost
			func(d int) bool { return d >= 7 && d%7 >= 4 }, 42},
		{"hours of workdays", func(d int) []int {
			if !workday(d) {
				return nil
			}
			return []int{0, 1, 2, 3, 4, 5, 6, 7, 8}
		}, func(d int) bool { return d%7 > 2 && workday(d) }, func(d int) bool { return d > 2 && d%7 < 4 && d%7 > 0 }, 28},
		{"a new daily job after others", func(d int) []int {
			if d < 10 {
				return []int{(d * d * 7) % 13}
			}
			return []int{0}
		}, func(d int) bool { return d >= 14 }, func(int) bool { return false }, 24},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var r Rhythm
			last := start.Add(-time.Hour)
			for d := range tc.days {
				times := tc.of(d)
				for n, h := range times {
					at := start.Add(time.Duration(d)*day + time.Duration(h)*time.Hour)
					if w, known := r.Next(at); n == 0 && tc.foreseen(d) && (!known || at.Before(w.From) || !r.Trusted()) {
						t.Errorf("day %d: want it foreseen; known %t, %s, trusted %t", d, known, w, r.Trusted())
					}
					r.Visit(at, at.Sub(last), pause, widest)
					last = at
				}
				end := start.Add(time.Duration(d) * day).Add(8*time.Hour + time.Minute)
				if w, known := r.Next(end); tc.unforeseen(d) && known && w.From.Before(end.Add(15*time.Hour)) {
					t.Errorf("day %d: %s; want none before the next morning", d, w)
				}
			}
		})
	}
}

func TestThreeRequests(t *testing.T) {
	var r Rhythm
	visit(&r, 0, time.Minute, 2*time.Minute)
	if w, known := r.Next(start.Add(2*time.Minute + 1)); !known || r.Trusted() {
		t.Errorf("after three requests: %v, %t, trusted %t; want a window that is not acted upon", w, known, r.Trusted())
	}
	for k := range 3 {
		if r.Likely(start.Add(time.Duration(24*k) * time.Hour)) {
			t.Error("three requests make an hour likely")
		}
	}
}

func TestWrongTurnsItselfOff(t *testing.T) {
	var r Rhythm
	at, last := start, start.Add(-time.Hour)
	come := func(gap time.Duration) {
		at = at.Add(gap)
		r.Visit(at, at.Sub(last), pause, widest)
		last = at
	}
	for range 12 {
		come(5 * time.Minute)
	}
	if right, of := r.Score(); !r.Trusted() || right != of || of < 8 {
		t.Fatalf("%d of %d were right, trusted %t; want all of eight", right, of, r.Trusted())
	}
	for range 3 { // each of these is later than was foreseen, and then it is regular again
		come(7*time.Minute + 13*time.Second)
		for r.Trusted() && r.Last().Right {
			come(5 * time.Minute)
		}
		for range 4 {
			come(5 * time.Minute)
		}
	}
	wrong := 0
	for k := range 9 { // no distance comes twice
		come(time.Duration(100+37*k*k) * time.Second)
		if !r.Last().Right {
			wrong++
		}
	}
	_, known := r.Next(at.Add(time.Second))
	if known && r.Trusted() {
		right, of := r.Score()
		t.Errorf("it is trusted though what came since was irregular: %d of %d right, %d wrong", right, of, wrong)
	}
	for range 20 {
		come(5 * time.Minute)
	}
	if !r.Trusted() {
		t.Error("it is not trusted again after twenty regular visits")
	}
}

func TestLate(t *testing.T) {
	var r Rhythm
	for k := range 8 {
		visit(&r, time.Duration(k)*10*time.Minute)
	}
	w, known := r.Next(start.Add(75 * time.Minute))
	if !known || !strings.Contains(w.String(), "10m0s") {
		t.Fatalf("got %v, %t, want a window", w, known)
	}
	if _, known = r.Next(w.Until.Add(1)); known {
		t.Error("a window is there after its end")
	}
	v, judged := r.Visit(w.Until.Add(time.Minute), 11*time.Minute, pause, widest)
	if !judged || v.Right {
		t.Errorf("a visit a minute after the window: %+v, judged %t; want wrong", v, judged)
	}
}

func TestRandomArrivalsAreNotForeseen(t *testing.T) {
	acted, right := 0, 0
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var r Rhythm
		at := start
		for range 500 {
			gap := time.Duration(rng.ExpFloat64() * float64(2*time.Minute))
			at = at.Add(gap)
			if w, known := r.Next(at); r.Trusted() && (known || at.After(w.Until)) {
				acted++
				if !at.Before(w.From) {
					right++
				}
			}
			r.Visit(at, gap, pause, widest)
		}
	}
	if acted > 200 { // of 20000
		t.Errorf("random arrivals: %d windows would have been acted upon, %d rightly; want hardly any", acted, right)
	}
}

func TestHours(t *testing.T) {
	var r Rhythm
	nine := 1*time.Hour + 10*time.Minute // 9:10
	day := 24 * time.Hour
	for d := range 5 { // Monday to Friday
		for k := range 6 {
			r.Visit(start.Add(time.Duration(d)*day+nine+time.Duration(k)*20*time.Minute), 20*time.Minute, pause, widest)
		}
	}
	monday := start.Add(7*day + nine)
	if !r.Likely(monday) {
		t.Error("after a week and two days off, nine o'clock is not likely")
	}
	if r.Likely(monday.Add(6 * time.Hour)) {
		t.Error("an hour without requests is likely")
	}
	if begin, known := r.NextLikely(monday.Add(-6 * time.Hour)); !known || begin.Hour() != 8 && begin.Hour() != 9 {
		t.Errorf("the next likely half hour begins at %s, %t; want about nine", begin, known)
	}
	if r.Likely(monday.Add(30 * day)) {
		t.Error("after a month without requests it is likely still")
	}
}

func TestClockJumps(t *testing.T) {
	for _, jump := range []time.Duration{-365 * 24 * time.Hour, -time.Hour, -time.Second, time.Hour, 365 * 24 * time.Hour, 100 * 365 * 24 * time.Hour} {
		var r Rhythm
		for k := range 10 {
			r.Visit(start.Add(time.Duration(k)*5*time.Minute), 4*time.Minute, pause, widest)
		}
		now := start.Add(50*time.Minute + jump)
		for k := range 10 {
			r.Visit(now.Add(time.Duration(k)*5*time.Minute), 4*time.Minute, pause, widest)
			if w, known := r.Next(now); known && w.From.After(now.Add(366*24*time.Hour)) {
				t.Errorf("jump %s: a window at %s", jump, w.From)
			}
		}
		if w, known := r.Next(now.Add(46 * time.Minute)); !known || w.From.Before(now.Add(45*time.Minute)) || w.Until.After(now.Add(55*time.Minute)) {
			t.Errorf("jump %s: after ten regular visits the window is %v, %t", jump, w, known)
		}
	}
}

func TestNil(t *testing.T) {
	var r *Rhythm
	_, known := r.Next(start)
	_, made := r.Made()
	_, hour := r.NextLikely(start)
	right, of := r.Score()
	if known || made || hour || r.Trusted() || r.Likely(start) || right+of+r.Judged() != 0 || r.Last().Right {
		t.Error("nothing was learned, and something is known")
	}
}

// FuzzVisits gives a rhythm any times: its windows are no wider than is worth, and not in the past.
func FuzzVisits(f *testing.F) {
	f.Add([]byte{10, 10, 10, 10, 10, 200, 0, 10, 10})
	f.Add([]byte{255, 255, 255, 1, 2, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, gaps []byte) {
		var r Rhythm
		at := start
		for _, g := range gaps {
			gap := time.Duration(int8(g)) * 13 * time.Second // backwards, too
			at = at.Add(gap)
			judged := r.Judged()
			_, was := r.Visit(at, max(0, gap), pause, widest)
			if was != (r.Judged() == judged+1) {
				t.Fatal("a verdict is not counted")
			}
			if w, known := r.Next(at); known && (w.Until.Sub(w.From) > widest || !w.Until.After(at) || w.Times < leastSupport) {
				t.Fatalf("at %s the window is %+v", at, w)
			}
			if right, of := r.Score(); right > of || of > 8 {
				t.Fatalf("%d of %d were right", right, of)
			}
			if len(r.Visits) > mostVisits {
				t.Fatalf("%d visits are remembered", len(r.Visits))
			}
		}
	})
}

func BenchmarkVisit(b *testing.B) {
	for _, load := range []string{"regular", "random"} {
		b.Run(load, func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 1))
			var r Rhythm
			at := start
			for b.Loop() {
				gap := 2 * time.Minute
				if load == "random" {
					gap = time.Duration(rng.ExpFloat64() * float64(gap))
				}
				at = at.Add(gap)
				r.Visit(at, gap, pause, widest)
			}
		})
	}
}
