package api_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
)

func TestParseTrace(t *testing.T) {
	const id, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for text, want := range map[string]api.Trace{
		"00-" + id + "-" + span + "-01":         {ID: id, Span: span},
		"00-" + id + "-" + span + "-00":         {ID: id, Span: span, Unsampled: true},
		"00-" + id + "-" + span + "-03":         {ID: id, Span: span},
		"01-" + id + "-" + span + "-01-further": {ID: id, Span: span},
	} {
		got, found := api.ParseTrace(text)
		if !found || got != want {
			t.Errorf("ParseTrace(%q) = %+v, %t", text, got, found)
		}
	}
	for _, text := range []string{
		"", "00", "00-" + id + "-" + span, "ff-" + id + "-" + span + "-01", "00-" + id + "-" + span + "-01-further",
		"00-00000000000000000000000000000000-" + span + "-01", "00-" + id + "-0000000000000000-01",
		"00-4BF92F3577B34DA6A3CE929D0E0E4736-" + span + "-01", "zz-" + id + "-" + span + "-01", "00-" + id + "-" + span + "-xx",
	} {
		if got, found := api.ParseTrace(text); found {
			t.Errorf("ParseTrace(%q) = %+v, want none", text, got)
		}
	}
}

func TestTraceGoesOn(t *testing.T) {
	trace := api.Trace{ID: "4bf92f3577b34da6a3ce929d0e0e4736", Span: "00f067aa0ba902b7"}
	again, found := api.ParseTrace(trace.String())
	if !found || again != trace {
		t.Errorf("%q is read as %+v", trace, again)
	}
	if got := api.TraceOf(api.WithTrace(context.Background(), trace)); got != trace {
		t.Errorf("a context carries %v, want %v", got, trace)
	}
	if got := api.TraceFrom(http.Header{api.HeaderTrace: {trace.String()}}); got != trace {
		t.Errorf("a header carries %v, want %v", got, trace)
	}
	if none := (api.Trace{}); none.String() != "" || !api.TraceOf(api.WithTrace(context.Background(), none)).Zero() {
		t.Errorf("no trace became %v", none)
	}
}

// TestWakeTraceIsWithinItself checks that spans lie within the record for any clocks of other machines.
func TestWakeTraceIsWithinItself(t *testing.T) {
	const ms = time.Millisecond
	o := api.WakeTrace{Trace: "t", Root: "r", Total: 10 * ms}
	call := api.Span{ID: "c", Name: api.SpanWake, After: 2 * ms, Took: 6 * ms}
	o.Add(call)
	o.Add(api.Span{ID: "h", Name: api.SpanHold, Took: 9 * ms})
	o.Add(api.Span{ID: "late", Name: "late", After: 50 * ms, Took: 5 * ms})
	o.Add(api.Span{ID: "early", Name: "early", After: -5 * ms, Took: 100 * ms})
	type row struct {
		name, parent string
		after, took  time.Duration
	}
	var got []row
	for _, s := range o.Spans {
		got = append(got, row{s.Name, s.Parent, s.After, s.Took})
	}
	want := []row{
		{"hold", "r", 0, 9 * ms}, {"early", "r", 0, 10 * ms}, {"wake call", "r", 2 * ms, 6 * ms}, {"late", "r", 10 * ms, 0},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(row{})); diff != "" {
		t.Error(diff)
	}
}
