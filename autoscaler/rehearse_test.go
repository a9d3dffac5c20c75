package autoscaler

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// rehearsing is a function that takes 5 s to fall asleep. A request at 0 is answered by 4 s; a rehearsal begins 7.5 s after that.
func rehearsing(w *fleet, name string) *fakeFunction {
	f := w.add(name, api.GiB, func(f *fakeFunction) {
		f.sleep = 5 * time.Second
		f.spec.Rehearse = api.RehearseAlways
	})
	w.request(f, 1, time.Second)
	return f
}

func TestRehearsal(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		a := rehearsing(w, "a")
		pass(20 * time.Second)
		if got := w.state("a-0001"); got != api.Awake || w.count("sleep a") != 1 || w.count("wake a") != 1 {
			t.Fatalf("after 20 s it is %s; want that it slept once and is awake again:\n%s", got, w.transcript())
		}
		pass(38 * time.Second)
		if got := w.state("a-0001"); got != api.Awake {
			t.Errorf("after 58 s it is %s, want awake: it was idle since 4 s, and sleep-after is a minute", got)
		}
		pass(15 * time.Second)
		if got := w.state("a-0001"); got != api.Asleep || w.count("sleep a") != 2 || w.count("start a") != 1 {
			t.Errorf("after 73 s it is %s, want asleep by the time at which it would have slept without a rehearsal:\n%s", got, w.transcript())
		}
		var reasons []string
		for _, d := range w.a.Why(a.spec.Name) {
			reasons = append(reasons, d.Action+": "+d.Reason)
		}
		said := strings.Join(reasons, "\n")
		if !strings.Contains(said, "sleep: a rehearsal, idle for 7.5s") || !strings.Contains(said, "wake: its rehearsal is over, the first sleep took 5s") {
			t.Errorf("it says\n%s\nwant that it was a rehearsal", said)
		}
	})
}

// TestRehearsalInterrupted sends a request at each step of a rehearsal, for the function itself or for another that
// needs the memory. Each is answered, and waits for no more than the sleep, a start or a wake.
func TestRehearsalInterrupted(t *testing.T) {
	for _, other := range []bool{false, true} {
		for ms := 11000; ms <= 18000; ms += 100 {
			t.Run(fmt.Sprintf("other=%t at=%dms", other, ms), func(t *testing.T) {
				inWorld(t, 3*api.GiB/2, func(w *fleet) { // one of two fits
					a := rehearsing(w, "a")
					pass(time.Duration(ms) * time.Millisecond)
					f, served := a, 2
					if other {
						f, served = w.add("b", api.GiB, nil), 1
					}
					w.request(f, 1, time.Second)
					pass(20 * time.Second)
					if f.served != served || len(w.refused) != 0 {
						t.Fatalf("%d were served, want %d; refused: %v\n%s", f.served, served, w.refused, w.transcript())
					}
					if most := 9 * time.Second; f.worst > most {
						t.Errorf("it waited for %s, want %s at most", f.worst, most)
					}
					if other {
						w.request(a, 1, time.Second)
						pass(30 * time.Second)
						if a.served != 2 || w.count("start a") != 1 {
							t.Errorf("then a was served %d times with %d starts, want 2 and 1\n%s", a.served, w.count("start a"), w.transcript())
						}
					}
				})
			})
		}
	}
}
