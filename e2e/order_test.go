package e2e

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/e2e/bench/report"
	"github.com/rouse-dev/rouse/internal/fair"
)

// TestHandOverOfASlot measures what the order of requests adds to handing a slot over while so many requests wait, each
// of another client. ROUSE_E2E_REPORT names the file for the measurements (make bench-order).
func TestHandOverOfASlot(t *testing.T) {
	r, path := report.New("make bench-order"), os.Getenv("ROUSE_E2E_REPORT")
	rounds := 2
	if path != "" {
		rounds = 200
	}
	for _, waiting := range []int{1, 100, 10_000} {
		var q fair.Queue
		items := make([]fair.Item, waiting)
		for n := range items {
			items[n] = fair.Item{Client: fair.Client{Name: uint64(n)}, Ticket: uint64(n)}
			q.Put(&items[n])
		}
		const each = 1000
		took := make([]float64, rounds)
		for n := range took {
			began := time.Now()
			for k := range each {
				i := q.First()
				q.Charge(i.Client, i.Priority, 100)
				q.Remove(i)
				q.Settle(i.Client, i.Priority, float64(k%20))
				i.Ticket += uint64(waiting)
				q.Put(i)
			}
			took[n] = report.Millis(time.Since(began)) // the thousandth part is in microseconds
		}
		m := report.Measurement{Name: fmt.Sprintf("%d waiting", waiting), What: "a slot is handed over: the next request is chosen, charged and settled, and another one of its client begins to wait; means of 1,000",
			Unit: "µs", N: rounds, Rouse: report.Summarise(took)}
		r.Measurements = append(r.Measurements, m.Gated(m.Rouse.P50 <= 100, "p50 ≤ 100 µs"))
		t.Log(m.Line())
		if q.Len() != waiting {
			t.Errorf("%d wait, want %d", q.Len(), waiting)
		}
	}
	if err := r.Finish(path); err != nil {
		t.Error(err)
	}
}
