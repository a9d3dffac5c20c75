package autoscaler

import (
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// TestWokenAhead: a function that is asked for every five minutes is awake when the request comes; what is said of it names the forecast, and then
// whether it was right. When requests come at other times it is woken for those that are there only.
func TestWokenAhead(t *testing.T) {
	inWorld(t, 4*api.GiB, func(w *fleet) {
		a := w.add("a", api.GiB, nil)
		for range 10 {
			w.request(a, 1, time.Second)
			pass(5 * time.Minute)
		}
		said := func(word string) (found []string) {
			for _, d := range w.a.Why(a.spec.Name) {
				if strings.Contains(d.Reason, word) {
					found = append(found, d.Action+": "+d.Reason)
				}
			}
			return found
		}
		if got := said("a request is foreseen at"); len(got) < 6 || !strings.HasPrefix(got[len(got)-1], "wake: ") && !strings.HasPrefix(got[len(got)-1], "forecast: ") {
			t.Fatalf("of ten requests at equal distances it says %q, want forecasts that wakes were for", got)
		}
		if got := said("that was right: one came at"); len(got) < 4 {
			t.Errorf("it says %q, want that forecasts were right", got)
		}
		for k := range 8 { // at no equal distances
			pass(time.Duration(70+41*k*k) * time.Second)
			w.request(a, 1, time.Second)
		}
		pass(10 * time.Second)
		if got := said("not acted upon until more of them are right"); len(got) == 0 {
			t.Errorf("the forecaster is wrong again and again, and does not say that it is turned off: %q", said("that was wrong"))
		}
		if a.served != 18 {
			t.Errorf("%d were served, want 18", a.served)
		}
	})
}
