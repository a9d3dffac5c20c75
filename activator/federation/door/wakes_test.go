package door

import (
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// TestWithin: a part of a wake is centered in the hold, and one that began before the hold is cut to it.
func TestWithin(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for total, want := range map[time.Duration]struct{ after, took, callAfter, callTook time.Duration }{
		40 * ms:  {30 * ms, 40 * ms, 40 * ms, 20 * ms},
		400 * ms: {0, 100 * ms, 0, 0}, // its call was over before the hold
	} {
		o := api.WakeTrace{Trace: "t", Root: "r", Total: 200 * ms}
		o.Add(api.Span{ID: "h", Name: api.SpanHold, Took: 100 * ms})
		part := api.WakeTrace{Trace: "t", Root: "r", Cluster: "west", Start: time.Now().Add(-time.Hour), Total: total}
		part.Add(api.Span{ID: "c", Name: api.SpanWake, After: 10 * ms, Took: 20 * ms})
		var w wakes
		w.happened(part)
		w.happened(part) // each only once
		w.held(o)
		var got struct{ after, took, callAfter, callTook time.Duration }
		for _, s := range w.records[0].Spans {
			switch s.Name {
			case "woken elsewhere":
				got.after, got.took = s.After, s.Took
			case api.SpanWake:
				got.callAfter, got.callTook = s.After, s.Took
			}
		}
		if got != want || len(w.records[0].Spans) != 3 {
			t.Errorf("a part of %s: %+v, want %+v", total, got, want)
		}
	}
}
